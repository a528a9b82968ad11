# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled kernel of ``rows`` and ``series``: writes rows as PostgreSQL's binary COPY."""

from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

from array import array

cdef extern from *:
    """
    #include <endian.h>
    static inline uint16_t be16(uint16_t x) { return htobe16(x); }
    static inline uint32_t be32(uint32_t x) { return htobe32(x); }
    static inline uint64_t be64(uint64_t x) { return htobe64(x); }
    """
    uint16_t be16(uint16_t) nogil
    uint32_t be32(uint32_t) nogil
    uint64_t be64(uint64_t) nogil

cdef extern from "series.hpp" namespace "ccpipe" nogil:
    const size_t DIGEST
    cdef cppclass SeriesRows:
        cbool take(const char* key, size_t) except +
        void name(const char*, size_t)
        void tag(const char*, size_t, const char*, size_t) except +
        void write(int32_t place, const char* digest, const char* field, size_t) except +
        const char* end(size_t&) except +

cdef extern from "blake2b.hpp" namespace "ccpipe" nogil:
    cdef cppclass Blake2b:
        @staticmethod
        void digest(const char*, size_t, char* out, size_t)

cdef enum:  # ``ValueType``
    INT = 1
    UINT = 2
    BOOL = 3
    TEXT = 4

cdef int64_t DAY = 86_400 * 1_000_000_000
cdef int64_t YEAR_2000 = 946_684_800 * 1_000_000  # microseconds since the epoch
cdef int64_t NO_TIME = INT64_MIN


cdef class _Ids:
    """The numbers of series by field and series, as plain pointers."""

    cdef vector[int32_t*] fields
    cdef list _held  # keeps the buffers where they are

    def __init__(self, ids, Py_ssize_t count):
        cdef int32_t[::1] view
        self.fields.resize(count, NULL)
        self._held = []
        for field, column in ids.items():
            if field < count and len(column):
                view = column
                self._held.append(view)
                self.fields[field] = &view[0]


def unknown_pairs(lines, ids):
    """Return each series and field whose number is not known, once: their codes in turn."""
    cdef Py_ssize_t count = len(lines.series), i
    if not count:
        return array("i")
    cdef int32_t[::1] series = lines.series
    cdef int32_t[::1] fields = lines.fields
    cdef _Ids known = _Ids(ids, len(lines.table.fields))
    cdef int32_t* of_field
    cdef vector[int32_t] found
    for i in range(count):
        of_field = known.fields[fields[i]]
        if of_field[series[i]] == 0:
            found.push_back(series[i])
            found.push_back(fields[i])
            of_field[series[i]] = -1  # found
    for i in range(0, <Py_ssize_t>found.size(), 2):
        known.fields[found[i + 1]][found[i]] = 0
    return array("i", PyBytes_FromStringAndSize(<char*>found.data(), 4 * found.size()))


def days(lines):
    """Return the days of the times that there are."""
    cdef Py_ssize_t count = len(lines.times), i
    if not count:
        return set()
    cdef int64_t[::1] times = lines.times
    cdef int64_t begin = 1, day, time
    found = set()
    for i in range(count):
        time = times[i]
        if begin <= time < begin + DAY and begin != 1 or time == NO_TIME:
            continue
        day = _floor(time, DAY)
        found.add(day)
        # The first and last days of 64 bits are not whole: they are looked up each time.
        begin = day * DAY if -106_000 < day < 106_000 else 1
    return found


cdef inline int64_t _floor(int64_t number, int64_t by) noexcept nogil:
    cdef int64_t whole = number / by
    return whole - (number % by < 0)


cdef inline char* _put16(char* at, int value) noexcept nogil:
    cdef uint16_t big = be16(<uint16_t>value)
    memcpy(at, &big, 2)
    return at + 2


cdef inline char* _put32(char* at, int32_t value) noexcept nogil:
    cdef uint32_t big = be32(<uint32_t>value)
    memcpy(at, &big, 4)
    return at + 4


cdef inline char* _put64(char* at, int64_t value) noexcept nogil:
    cdef uint64_t big = be64(<uint64_t>value)
    memcpy(at, &big, 8)
    return at + 8


cdef inline char* _put_numeric(char* at, uint64_t value) noexcept nogil:
    cdef int i
    at = _put32(at, 18)
    at = _put16(at, 5)  # digits to the base 10 000
    at = _put16(at, 4)  # weight of the first
    at = _put16(at, 0)  # sign
    at = _put16(at, 0)  # decimals to show
    for i in range(4, -1, -1):
        _put16(at + 2 * i, <int>(value % 10_000))
        value //= 10_000
    return at + 10


cdef enum:  # bytes of a row but for its text: all eight lengths, time, value, series, ns, numeric
    WIDEST = 74


