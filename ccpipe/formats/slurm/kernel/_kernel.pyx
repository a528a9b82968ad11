# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled reader of plain rows: lines that all have as many delimiters as the header.

Each field of a record has a column, which reads the usual shapes of its cells itself and hands all
others to the same functions as the Python code. Rows of one job follow each other, so that a cell
is compared with the one above it first.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.math cimport rint
from libc.stdint cimport int64_t
from libc.string cimport memchr, memcmp
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

cdef extern from "Python.h":
    str PyUnicode_DecodeUTF8(const char* text, Py_ssize_t size, const char* errors)
    object PyObject_Vectorcall(object callable, PyObject** args, size_t count, PyObject* names)
    PyObject* PyDict_GetItemWithError(object mapping, object key) except? NULL

cdef int64_t SECOND = 1_000_000_000
cdef int64_t EXACT = 1 << 53
"""Up to which a double holds each whole number."""
cdef Py_ssize_t MAX_DIGITS = 15
cdef Py_ssize_t MAX_ID = 10
cdef Py_ssize_t HOUR = 14
"""Characters of ``2026-11-20T10:``."""

ctypedef const char* Place


cdef inline int pair(const char* text) noexcept nogil:
    """Read two digits; -1 where they are none."""
    cdef unsigned int tens = <unsigned char> text[0] - 48, ones = <unsigned char> text[1] - 48
    return <int> (tens * 10 + ones) if tens < 10 and ones < 10 else -1


cdef inline Py_ssize_t digits(const char* text, Py_ssize_t size, int64_t* number) noexcept nogil:
    """Add leading digits to a number; return how many they are."""
    cdef Py_ssize_t at = 0
    cdef unsigned int digit
    while at < size and at <= MAX_DIGITS:
        digit = <unsigned char> text[at] - 48
        if digit > 9:
            break
        number[0] = number[0] * 10 + digit
        at += 1
    return at


cdef inline str decode(const char* text, Py_ssize_t size):
    return PyUnicode_DecodeUTF8(text, size, NULL)


cdef class Value:
    """The same value in each row."""

    cdef object value

    def __init__(self, value=None):
        self.value = value

    cdef void begin(self) noexcept:
        """Forget the row above."""

    cdef object next(self, const Place* bounds):
        """Return the value of a row whose cells begin at these bounds, less their delimiters."""
        return self.value


cdef class Cells(Value):
    """Texts, or what a function makes of them; None where they are empty."""

    cdef Py_ssize_t place, size
    cdef const char* above
    cdef object read

    def __init__(self, place, read):
        self.place = place
        self.read = read
        self.begin()

    cdef void begin(self) noexcept:
        self.size = -1

    cdef object next(self, const Place* bounds):
        cdef const char* text = bounds[self.place]
        cdef Py_ssize_t size = bounds[self.place + 1] - text - 1
        if size == self.size and memcmp(text, self.above, size) == 0:
            return self.value
        self.size = -1
        self.value = self.parse(text, size)
        self.above, self.size = text, size
        return self.value

    cdef object parse(self, const char* text, Py_ssize_t size):
        if size == 0:
            return None
        cell = decode(text, size)
        return cell if self.read is None else self.read(cell)


cdef class Memo(Cells):
    """Texts of which few differ."""

    cdef object parse(self, const char* text, Py_ssize_t size):
        cell = decode(text, size)
        cdef PyObject* known = PyDict_GetItemWithError(self.read, cell)
        return self.read[cell] if known == NULL else <object> known


cdef class Seconds(Cells):
    """Durations, mostly ``HH:MM:SS`` and ``MM:SS.mmm``."""

    cdef object parse(self, const char* text, Py_ssize_t size):
        cdef int first, second, third
        cdef int64_t thousandths = 0
        if (size == 8 or size == 9) and text[2] == b":":
            first, second = pair(text), pair(text + 3)
            if first >= 0 and second >= 0:
                if size == 8 and text[5] == b":":
                    third = pair(text + 6)
                    if third >= 0:
                        return (first * 60 + second) * 60 + third
                if size == 9 and text[5] == b"." and digits(text + 6, 3, &thousandths) == 3:
                    return <double> ((first * 60 + second) * 1000 + thousandths) / 1000.0
        return Cells.parse(self, text, size)


cdef class Volume(Cells):
    """Bytes, mostly with a letter and up to two decimals."""

    cdef object parse(self, const char* text, Py_ssize_t size):
        cdef int64_t number = 0, factor = 1, scale = 1
        cdef Py_ssize_t at = digits(text, size, &number), decimals = 0
        if at and at + 1 < size and text[at] == b".":
            decimals = digits(text + at + 1, size - at - 1, &number)
            if decimals == 0 or at + decimals > MAX_DIGITS:
                return Cells.parse(self, text, size)
            at += 1 + decimals
            for _ in range(decimals):
                scale *= 10
        if 0 < at == size - 1:
            factor = scale_of(text[at])
            at += factor > 0
        if at == 0 or at != size or number >= EXACT // factor:
            return Cells.parse(self, text, size)
        if scale == 1:
            return number * factor
        return <int64_t> rint(<double> (number * factor) / <double> scale)


