# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled kernel: runs ``scan.hpp`` and adds its rows to ``Lines``."""

cimport cython
from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject
from libc.math cimport isfinite
from libc.string cimport memchr, memcmp, memcpy
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

import array as arrays
import os

from ccpipe.formats.lineprotocol.series import DuplicateTag, Series
from ccpipe.message import Uint


cdef extern from "scan.hpp" namespace "ccpipe" nogil:
    enum Result:
        DONE
        ODD
    enum What:
        SERIES
        FIELD
    enum Type:
        TEXT
    ctypedef int32_t (*Resolve)(void* table, What what, const char* raw, size_t size) noexcept
    struct Seed:
        uint64_t a
        uint64_t b
    struct Row:
        int64_t exact
        uint8_t type
    struct Text:
        int64_t start
        int64_t end
    cdef cppclass Scan:
        Scan(const Seed&, cbool influx, Resolve, void*) except +
        vector[Row] rows
        vector[Text] texts
        unsigned units
        cbool bare_points
        void begin(const char* payload, size_t size, size_t position, int unit)
        size_t position()
        Result run() except +
        void columns(int32_t*, int32_t*, uint8_t*, double*, int64_t*, int64_t*, int64_t*, int64_t*)
    enum:
        FLOAT
        INT
        UINT
        BOOL
    void unescape(const char*, const char*, cbool influx, string& out) except +


cdef extern from "write.hpp" namespace "ccpipe" nogil:
    cdef cppclass Writer:
        string out
        void raw(const char*, size_t) except +
        void raw(char) except +
        cbool name(const char*, size_t, cbool is_measurement) except +
        void text(const char*, size_t) except +
        void number(double) except +
        void integer[T](T, char suffix) except +
        void boolean(cbool) except +
        void time(int64_t, int unit) except +

cdef extern from "samples.hpp" namespace "ccpipe" nogil:
    struct Pair "ccpipe::Samples::Pair":
        int32_t series
        int32_t field
    cdef cppclass Samples:
        vector[Pair] pairs
        void add(int32_t series, int32_t field, int64_t milliseconds, double value) except +
        void order() except +
        void write(const char* labels, size_t size, string& out) except +

cdef extern from "Python.h":
    PyObject* PyDict_SetDefault(object, object, object) except NULL
    long long PyLong_AsLongLongAndOverflow(object, int* overflow) except? -1


cdef Py_ssize_t RELEASE = 64 * 1024  # bytes from which the interpreter lock is released

cdef Seed _seed
_seed.a = int.from_bytes(os.urandom(8), "little")
_seed.b = int.from_bytes(os.urandom(8), "little")

cdef array.array _INT32 = arrays.array("i")
cdef array.array _UINT8 = arrays.array("B")
cdef array.array _DOUBLE = arrays.array("d")
cdef array.array _INT64 = arrays.array("q")


cdef int32_t _resolve(void* scanner, What what, const char* raw, size_t size) noexcept with gil:
    try:
        return (<Scanner>scanner).number_of(what, PyBytes_FromStringAndSize(raw, size))
    except (UnicodeDecodeError, DuplicateTag):
        return -1
    except BaseException as error:
        (<Scanner>scanner).error = error
        return -1


def blank(kind, texts, bytes payload, table):
    """Make ``Lines``, of the classes `kind` and `texts`, without columns: ``Scanner.read`` sets them."""
    lines = kind.__new__(kind)
    lines.payload = payload
    lines.table = table
    lines.series = None
    lines.texts = strings = texts.__new__(texts)
    strings.payload = payload
    strings.unescape = table.grammar.unescape
    strings.spans = array.clone(_INT64, 0, False)
    strings.own = []
    lines.rejected = []
    lines.precision = None
    lines.verbatim = True
    lines.bare_points = False
    return lines


