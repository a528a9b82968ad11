# Payloads to rows: a part of ``_kernel.pyx``.

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        pass
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t items)


cdef tuple _UNITS = UNITS


cdef str precision_of(unsigned units):
    """Return the only unit among those of timestamps, given as bits, or None."""
    cdef int number
    for number in range(4):
        if units == 1u << number:
            return <str>_UNITS[number]
    return None


cdef int32_t _resolve(void* scanner, What what, const char* raw, size_t size) noexcept with gil:
    try:
        return (<Scanner>scanner).number_of(what, PyBytes_FromStringAndSize(raw, size))
    except (UnicodeDecodeError, DataError):  # of a duplicate tag
        return -1
    except BaseException as error:
        (<Scanner>scanner).error = error
        return -1


cdef class Scanner:
    """Reads the usual lines of payloads, with one series table."""

    cdef Scan* scan
    cdef Encodings encodings
    cdef dict field_codes
    cdef Py_ssize_t max_series, max_bytes, max_fields
    cdef object table, error

    def __cinit__(self, table, influx):
        # The table itself is not kept: it keeps this.
        self.encodings, self.field_codes = table.codes, table.field_codes
        self.max_series, self.max_bytes = table.cap, table.max_bytes
        self.max_fields = table.max_fields
        self.scan = new Scan(self.encodings.all[0], _seed, influx, _resolve, <void*>self)

    def __dealloc__(self):
        del self.scan

    @property
    def units(self):
        """The units of the timestamps that were met last, as bits: s, ms, us, ns, none."""
        return self.scan.units

    @property
    def position(self):
        """Where the first line begins that was not read last, in its payload."""
        return self.scan.position()

    cdef cbool has_room(self):
        """Say whether the table has: as ``SeriesTable.current``."""
        return (
            self.encodings.all.has_room(self.max_series, self.max_bytes)
            and len(self.field_codes) < self.max_fields
        )

    cpdef decode(self, kind, bytes payload, table, int unit):
        """Return the usual lines of a payload, up to the first other one, as `kind` of ``Lines``.

        What is usual is left out: ``Lines.__getattr__`` makes it when it is asked for.
        """
        if not isinstance(kind, type):
            raise TypeError("not a class")
        self.run(payload, table, 0, unit)
        lines = PyType_GenericAlloc(<PyTypeObject*>kind, 0)
        lines.payload = payload
        lines.table = table
        lines.precision = precision_of(self.scan.units)
        lines.rows = self.packed()
        if self.scan.bare_points:
            lines.bare_points = True
        if self.scan.texts.size():
            self.add_texts(lines.texts)
        if self.scan.position() == <size_t>PyBytes_GET_SIZE(payload):
            lines.digest = (self.scan.types, self.scan.field, self.scan.dense())
        return lines

    def read(self, lines, Py_ssize_t position, int unit):
        """Add the rows of usual lines from `position` on; return where the first other begins."""
        self.run(lines.payload, lines.table, position, unit)
        if self.scan.texts.size():
            self.add_texts(lines.texts)
        cdef bytes rows = self.packed()
        if rows:
            fresh = *unpack([rows]), positions(rows, 0, False), positions(rows, 0, True)
            for filled, cells in zip(lines.columns, fresh):
                filled.extend(cells)
            lines.rows, lines.digest = b"", None
        if self.scan.bare_points:
            lines.bare_points = True
        return self.scan.position()

    cdef run(self, bytes payload, table, Py_ssize_t position, int unit):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
        self.scan.begin(PyBytes_AS_STRING(payload), size, position, unit)
        self.table = table
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

    cdef bytes packed(self):
        return PyBytes_FromStringAndSize(
            <char*>self.scan.rows.data(), self.scan.rows.size() * sizeof(Row)
        )

    cdef int32_t number_of(self, What what, bytes raw) except? -2:
        if what == SERIES:
            return self.table.add(raw)
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


def shortcut(in_python, finish, tables, kind):
    """Return ``decode`` for usual calls, which leaves any other to `in_python`.

    `tables.of` has the series tables of the thread; `finish` reads on from an unusual line.
    """
    cdef dict units = UNIT_NUMBERS

    def decode(payload, *, precision="auto", dialect="cc", lenient=False, max_rejected=None):
        cdef PyObject* unit = PyDict_GetItemWithError(units, precision)
        cdef dict here = tables.of
        cdef PyObject* table = PyDict_GetItemWithError(here, dialect)
        cdef Scanner scanner
        if unit != NULL and table != NULL and type(payload) is bytes:
            scanner = (<object>table).scanner
            if scanner is not None and scanner.has_room():
                lines = scanner.decode(kind, <bytes>payload, <object>table, <object>unit)
                if scanner.scan.position() == <size_t>PyBytes_GET_SIZE(<bytes>payload):
                    return lines
                return finish(lines, scanner, precision, lenient, max_rejected)
        return in_python(
            payload, precision=precision, dialect=dialect, lenient=lenient,
            max_rejected=max_rejected,
        )

    return decode
