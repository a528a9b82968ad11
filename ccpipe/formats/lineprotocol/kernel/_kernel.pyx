# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled kernel: runs ``scan.hpp`` and adds its rows to ``Lines``."""

cimport cython
from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError, PyDict_Next
from cpython.object cimport PyObject
from libc.math cimport isfinite
from libc.string cimport memchr, memcpy
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

import array as arrays
import os

from ccpipe.errors import DataError
from ccpipe.formats.lineprotocol.precision import UNIT_NUMBERS, UNITS
from ccpipe.message import Message, Uint


cdef extern from "scan.hpp" namespace "ccpipe" nogil:
    struct Seed:
        uint64_t a
        uint64_t b
    struct Row:
        int64_t start
        int64_t end
        int64_t time
        int64_t exact
        double number
        int32_t series
        int32_t field
        uint8_t type
    enum What:
        SERIES
        FIELD
    enum Type:
        TEXT
    ctypedef int32_t (*Resolve)(void* table, What what, const char* raw, size_t size) noexcept
    struct Text:
        int64_t start
        int64_t end
    cdef cppclass CppEncodings "ccpipe::Encodings":
        CppEncodings(const Seed&) except +
        size_t series()
        size_t entries()
        size_t bytes()
        cbool has_room(size_t, size_t)
        int32_t known(const char*, size_t)
        int32_t intern(const char*, size_t) except +
        void set_alias(const char*, size_t, int32_t code) except +
        cbool key(int32_t code, string& key) except +
    cdef cppclass Scan:
        Scan(CppEncodings&, const Seed&, cbool influx, Resolve, void*) except +
        vector[Row] rows
        vector[Text] texts
        unsigned units
        cbool bare_points
        unsigned types
        int32_t field
        cbool dense()
        void begin(const char* payload, size_t size, size_t position, int unit)
        size_t position()
        void run() except +
    enum:
        FLOAT
        INT
        UINT
        BOOL
    const int64_t NO_TIME
    void unescape(const char*, const char*, cbool influx, string& out) except +


cdef extern from "write.hpp" namespace "ccpipe":
    cdef cppclass Writer:
        void reserve(size_t) except +
        const char* data()
        size_t size()
        void truncate(size_t)
        void raw(const char*, size_t) except +
        void raw(char) except +
        cbool name(const char*, size_t, cbool is_measurement) except +
        void text(const char*, size_t) except +
        void number(double) except +
        void integer[T](T, char suffix) except +
        void boolean(cbool) except +
        void time(int64_t, int unit) except +

cdef extern from "samples.hpp" namespace "ccpipe" nogil:
    struct Pair "ccpipe::Pairs::Pair":
        int32_t left
        int32_t right
    cdef cppclass Pairs:
        size_t size()
        Pair operator[](int32_t)
    cdef cppclass Samples:
        Pairs pairs
        void add(int32_t series, int32_t field, int64_t milliseconds, double value) except +
        void order() except +
        void write(const char* labels, size_t size, string& out) except +

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int* overflow) except? -1
    Py_ssize_t PyObject_LengthHint(object, Py_ssize_t default) except -1


cdef Py_ssize_t RELEASE = 64 * 1024  # bytes from which the interpreter lock is released

cdef Seed _seed
_seed.a = int.from_bytes(os.urandom(8), "little")
_seed.b = int.from_bytes(os.urandom(8), "little")

cdef array.array _INT32 = arrays.array("i")
cdef array.array _UINT8 = arrays.array("B")
cdef array.array _DOUBLE = arrays.array("d")
cdef array.array _INT64 = arrays.array("q")


ROW_BYTES = sizeof(Row)


def unpack(list parts not None):
    """Return series, fields, types, numbers, exact values and times of rows of ``Scanner.decode``.

    One pass makes all of them: to fetch a row from memory takes longer than to take it apart.
    """
    cdef Py_ssize_t size = sum(map(len, parts)) // sizeof(Row), at = 0, end
    cdef array.array series = array.clone(_INT32, size, False)
    cdef array.array fields = array.clone(_INT32, size, False)
    cdef array.array types = array.clone(_UINT8, size, False)
    cdef array.array numbers = array.clone(_DOUBLE, size, False)
    cdef array.array exact = array.clone(_INT64, size, False)
    cdef array.array times = array.clone(_INT64, size, False)
    cdef const Row* row
    cdef bytes rows
    for rows in parts:
        row = <const Row*>PyBytes_AS_STRING(rows)
        end = at + PyBytes_GET_SIZE(rows) // <Py_ssize_t>sizeof(Row)
        while at < end:
            series.data.as_ints[at] = row.series
            fields.data.as_ints[at] = row.field
            types.data.as_uchars[at] = row.type
            numbers.data.as_doubles[at] = row.number
            (<int64_t*>exact.data.as_voidptr)[at] = row.exact
            (<int64_t*>times.data.as_voidptr)[at] = row.time
            row += 1
            at += 1
    return series, fields, types, numbers, exact, times


