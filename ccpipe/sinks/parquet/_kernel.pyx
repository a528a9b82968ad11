# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled kernel of ``table``: ``Lines`` as the buffers of Arrow arrays."""

from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcpy, memset
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

import array as arrays
import os


cdef extern from "columns.hpp" namespace "ccpipe" nogil:
    struct Seed:
        uint64_t a
        uint64_t b
    enum:
        CLUSTER
        COLUMNS
    cdef cppclass Names:
        size_t size()
        const char* text(int32_t number, size_t& size) const
    cdef cppclass Texts:
        string bytes
        vector[int32_t] ends
        void add(const char*, size_t) except +
        void add(const Texts&, size_t first, size_t last) except +
    struct Series:
        int32_t names[7]
        unsigned tags
        unsigned tags_end
    cdef cppclass SeriesColumns:
        SeriesColumns(const Seed&) except +
        vector[Names] columns
        vector[Series] series
        Texts keys
        Texts values
        void begin(const char*, size_t) except +
        void tag(const char*, size_t, const char*, size_t) except +
        cbool add(const char*, size_t) except +
    cdef cppclass NameColumn:
        NameColumn(const Names&) except +
        Texts dictionary
        int32_t number(int32_t) except +

cdef enum:  # ``ValueType``
    BOOL = 3
    TEXT = 4

cdef int64_t DAY = 86_400 * 1_000_000_000
cdef int64_t NO_TIME = INT64_MIN

cdef Seed _seed
_seed.a = int.from_bytes(os.urandom(8), "little")
_seed.b = int.from_bytes(os.urandom(8), "little")

cdef array.array _INT16 = arrays.array("h")
cdef array.array _INT32 = arrays.array("i")
cdef array.array _INT64 = arrays.array("q")
cdef array.array _DOUBLE = arrays.array("d")


cdef inline int64_t _floor(int64_t number, int64_t by) noexcept nogil:
    cdef int64_t whole = number / by
    return whole - (number % by < 0)


cdef class Rows:
    """Some rows, or all of them."""

    cdef const int64_t* rows
    cdef Py_ssize_t size

    def __cinit__(self, Py_ssize_t size, array.array rows):
        self.rows = NULL
        self.size = size
        if rows is not None:
            self.rows = <const int64_t*>rows.data.as_voidptr
            self.size = len(rows)

    cdef inline Py_ssize_t at(self, Py_ssize_t place) noexcept:
        return place if self.rows == NULL else self.rows[place]


