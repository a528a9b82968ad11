# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled kernel of ``table``: ``Lines`` as the buffers of Arrow arrays.

It reads rows as the decoder packed them, so that nothing is joined or unpacked before.
"""

from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcpy, memset
from libcpp cimport bool as cbool
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector

from ccpipe.formats.lineprotocol.kernel.scan cimport Row, Seed

import array as arrays
import os


cdef extern from "batch.hpp" namespace "ccpipe" nogil:
    enum:
        CLUSTER
    cdef cppclass Names:
        const char* text(int32_t number, size_t& size) const
    cdef cppclass Texts:
        string bytes
        vector[int32_t] ends
        void add(const char*, size_t) except +
    struct Series:
        int32_t names[7]
    cdef cppclass KnownSeries:
        KnownSeries(const Seed&) except +
        vector[Names] columns
        vector[Series] series
        vector[int32_t] places
        void begin(const char*, size_t) except +
        void tag(const char*, size_t, const char*, size_t) except +
        cbool add(const char*, size_t) except +
        void note(int32_t)
        size_t first_unknown(const Row*, size_t, size_t) const
    cdef cppclass NameColumn:
        Texts dictionary
    struct Key "ccpipe::Batch::Key":
        int32_t cluster
        int64_t day
    cdef cppclass Batch:
        size_t size
        vector[Key] keys
        vector[vector[int64_t]] rows
        void add(const Row*, size_t) except +
        void split(const KnownSeries&) except +
    cdef cppclass CppTable "ccpipe::Table":
        CppTable(const Batch&, const KnownSeries&, const int64_t*, size_t) except +
        vector[NameColumn] names
        size_t missing[6]
        vector[int32_t] fields
        unsigned types
        size_t untimed
        size_t texts
        size_t pairs
        cbool read(size_t, size_t, int64_t*, int16_t*, double*, int32_t*) except +
        void write_names(int, int32_t*, uint8_t*) const
        void write_tags(int32_t*, Texts&, Texts&) except +
        void clear_untimed(uint8_t*) const
        size_t clear_type(int, cbool, uint8_t*) const
        void write_exact(int64_t*) const
        void write_booleans(uint8_t*) const
        vector[pair[size_t, int64_t]] text_numbers() except +

cdef enum:  # ``ValueType``
    INT = 1
    UINT = 2
    BOOL = 3
    TEXT = 4

cdef Seed _seed
_seed.a = int.from_bytes(os.urandom(8), "little")
_seed.b = int.from_bytes(os.urandom(8), "little")

cdef array.array _INT16 = arrays.array("h")
cdef array.array _INT32 = arrays.array("i")
cdef array.array _INT64 = arrays.array("q")
cdef array.array _DOUBLE = arrays.array("d")


cdef class Known:
    """What is known of the series of one table: it saves taking them apart for each batch."""

    cdef KnownSeries* all
    cdef readonly object table

    def __cinit__(self, table):
        self.all = new KnownSeries(_seed)
        self.table = table

    def __dealloc__(self):
        del self.all

    def __len__(self):
        return self.all.series.size()

    cdef add_all_of(self, const Row* rows, size_t count):
        """Add the series of some rows that are not known yet."""
        cdef size_t row = 0, series = len(self.table)
        cdef int32_t code
        if series > self.all.places.size():
            self.all.places.resize(series, -1)
        key_of = self.table.codes.key
        while True:
            row = self.all.first_unknown(rows, row, count)
            if row == count:
                return
            code = rows[row].series
            if not 0 <= code < <Py_ssize_t>series:
                raise IndexError(f"there is no series {code}")
            self.add(code, key_of(code))

    cdef add(self, int32_t code, bytes key):
        cdef bytes text, value
        if not self.all.add(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)):
            name, tags, _ = self.table.series[code]
            text = name.encode()
            self.all.begin(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
            for tag, word in tags.items():
                text, value = tag.encode(), word.encode()
                self.all.tag(
                    PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text),
                    PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value),
                )
        self.all.note(code)


cdef class Columns:
    """The columns of some lines of one table."""

    cdef Batch batch
    cdef Known known
    cdef list parts, held  # ``Lines``, and their rows

    def __init__(self, list parts, Known known not None):
        self.parts, self.known, self.held = parts, known, []
        for lines in parts:
            if lines.table is not known.table:
                raise ValueError("lines of another table")
            rows = lines.rows or _packed(lines)
            self.held.append(rows)
            self._add(rows)

    cdef _add(self, bytes packed):
        cdef const Row* rows = <const Row*>PyBytes_AS_STRING(packed)
        cdef size_t count = PyBytes_GET_SIZE(packed) // sizeof(Row)
        self.known.add_all_of(rows, count)
        self.batch.add(rows, count)

    def groups(self):
        """Return cluster, day since the epoch and rows of each group; None for all rows."""
        with nogil:
            self.batch.split(self.known.all[0])
        cdef size_t group
        cdef list found = []
        for group in range(self.batch.keys.size()):
            key = self.batch.keys[group]
            found.append((
                _text(self.known.all.columns[CLUSTER], key.cluster),
                None if key.day == INT64_MIN else key.day,
                _array(self.batch.rows[group]) if self.batch.rows.size() else None,
            ))
        return found

    def table(self, array.array rows):
        """Return the columns of some rows, as ``table.Buffers`` has them."""
        cdef Py_ssize_t size = self.batch.size if rows is None else len(rows)
        cdef const int64_t* chosen = NULL
        if rows is not None:
            chosen = <const int64_t*>rows.data.as_voidptr
        cdef CppTable* table = new CppTable(self.batch, self.known.all[0], chosen, size)
        try:
            return self._table(table, size)
        finally:
            del table

    cdef _table(self, CppTable* table, Py_ssize_t size):
        cdef array.array micros = array.clone(_INT64, size, False)
        cdef array.array beyond = array.clone(_INT16, size, False)
        cdef array.array numbers = array.clone(_DOUBLE, size, False)
        cdef array.array fields = array.clone(_INT32, size, False)
        cdef list known_fields = self.known.table.fields
        cdef size_t series = self.known.all.places.size(), field_count = len(known_fields)
        cdef bint is_good
        with nogil:
            is_good = table.read(
                series, field_count,
                <int64_t*>micros.data.as_voidptr, <int16_t*>beyond.data.as_voidptr,
                <double*>numbers.data.as_doubles, <int32_t*>fields.data.as_ints,
            )
        if not is_good:
            raise IndexError("there is no such field")
        has_time = None
        if table.untimed:
            has_time = _bits(size)
            table.clear_untimed(_at(has_time))
        is_number = None
        if table.texts:
            is_number = _bits(size)
            table.clear_type(TEXT, True, _at(is_number))
        used = [known_fields[field] for field in table.fields]
        return (
            (micros, has_time, table.untimed),
            (beyond, has_time, table.untimed),
            (fields, used),
            [_names(table, column, size) for column in range(CLUSTER)],
            _tags(table, size),
            (numbers, is_number, table.texts),
            _exact(table, INT, size),
            _exact(table, UINT, size),
            _booleans(table, size),
            self._texts(table, size),
        )

    cdef _texts(self, CppTable* table, Py_ssize_t size):
        """Return texts, an empty one where a row has none."""
        if not table.types >> TEXT & 1:
            return None
        cdef vector[pair[size_t, int64_t]] numbers = table.text_numbers()
        cdef bytearray valid = _bits(size)
        cdef Texts found
        cdef Py_ssize_t place
        cdef size_t part = 0, last = 0
        strings = self.parts[0].texts
        for place in range(size):
            if numbers[place].second < 0:
                found.add("", 0)
                continue
            part = numbers[place].first
            if part != last:
                last, strings = part, self.parts[part].texts
            _add_text(strings, numbers[place].second, found)
        return _packed_texts(found), valid, table.clear_type(TEXT, False, _at(valid))


cdef _add_text(strings, int64_t number, Texts& found):
    """Add a text: its bytes where they are those of the payload, without escapes."""
    cdef bytes payload = strings.payload, text
    cdef array.array spans = strings.spans
    cdef const int64_t* places = <const int64_t*>spans.data.as_voidptr
    cdef const char* begin = PyBytes_AS_STRING(payload)
    if number >= len(spans) // 2:
        raise IndexError(f"there is no text {number}")
    cdef int64_t start = places[2 * number], end = places[2 * number + 1]
    if (
        0 <= start <= end <= PyBytes_GET_SIZE(payload)
        and memchr(begin + start, 92, end - start) == NULL  # a backslash
    ):
        found.add(begin + start, end - start)
    else:
        text = strings[number].encode()
        found.add(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef _names(CppTable* table, int column, Py_ssize_t size):
    """Return a column of names; None where no row has one."""
    cdef Py_ssize_t missing = table.missing[column]
    if missing == size:
        return None
    cdef array.array numbers = array.clone(_INT32, size, False)
    valid = _bits(size) if missing else None
    cdef uint8_t* bits = _at(valid) if missing else NULL
    with nogil:
        table.write_names(column, <int32_t*>numbers.data.as_ints, bits)
    return numbers, valid, missing, _packed_texts(table.names[column].dictionary)


cdef _tags(CppTable* table, Py_ssize_t size):
    """Return where the other tags of each row begin and end, and their keys and values."""
    cdef array.array places = array.clone(_INT32, size + 1, not table.pairs)
    cdef Texts keys, values
    if table.pairs > INT32_MAX:
        raise OverflowError("more than 2**31 tags in one column")
    if table.pairs:
        with nogil:
            table.write_tags(<int32_t*>places.data.as_ints, keys, values)
    return places, _packed_texts(keys), _packed_texts(values)


cdef _exact(CppTable* table, int kind, Py_ssize_t size):
    """Return the integers of one type; None where there are none."""
    if not table.types >> kind & 1:
        return None
    cdef array.array found = array.clone(_INT64, size, False)
    table.write_exact(<int64_t*>found.data.as_voidptr)
    valid = _bits(size)
    return found, valid, table.clear_type(kind, False, _at(valid))


cdef _booleans(CppTable* table, Py_ssize_t size):
    """Return a bit for each boolean; None where there are none."""
    if not table.types >> BOOL & 1:
        return None
    found, valid = _bits(size), _bits(size)
    table.write_booleans(_at(found))
    return found, valid, table.clear_type(BOOL, False, _at(valid))


cdef bytearray _bits(Py_ssize_t size):
    """Return a bit for each row, all set."""
    cdef bytearray bits = PyByteArray_FromStringAndSize(NULL, (size + 7) // 8)
    memset(PyByteArray_AS_STRING(bits), 0xFF, (size + 7) // 8)
    return bits


cdef inline uint8_t* _at(bytearray bits) noexcept:
    return <uint8_t*>PyByteArray_AS_STRING(bits)


cdef bytes _packed(lines):
    """Return rows whose columns were changed as the decoder packs them."""
    cdef array.array series = lines.series, fields = lines.fields, types = lines.types
    cdef array.array numbers = lines.numbers, exact = lines.exact, times = lines.times
    cdef Py_ssize_t size = len(series), row
    if any(len(column) != size for column in lines.columns):
        raise ValueError("the columns differ in length")
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, size * sizeof(Row))
    cdef Row* rows = <Row*>PyBytes_AS_STRING(packed)
    memset(rows, 0, size * sizeof(Row))
    for row in range(size):
        rows[row].series = series.data.as_ints[row]
        rows[row].field = fields.data.as_ints[row]
        rows[row].type = types.data.as_uchars[row]
        rows[row].number = numbers.data.as_doubles[row]
        rows[row].exact = (<const int64_t*>exact.data.as_voidptr)[row]
        rows[row].time = (<const int64_t*>times.data.as_voidptr)[row]
    return packed


cdef _array(const vector[int64_t]& numbers):
    cdef array.array found = array.clone(_INT64, numbers.size(), False)
    if numbers.size():
        memcpy(found.data.as_voidptr, numbers.data(), numbers.size() * sizeof(int64_t))
    return found


cdef _packed_texts(const Texts& texts):
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