def positions(bytes rows not None, int64_t offset, bint is_end):
    """Return where the lines of such rows begin or end, in a payload whose part is at `offset`."""
    cdef Py_ssize_t at, size = PyBytes_GET_SIZE(rows) // <Py_ssize_t>sizeof(Row)
    cdef const Row* row = <const Row*>PyBytes_AS_STRING(rows)
    cdef array.array found = array.clone(_INT64, size, False)
    for at in range(size):
        (<int64_t*>found.data.as_voidptr)[at] = offset + (row[at].end if is_end else row[at].start)
    return found


cdef class Encodings:
    """The encodings of the series of one table, and the numbers that they mean."""

    cdef CppEncodings* all

    def __cinit__(self):
        self.all = new CppEncodings(_seed)

    def __dealloc__(self):
        del self.all

    def __len__(self):
        return self.all.entries()

    @property
    def series(self):
        """How many series there are."""
        return self.all.series()

    @property
    def bytes(self):
        """What they take in memory, roughly."""
        return self.all.bytes()

    def has_room(self, size_t count, size_t size):
        """Say whether there are fewer than `count` encodings in less than `size` bytes."""
        return self.all.has_room(count, size)

    def get(self, bytes raw):
        """Return the number of a series by one of its encodings, or None."""
        cdef int32_t code = self.all.known(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        return None if code < 0 else code

    def __contains__(self, bytes raw):
        return self.all.known(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw)) >= 0

    def intern(self, bytes key):
        """Return the number of a series by its canonical encoding, adding a new one."""
        return self.all.intern(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))

    def alias(self, bytes raw, int32_t code):
        """Remember another encoding of a series."""
        self.all.set_alias(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw), code)

    def key(self, int32_t code):
        """Return the canonical encoding of a series; raises IndexError."""
        cdef string key
        if not self.all.key(code, key):
            raise IndexError(f"there is no series {code}")
        return <bytes>key


def shifted(array.array column, int64_t by, array.array types = None, int only = 0):
    """Return a column with `by` added: to all rows, or to those whose type is `only`."""
    cdef Py_ssize_t row, size = len(column)
    cdef array.array moved = array.clone(_INT64, size, False)
    cdef const int64_t* before = <const int64_t*>column.data.as_voidptr
    cdef int64_t* after = <int64_t*>moved.data.as_voidptr
    if column.typecode != "q" or (types is not None and len(types) != size):
        raise ValueError("not a column of 64-bit integers, or of another length")
    for row in range(size):
        after[row] = before[row]
        if types is None or types.data.as_uchars[row] == only:
            after[row] += by
    return moved


def kept(array.array column not None, bytes flags not None):
    """Return the cells of a column whose flags are not 0."""
    cdef Py_ssize_t row, count = 0, size = len(column), width = column.ob_descr.itemsize
    cdef const char* flag = PyBytes_AS_STRING(flags)
    cdef const char* cell = column.data.as_chars
    if PyBytes_GET_SIZE(flags) != size:
        raise ValueError("not a flag for each row")
    for row in range(size):
        count += flag[row] != 0
    cdef array.array found = array.clone(column, count, False)
    cdef char* to = found.data.as_chars
    for row in range(size):
        if flag[row]:
            memcpy(to, cell + row * width, width)
            to += width
    return found


def keeps_lines_whole(array.array starts not None, bytes flags not None):
    """Say whether of each line all rows are kept or none; None where `starts` do not ascend."""
    cdef Py_ssize_t row, size = len(starts)
    cdef const char* flag = PyBytes_AS_STRING(flags)
    cdef const int64_t* start = <const int64_t*>starts.data.as_voidptr
    cdef bint whole = True
    if starts.typecode != "q" or PyBytes_GET_SIZE(flags) != size:
        raise ValueError("not a column of 64-bit integers with a flag for each row")
    for row in range(1, size):
        if start[row] < start[row - 1]:
            return None
        if start[row] == start[row - 1] and (flag[row] != 0) != (flag[row - 1] != 0):
            whole = False
    return whole


include "decode.pxi"
include "encode.pxi"
include "join.pxi"
include "parts.pxi"