def rows(lines, ids, texts):
    """Write all rows, in their order."""
    cdef Py_ssize_t count = len(lines.series), i, place = 0, size
    cdef bytes text
    if not count:
        return bytearray(b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\xff\xff")
    cdef int32_t[::1] series = lines.series
    cdef int32_t[::1] fields = lines.fields
    cdef uint8_t[::1] types = lines.types
    cdef double[::1] numbers = lines.numbers
    cdef int64_t[::1] exact = lines.exact
    cdef int64_t[::1] times = lines.times
    cdef _Ids known = _Ids(ids, len(lines.table.fields))
    cdef list strings = list(texts)
    cdef int64_t micros, bits
    cdef int kind

    size = 19 + 2 + count * WIDEST + sum(map(len, strings))
    cdef bytearray out = PyByteArray_FromStringAndSize(NULL, size)
    cdef char* begin = PyByteArray_AS_STRING(out)
    cdef char* at = begin
    memcpy(at, b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0", 19)
    at += 19
    for i in range(count):
        kind = types[i]
        at = _put16(at, 8)
        at = _put32(at, 8)
        if times[i] == NO_TIME:
            at = _put64(at, INT64_MIN)  # -infinity
            micros = 0
        else:
            micros = _floor(times[i], 1000)
            at = _put64(at, micros - YEAR_2000)
        if kind == TEXT:
            at = _put32(at, -1)
        else:
            at = _put32(at, 8)
            memcpy(&bits, &numbers[i], 8)
            at = _put64(at, bits)
        at = _put32(at, 4)
        at = _put32(at, known.fields[fields[i]][series[i]])
        at = _put32(at, 2)
        at = _put16(at, 0 if times[i] == NO_TIME else <int>(times[i] - micros * 1000))
        if kind == INT:
            at = _put32(at, 8)
            at = _put64(at, exact[i])
        else:
            at = _put32(at, -1)
        if kind == UINT:
            at = _put_numeric(at, <uint64_t>exact[i])
        else:
            at = _put32(at, -1)
        if kind == BOOL:
            at = _put32(at, 1)
            at[0] = <char>exact[i]
            at += 1
        else:
            at = _put32(at, -1)
        if kind == TEXT:
            text = strings[place]
            place += 1
            at = _put32(at, <int32_t>PyBytes_GET_SIZE(text))
            memcpy(at, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
            at += PyBytes_GET_SIZE(text)
        else:
            at = _put32(at, -1)
    at = _put16(at, -1)
    PyByteArray_Resize(out, at - begin)
    return out


def digests(list keys, fields, int32_t[::1] pairs):
    """Return the digest of each series and field, one after the other."""
    cdef Py_ssize_t count = len(keys), i
    cdef list endings = [b" " + each.encode() for each in fields]
    cdef bytes key, ending
    cdef string text
    cdef bytes out = PyBytes_FromStringAndSize(NULL, count * DIGEST)
    cdef char* at = PyBytes_AS_STRING(out)
    for i in range(count):
        key, ending = keys[i], endings[pairs[2 * i + 1]]
        text.assign(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
        text.append(PyBytes_AS_STRING(ending), PyBytes_GET_SIZE(ending))
        Blake2b.digest(text.data(), text.size(), at + i * DIGEST, DIGEST)
    return out


def series_rows(table, list keys, int32_t[::1] pairs, bytes digests, int32_t[::1] ids):
    """Write a row for each series and field whose number is 0."""
    cdef SeriesRows rows
    cdef Py_ssize_t i
    cdef bytes key, name, tag, value, field
    cdef list held, fields = [each.encode() for each in table.fields]
    cdef size_t size = 0
    for i in range(len(keys)):
        if ids[i]:
            continue
        key = keys[i]
        held = []  # what the rows point to until they are written
        if not rows.take(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)):
            series = table.series[pairs[2 * i]]
            name = series.name.encode()
            rows.name(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            for each, word in series.tags.items():
                tag, value = each.encode(), word.encode()
                held += [tag, value]
                rows.tag(
                    PyBytes_AS_STRING(tag), PyBytes_GET_SIZE(tag),
                    PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value),
                )
        field = fields[pairs[2 * i + 1]]
        rows.write(
            <int32_t>i, PyBytes_AS_STRING(digests) + i * DIGEST,
            PyBytes_AS_STRING(field), PyBytes_GET_SIZE(field),
        )
    cdef const char* begin = rows.end(size)
    return PyByteArray_FromStringAndSize(begin, size)


def store_ids(ids, int32_t[::1] pairs, int32_t[::1] numbers):
    """Note the numbers of series and fields."""
    cdef Py_ssize_t i
    cdef int32_t fields = 1 + max(ids, default=-1)
    cdef _Ids known = _Ids(ids, fields)
    for i in range(len(numbers)):
        known.fields[pairs[2 * i + 1]][pairs[2 * i]] = numbers[i]