cdef int64_t scale_of(char letter) noexcept nogil:
    if letter == b"K":
        return 1 << 10
    if letter == b"M":
        return 1 << 20
    if letter == b"G":
        return 1 << 30
    return <int64_t> 1 << 40 if letter == b"T" else 0


cdef class Time(Cells):
    """Local times, of which the hours are known once one in them was read."""

    cdef object hours
    cdef const char* hour
    cdef int64_t hour_begin

    def __init__(self, place, read, hours):
        self.hours = hours
        Cells.__init__(self, place, read)

    cdef void begin(self) noexcept:
        self.size = -1
        self.hour = NULL

    cdef object parse(self, const char* text, Py_ssize_t size):
        cdef int minute, second
        cdef PyObject* known
        if size != HOUR + 5 or text[HOUR + 2] != b":":
            return Cells.parse(self, text, size)
        minute, second = pair(text + HOUR), pair(text + HOUR + 3)
        if not (0 <= minute < 60 and 0 <= second < 60):
            return Cells.parse(self, text, size)
        if self.hour == NULL or memcmp(text, self.hour, HOUR):
            known = PyDict_GetItemWithError(self.hours, decode(text, HOUR))
            if known == NULL:
                return Cells.parse(self, text, size)
            self.hour, self.hour_begin = text, <object> known
        return self.hour_begin + (minute * 60 + second) * SECOND


cdef class Id(Value):
    """Numbers of jobs and their steps: one cell, or two that are alike but for arrays."""

    cdef Py_ssize_t first, second
    cdef object read, kind

    def __init__(self, places, read, kind):
        self.first, self.second = places[0], places[len(places) - 1]
        self.read = read
        self.kind = kind

    cdef object next(self, const Place* bounds):
        cdef const char* text = bounds[self.first]
        cdef const char* other = bounds[self.second]
        cdef Py_ssize_t size = bounds[self.first + 1] - text - 1
        cdef Py_ssize_t length = bounds[self.second + 1] - other - 1
        cdef int64_t job = 0
        cdef Py_ssize_t at
        if size == length and memcmp(text, other, size) == 0:
            at = digits(text, size, &job)
            if 0 < at <= MAX_ID:
                if at == size:
                    return self.kind(job)
                if text[at] == b"." and is_word(text + at + 1, size - at - 1):
                    return self.kind(job, decode(text + at + 1, size - at - 1))
        if self.first == self.second:
            return self.read(decode(text, size))
        return self.read(decode(text, size), decode(other, length))


cdef cbool is_word(const char* text, Py_ssize_t size) noexcept nogil:
    """Whether these are ASCII letters and digits, at least one."""
    cdef Py_ssize_t at
    cdef unsigned char c
    for at in range(size):
        c = text[at]
        if not (b"0" <= c <= b"9" or b"a" <= (c | 32) <= b"z"):
            return False
    return size > 0


cdef class Rows:
    """Reads plain rows into records, each field by its column."""

    cdef object record
    cdef list columns
    cdef Py_ssize_t width
    cdef char delimiter
    cdef vector[Place] bounds

    def __init__(self, record, columns, width, delimiter):
        self.record = record
        self.columns = list(columns)
        self.width = width
        self.delimiter = delimiter
        self.bounds.resize(width + 1)

    def read(self, bytes payload, Py_ssize_t end):
        """Return the records of the lines up to `end`; None where one is not plain.

        Raises what the functions of the columns raise, and UnicodeDecodeError.
        """
        cdef const char* text = PyBytes_AS_STRING(payload)
        cdef const char* stop = text + min(end, PyBytes_GET_SIZE(payload))
        cdef list found = []
        cdef vector[PyObject*] cells
        cdef Value column
        for column in self.columns:
            column.begin()
        while text < stop:
            text = self.split(text, stop)
            if text == NULL:
                return None
            found.append(self.row(cells))
        return found

    cdef const char* split(self, const char* text, const char* stop) noexcept:
        """Find the cells of a line and return where the next one begins; NULL where it is odd."""
        cdef const char* end = <const char*> memchr(text, b"\n", stop - text)
        cdef Py_ssize_t count = 0
        if end == NULL:
            return NULL
        self.bounds[0] = text
        while True:
            text = <const char*> memchr(text, self.delimiter, end - text)
            if text == NULL:
                break
            text += 1
            count += 1
            if count == self.width:
                return NULL
            self.bounds[count] = text
        self.bounds[self.width] = end + 1
        return end + 1 if count == self.width - 1 else NULL

    cdef object row(self, vector[PyObject*]& cells):
        cdef Value column
        cdef PyObject* cell
        cells.clear()
        try:
            for column in self.columns:
                value = column.next(self.bounds.data())
                Py_INCREF(value)
                cells.push_back(<PyObject*> value)
            return PyObject_Vectorcall(self.record, cells.data(), cells.size(), NULL)
        finally:
            for cell in cells:
                Py_DECREF(<object> cell)