cdef canonical_series(bytes raw, dict words):
    """Decode a series whose encoding is canonical and without escapes; None for any other."""
    cdef const char* p = PyBytes_AS_STRING(raw)
    cdef const char* end = p + PyBytes_GET_SIZE(raw)
    cdef const char* before = NULL
    cdef const char* equals
    cdef const char* stop
    cdef Py_ssize_t size = 0, shorter
    cdef int order
    cdef dict tags = {}
    if memchr(p, b"\\", end - p) != NULL or not raw.isascii():
        return None
    stop = <const char*>memchr(p, b",", end - p)
    name = word(p, end if stop == NULL else stop, words)
    while stop != NULL:
        p = stop + 1
        equals = <const char*>memchr(p, b"=", end - p)
        if equals == NULL:
            return None
        if before != NULL:
            shorter = min(size, equals - p)
            order = memcmp(before, p, shorter)
            if order > 0 or (order == 0 and size >= equals - p):
                return None
        before, size = p, equals - p
        stop = <const char*>memchr(equals, b",", end - equals)
        key = word(p, equals, words)
        tags[key] = word(equals + 1, end if stop == NULL else stop, words)
    return Series(name, tags, raw)


cdef word(const char* start, const char* end, dict words):
    text = PyUnicode_DecodeUTF8(start, end - start, NULL)
    return <object>PyDict_SetDefault(words, text, text)


cdef class Scanner:
    """Reads the usual lines of payloads, with one series table."""

    cdef Scan* scan
    cdef object table, error

    def __cinit__(self, influx):
        self.scan = new Scan(_seed, influx, _resolve, <void*>self)

    def __dealloc__(self):
        del self.scan

    @property
    def units(self):
        """The units of the timestamps that the latest ``read`` met, as bits: s, ms, us, ns, none."""
        return self.scan.units

    @property
    def bare_points(self):
        """Whether the latest ``read`` met a number such as ``.5`` or ``1.``."""
        return self.scan.bare_points

    def read(self, lines, Py_ssize_t position, int unit):
        """Add the rows of usual lines from `position` on; return where the first other line begins."""
        cdef bytes payload = lines.payload
        cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
        self.table = lines.table
        self.scan.begin(PyBytes_AS_STRING(payload), size, position, unit)
        try:
            if size - position < RELEASE:
                self.scan.run()
            else:
                with nogil:
                    self.scan.run()
        finally:
            self.table = None
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.add_rows(lines)
        return self.scan.position()

    cdef int32_t number_of(self, What what, bytes raw) except? -2:
        if what == SERIES:
            code = self.table.codes.get(raw)
            if code is not None:
                return code
            series = canonical_series(raw, self.table.words())
            return self.table.add(raw) if series is None else self.table.code_of(series)
        code = self.table.field_codes.get(raw)
        return self.table.add_field(raw) if code is None else code

    cdef add_texts(self, texts):
        cdef Py_ssize_t base = len(texts), size = self.scan.texts.size(), number
        cdef array.array spans = array.clone(_INT64, 2 * size, False)
        cdef int64_t* places = <int64_t*>spans.data.as_voidptr
        cdef size_t row
        for number in range(size):
            places[2 * number] = self.scan.texts[number].start
            places[2 * number + 1] = self.scan.texts[number].end
        texts.spans.extend(spans)
        if base:
            for row in range(self.scan.rows.size()):
                if self.scan.rows[row].type == TEXT:
                    self.scan.rows[row].exact += base

    cdef add_rows(self, lines):
        cdef Py_ssize_t size = self.scan.rows.size()
        if self.scan.texts.size():
            self.add_texts(lines.texts)
        cdef array.array series = array.clone(_INT32, size, False)
        cdef array.array fields = array.clone(_INT32, size, False)
        cdef array.array types = array.clone(_UINT8, size, False)
        cdef array.array numbers = array.clone(_DOUBLE, size, False)
        cdef array.array exact = array.clone(_INT64, size, False)
        cdef array.array times = array.clone(_INT64, size, False)
        cdef array.array starts = array.clone(_INT64, size, False)
        cdef array.array ends = array.clone(_INT64, size, False)
        self.scan.columns(
            <int32_t*>series.data.as_ints, <int32_t*>fields.data.as_ints,
            types.data.as_uchars, numbers.data.as_doubles,
            <int64_t*>exact.data.as_voidptr, <int64_t*>times.data.as_voidptr,
            <int64_t*>starts.data.as_voidptr, <int64_t*>ends.data.as_voidptr,
        )
        if lines.series is None:
            lines.series, lines.fields, lines.types, lines.numbers = series, fields, types, numbers
            lines.exact, lines.times, lines.starts, lines.ends = exact, times, starts, ends
        elif size:
            lines.series.extend(series)
            lines.fields.extend(fields)
            lines.types.extend(types)
            lines.numbers.extend(numbers)
            lines.exact.extend(exact)
            lines.times.extend(times)
            lines.starts.extend(starts)
            lines.ends.extend(ends)


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