cdef class Bits:
    """A bit for each row, such as whether it has a value."""

    cdef bytearray bits
    cdef uint8_t* at
    cdef Py_ssize_t missing

    def __cinit__(self, Py_ssize_t size):
        self.bits = PyByteArray_FromStringAndSize(NULL, (size + 7) // 8)
        self.at = <uint8_t*>PyByteArray_AS_STRING(self.bits)
        memset(self.at, 0xFF, (size + 7) // 8)
        self.missing = 0

    cdef inline void clear(self, Py_ssize_t row) noexcept:
        self.at[row >> 3] &= ~(1 << (row & 7))
        self.missing += 1

    cdef buffer(self):
        return self.bits if self.missing else None


cdef class Columns:
    """The columns of some lines."""

    cdef object lines
    cdef Py_ssize_t size
    cdef SeriesColumns* columns
    cdef vector[int32_t] places  # of each row that of its series
    cdef array.array series, fields, types, numbers, exact, times

    def __cinit__(self):
        self.columns = new SeriesColumns(_seed)

    def __dealloc__(self):
        del self.columns

    def __init__(self, lines):
        self.lines = lines
        self.series, self.fields, self.types = lines.series, lines.fields, lines.types
        self.numbers, self.exact, self.times = lines.numbers, lines.exact, lines.times
        self.size = len(self.series)
        if any(len(column) != self.size for column in lines.columns):
            raise ValueError("the columns differ in length")
        cdef const int32_t* codes = <const int32_t*>self.series.data.as_ints
        cdef vector[int32_t] known
        cdef Py_ssize_t row
        cdef int32_t code
        known.resize(len(lines.table), -1)
        self.places.resize(self.size)
        key_of = lines.table.codes.key
        for row in range(self.size):
            code = codes[row]
            if not 0 <= code < <Py_ssize_t>known.size():
                raise IndexError(f"there is no series {code}")
            if known[code] < 0:
                known[code] = <int32_t>self.columns.series.size()
                self._add(code, key_of(code))
            self.places[row] = known[code]

    cdef _add(self, int32_t code, bytes key):
        if self.columns.add(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)):
            return
        name, tags, _ = self.lines.table.series[code]
        cdef bytes text = name.encode()
        cdef bytes value
        self.columns.begin(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        for tag, word in tags.items():
            text, value = tag.encode(), word.encode()
            self.columns.tag(
                PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text),
                PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value),
            )

    def groups(self):
        """Return cluster, day since the epoch and rows of each group; None for all rows."""
        cdef const int64_t* times = <const int64_t*>self.times.data.as_voidptr
        cdef vector[vector[int64_t]] rows
        cdef Py_ssize_t row, group = -1
        cdef int32_t cluster, last_cluster = -1
        cdef int64_t day, last_day = 0
        cdef dict groups = {}
        for row in range(self.size):
            cluster = self.columns.series[self.places[row]].names[CLUSTER]
            day = INT64_MIN if times[row] == NO_TIME else _floor(times[row], DAY)
            if group < 0 or cluster != last_cluster or day != last_day:
                group = groups.setdefault((cluster, day), len(groups))
                if group == <Py_ssize_t>rows.size():
                    rows.resize(group + 1)
                    if group == 1:
                        for first in range(row):
                            rows[0].push_back(first)
                last_cluster, last_day = cluster, day
            if rows.size() > 1:
                rows[group].push_back(row)
        return [
            (
                _text(self.columns.columns[CLUSTER], number),
                None if when == NO_TIME else when,
                _array(rows[place]) if rows.size() > 1 else None,
            )
            for (number, when), place in groups.items()
        ]

    def names(self, int column, array.array rows):
        """Return the numbers of the names of some rows, which rows have one, and the names."""
        cdef Rows chosen = Rows(self.size, rows)
        cdef array.array numbers = array.clone(_INT32, chosen.size, False)
        cdef int32_t* out = <int32_t*>numbers.data.as_ints
        cdef Bits bits = Bits(chosen.size)
        cdef NameColumn* names = new NameColumn(self.columns.columns[column])
        cdef Py_ssize_t row
        cdef int32_t name
        try:
            for row in range(chosen.size):
                name = self.columns.series[self.places[chosen.at(row)]].names[column]
                if name < 0:
                    out[row] = 0
                    bits.clear(row)
                else:
                    out[row] = names.number(name)
            return numbers, bits.buffer(), bits.missing, _texts(names.dictionary)
        finally:
            del names

    def fields_of(self, array.array rows):
        """Return the numbers of the fields of some rows, and what these number."""
        cdef Rows chosen = Rows(self.size, rows)
        cdef array.array numbers = array.clone(_INT32, chosen.size, False)
        cdef int32_t* out = <int32_t*>numbers.data.as_ints
        cdef const int32_t* codes = <const int32_t*>self.fields.data.as_ints
        cdef vector[int32_t] known
        cdef list names = self.lines.table.fields, used = []
        cdef Py_ssize_t row
        cdef int32_t code
        known.resize(len(names), -1)
        for row in range(chosen.size):
            code = codes[chosen.at(row)]
            if not 0 <= code < <Py_ssize_t>known.size():
                raise IndexError(f"there is no field {code}")
            if known[code] < 0:
                known[code] = <int32_t>len(used)
                used.append(names[code])
            out[row] = known[code]
        return numbers, used

    def tags(self, array.array rows):
        """Return where the other tags of some rows begin and end, and their keys and values."""
        cdef Rows chosen = Rows(self.size, rows)
        cdef array.array places = array.clone(_INT32, chosen.size + 1, False)
        cdef int32_t* out = <int32_t*>places.data.as_ints
        cdef Texts keys, values
        cdef Series* series
        cdef Py_ssize_t row
        out[0] = 0
        for row in range(chosen.size):
            series = &self.columns.series[self.places[chosen.at(row)]]
            if series.tags < series.tags_end:
                keys.add(self.columns.keys, series.tags, series.tags_end)
                values.add(self.columns.values, series.tags, series.tags_end)
            out[row + 1] = <int32_t>keys.ends.size()
        return places, _texts(keys), _texts(values)

    def moments(self, array.array rows):
        """Return microseconds, the nanoseconds beyond, which rows have a time, and how many not."""
        cdef Rows chosen = Rows(self.size, rows)
        cdef const int64_t* times = <const int64_t*>self.times.data.as_voidptr
        cdef array.array micros = array.clone(_INT64, chosen.size, False)
        cdef array.array beyond = array.clone(_INT16, chosen.size, False)
        cdef int64_t* whole = <int64_t*>micros.data.as_voidptr
        cdef int16_t* rest = <int16_t*>beyond.data.as_voidptr
        cdef Bits bits = Bits(chosen.size)
        cdef int64_t time, last = NO_TIME, last_whole = 0
        cdef int16_t last_rest = 0
        cdef Py_ssize_t row
        for row in range(chosen.size):
            time = times[chosen.at(row)]
            if time != last:
                last, last_whole = time, _floor(time, 1000)
                last_rest = <int16_t>(time - last_whole * 1000)
            if time == NO_TIME:
                bits.clear(row)
                whole[row] = rest[row] = 0
            else:
                whole[row], rest[row] = last_whole, last_rest
        return micros, beyond, bits.buffer(), bits.missing

    def values(self, array.array rows):
        """Return the numbers of some rows, which rows have one, and how many do not."""
        cdef Rows chosen = Rows(self.size, rows)
        cdef const uint8_t* types = self.types.data.as_uchars
        cdef const double* numbers = <const double*>self.numbers.data.as_doubles
        cdef array.array found = self.numbers
        cdef Bits bits = Bits(chosen.size)
        cdef Py_ssize_t row
        if rows is not None:
            found = array.clone(_DOUBLE, chosen.size, False)
            for row in range(chosen.size):
                found.data.as_doubles[row] = numbers[chosen.at(row)]
        for row in range(chosen.size):
            if types[chosen.at(row)] == TEXT:
                bits.clear(row)
        return found, bits.buffer(), bits.missing

    def exact_of(self, int kind, array.array rows):
        """Return the integers of one type, which rows have one, and how many do not."""
        cdef Rows chosen = Rows(self.size, rows)
        cdef const uint8_t* types = self.types.data.as_uchars
        cdef const int64_t* exact = <const int64_t*>self.exact.data.as_voidptr
        cdef array.array found = array.clone(_INT64, chosen.size, False)
        cdef int64_t* out = <int64_t*>found.data.as_voidptr
        cdef Bits bits = Bits(chosen.size)
        cdef Py_ssize_t row, place
        for row in range(chosen.size):
            place = chosen.at(row)
            out[row] = exact[place]
            if types[place] != kind:
                bits.clear(row)
        return found, bits.buffer(), bits.missing

    def booleans(self, array.array rows):
        """Return a bit for each boolean, which rows have one, and how many do not."""
        cdef Rows chosen = Rows(self.size, rows)
        cdef const uint8_t* types = self.types.data.as_uchars
        cdef const int64_t* exact = <const int64_t*>self.exact.data.as_voidptr
        cdef Bits found = Bits(chosen.size), bits = Bits(chosen.size)
        cdef Py_ssize_t row, place
        for row in range(chosen.size):
            place = chosen.at(row)
            if types[place] != BOOL:
                bits.clear(row)
            elif not exact[place]:
                found.clear(row)
        return found.bits, bits.buffer(), bits.missing

    def texts(self, array.array rows):
        """Return texts, an empty one where a row has none, which rows have one, and how many not."""
        cdef Rows chosen = Rows(self.size, rows)
        cdef const uint8_t* types = self.types.data.as_uchars
        cdef const int64_t* exact = <const int64_t*>self.exact.data.as_voidptr
        strings = self.lines.texts
        cdef bytes payload = strings.payload, text
        cdef const char* begin = PyBytes_AS_STRING(payload)
        cdef array.array spans = strings.spans
        cdef const int64_t* places = <const int64_t*>spans.data.as_voidptr
        cdef Py_ssize_t count = len(spans) // 2, row, place
        cdef Bits bits = Bits(chosen.size)
        cdef Texts found
        cdef int64_t number, start, end
        for row in range(chosen.size):
            place = chosen.at(row)
            if types[place] != TEXT:
                bits.clear(row)
                found.add(begin, 0)
                continue
            number = exact[place]
            if not 0 <= number < count:
                raise IndexError(f"row {place} has no text")
            start, end = places[2 * number], places[2 * number + 1]
            if (
                0 <= start <= end <= PyBytes_GET_SIZE(payload)
                and memchr(begin + start, 92, end - start) == NULL  # a backslash
            ):
                found.add(begin + start, end - start)
            else:
                text = strings[number].encode()
                found.add(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        return _texts(found), bits.buffer(), bits.missing


cdef _array(const vector[int64_t]& numbers):
    cdef array.array found = array.clone(_INT64, numbers.size(), False)
    if numbers.size():
        memcpy(found.data.as_voidptr, numbers.data(), numbers.size() * sizeof(int64_t))
    return found


cdef _texts(const Texts& texts):
    """Return where each text begins, and the last one ends, and their bytes."""
    if texts.bytes.size() > INT32_MAX:
        raise OverflowError("texts of more than 2 GiB in one column")
    cdef array.array places = array.clone(_INT32, texts.ends.size() + 1, False)
    places.data.as_ints[0] = 0
    if texts.ends.size():
        memcpy(places.data.as_ints + 1, texts.ends.data(), texts.ends.size() * sizeof(int32_t))
    return places, PyBytes_FromStringAndSize(texts.bytes.data(), texts.bytes.size())


cdef _text(const Names& names, int32_t number):
    """Return one name; None for none."""
    cdef size_t size = 0
    if number < 0:
        return None
    cdef const char* text = names.text(number, size)
    return PyBytes_FromStringAndSize(text, size).decode()