def passthrough(lines):
    """Join the original lines of the rows, each once; the payload itself where it is just these."""
    cdef bytes payload = lines.payload
    cdef const char* text = PyBytes_AS_STRING(payload)
    cdef Py_ssize_t length = PyBytes_GET_SIZE(payload)
    cdef array.array begins = lines.starts
    cdef array.array stops = lines.ends
    cdef const int64_t* starts = <const int64_t*>begins.data.as_voidptr
    cdef const int64_t* ends = <const int64_t*>stops.data.as_voidptr
    cdef Py_ssize_t row, size = len(begins)
    cdef int64_t last = -1, total = 0
    cdef cbool dense = True
    if len(stops) != size:
        raise ValueError("the columns differ in length")
    for row in range(size):
        if starts[row] != last:
            last = starts[row]
            if not 0 <= last <= ends[row] <= length:
                raise ValueError(f"row {row} does not lie in the payload")
            dense = dense and last == total and ends[row] < length and text[ends[row]] == b"\n"
            total += ends[row] - last + 1
    if dense and total == length:
        return payload
    cdef bytes out = PyBytes_FromStringAndSize(NULL, total)
    cdef char* place = PyBytes_AS_STRING(out)
    last = -1
    for row in range(size):
        if starts[row] != last:
            last = starts[row]
            memcpy(place, text + last, ends[row] - last)
            place += ends[row] - last
            place[0] = b"\n"
            place += 1
    return out


@cython.boundscheck(True)
def encode_lines(lines, dict fields, int unit):
    """Encode rows canonically; `fields` has the encodings of their fields, by number."""
    cdef const int32_t* series = <const int32_t*>(<array.array?>lines.series).data.as_ints
    cdef const int32_t* field = <const int32_t*>(<array.array?>lines.fields).data.as_ints
    cdef const uint8_t* types = (<array.array?>lines.types).data.as_uchars
    cdef const double* numbers = (<array.array?>lines.numbers).data.as_doubles
    cdef const int64_t* exact = <const int64_t*>(<array.array?>lines.exact).data.as_voidptr
    cdef const int64_t* times = <const int64_t*>(<array.array?>lines.times).data.as_voidptr
    cdef int64_t start, end
    cdef string plain
    cdef bytes payload = lines.texts.payload
    cdef list own = lines.texts.own
    cdef array.array spans = lines.texts.spans
    cdef const int64_t* places = <const int64_t*>spans.data.as_voidptr
    cdef Py_ssize_t texts = len(spans) // 2
    cdef cbool influx = len(lines.texts.unescape) == 2
    cdef list keys = lines.table.series
    cdef Writer writer
    cdef Py_ssize_t row, size = same_length(lines)
    cdef int32_t last = -1
    cdef bytes name = b""
    writer.out.reserve(128 * size)
    for row in range(size):
        entry = keys[series[row]]
        if not isinstance(entry, Series):
            raise TypeError("the table has something that is not a series")
        write_bytes(writer, <bytes?>(<tuple>entry)[2])
        writer.raw(b" ")
        if field[row] != last:
            last = field[row]
            name = fields[last]
        write_bytes(writer, name)
        writer.raw(b"=")
        if types[row] == FLOAT:
            writer.number(numbers[row])
        elif types[row] == INT:
            writer.integer(exact[row], b"i")
        elif types[row] == UINT:
            writer.integer(<uint64_t>exact[row], b"u")
        elif types[row] == BOOL:
            writer.boolean(exact[row] != 0)
        else:
            if not 0 <= exact[row] < texts:
                raise IndexError(f"row {row} has no text")
            start, end = places[2 * exact[row]], places[2 * exact[row] + 1]
            if start < 0:
                write_text(writer, own[end])
            elif start <= end <= PyBytes_GET_SIZE(payload):
                unescape(
                    PyBytes_AS_STRING(payload) + start, PyBytes_AS_STRING(payload) + end,
                    influx, plain,
                )
                writer.text(plain.data(), plain.size())
            else:
                raise IndexError(f"the text of row {row} does not lie in the payload")
        writer.time(times[row], unit)
        writer.raw(b"\n")
    return PyBytes_FromStringAndSize(writer.out.data(), writer.out.size())


def encode_messages(messages, int unit, in_python):
    """Encode messages; one that is unusual is left to `in_python`, which encodes one message."""
    cdef Writer writer
    cdef size_t before
    for message in messages:
        before = writer.out.size()
        if not write_message(writer, message, unit):
            writer.out.resize(before)
            write_bytes(writer, in_python(message))
    return PyBytes_FromStringAndSize(writer.out.data(), writer.out.size())


cdef int write_bytes(Writer& writer, bytes text) except -1:
    writer.raw(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return 0


cdef int write_text(Writer& writer, str text) except -1:
    cdef Py_ssize_t size
    cdef const char* utf8 = PyUnicode_AsUTF8AndSize(text, &size)
    writer.text(utf8, size)
    return 0


cdef cbool write_name(Writer& writer, object text, cbool is_measurement) except? False:
    cdef Py_ssize_t size
    if type(text) is not str:
        return False
    cdef const char* utf8 = PyUnicode_AsUTF8AndSize(text, &size)
    return writer.name(utf8, size, is_measurement)


cdef cbool write_message(Writer& writer, message, int unit) except? False:
    try:
        if not write_name(writer, message.name, True):
            return False
        tags = message.tags
        if type(tags) is not dict or not write_tags(writer, <dict>tags):
            return False
        writer.raw(b" ")
        if not write_name(writer, message.field, False):
            return False
        writer.raw(b"=")
        if not write_value(writer, message.value):
            return False
        time = message.time
        if time is not None:
            if not isinstance(time, int) or not -_TOP < time < _TOP:
                return False
            writer.time(time, unit)
        writer.raw(b"\n")
    except UnicodeEncodeError:
        return False
    return True


_TOP = 2**63


cdef cbool write_tags(Writer& writer, dict tags) except? False:
    cdef Py_ssize_t place = 0
    cdef PyObject* key
    cdef PyObject* value
    cdef object before = None
    while PyDict_Next(tags, &place, &key, &value):
        if type(<object>key) is not str or type(<object>value) is not str:
            return False
        if before is not None and <str>before >= <str><object>key:
            return write_tags(writer, {name: tags[name] for name in sorted(tags)})
        before = <object>key
    place = 0
    while PyDict_Next(tags, &place, &key, &value):
        if not <str><object>value:
            continue
        writer.raw(b",")
        if not write_name(writer, <object>key, False):
            return False
        writer.raw(b"=")
        if not write_name(writer, <object>value, False):
            return False
    return True


cdef cbool write_value(Writer& writer, value) except? False:
    cdef int overflow = 0
    cdef long long number
    if type(value) is float:
        if not isfinite(<double>value):
            return False
        writer.number(<double>value)
    elif type(value) is bool:
        writer.boolean(value is True)
    elif type(value) is int:
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow:
            return False
        writer.integer(<int64_t>number, b"i")
    elif type(value) is Uint:
        if not 0 <= value < 2**64:
            return False
        writer.integer(<uint64_t>value, b"u")
    elif type(value) is str:
        write_text(writer, value)
    else:
        return False
    return True


@cython.cdivision(False)
def write_request(lines, labels_of):
    """Encode numbers as a Prometheus ``WriteRequest``; see ``formats.prometheus``."""
    cdef const int32_t* series = <const int32_t*>(<array.array?>lines.series).data.as_ints
    cdef const int32_t* fields = <const int32_t*>(<array.array?>lines.fields).data.as_ints
    cdef const uint8_t* types = (<array.array?>lines.types).data.as_uchars
    cdef const double* numbers = (<array.array?>lines.numbers).data.as_doubles
    cdef const int64_t* times = <const int64_t*>(<array.array?>lines.times).data.as_voidptr
    cdef Samples samples
    cdef string out
    cdef Pair pair
    cdef bytes labels
    cdef Py_ssize_t row, size = same_length(lines)
    for row in range(size):
        if types[row] != TEXT:
            samples.add(series[row], fields[row], times[row] // 1_000_000, numbers[row])
    samples.order()
    table = lines.table
    for pair in samples.pairs:
        labels = labels_of(table.series[pair.series], table.fields[pair.field])
        samples.write(PyBytes_AS_STRING(labels), PyBytes_GET_SIZE(labels), out)
    return PyBytes_FromStringAndSize(out.data(), out.size())


cdef Py_ssize_t same_length(lines) except -1:
    cdef Py_ssize_t size = len(lines)
    if any(len(column) != size for column in lines.columns):
        raise ValueError("the columns differ in length")
    return size
