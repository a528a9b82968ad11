# Rows and messages to bytes: a part of ``_kernel.pyx``.

cdef size_t _LINE = 128  # bytes for which room is made at first, for each line

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
    """Encode rows canonically; return also where each ends.

    `fields` has the encodings of their fields, by number.
    """
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
    cdef Encodings encodings = lines.table.codes
    cdef Writer writer
    cdef Py_ssize_t row, size = same_length(lines)
    cdef int32_t last = -1
    cdef bytes name = b""
    cdef string key
    cdef array.array ends = array.clone(_INT64, size, False)
    cdef int64_t* stop = <int64_t*>ends.data.as_voidptr
    writer.reserve(_LINE * size)
    for row in range(size):
        if not encodings.all.key(series[row], key):
            raise IndexError(f"there is no series {series[row]}")
        writer.raw(key.data(), key.size())
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
        stop[row] = writer.size()
    return PyBytes_FromStringAndSize(writer.data(), writer.size()), ends


def encode_messages(messages, int unit, in_python):
    """Encode messages; one that is unusual is left to `in_python`, which encodes one message."""
    cdef Writer writer
    cdef size_t before
    writer.reserve(_LINE * PyObject_LengthHint(messages, 1))
    for message in messages:
        before = writer.size()
        if not write_message(writer, message, unit):
            writer.truncate(before)
            write_bytes(writer, in_python(message))
    return PyBytes_FromStringAndSize(writer.data(), writer.size())


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
def write_request(lines, dict known, labels_of):
    """Encode numbers as a Prometheus ``WriteRequest``; see ``formats.prometheus``."""
    cdef const int32_t* series = <const int32_t*>(<array.array?>lines.series).data.as_ints
    cdef const int32_t* fields = <const int32_t*>(<array.array?>lines.fields).data.as_ints
    cdef const uint8_t* types = (<array.array?>lines.types).data.as_uchars
    cdef const double* numbers = (<array.array?>lines.numbers).data.as_doubles
    cdef const int64_t* times = <const int64_t*>(<array.array?>lines.times).data.as_voidptr
    cdef Samples samples
    cdef string out
    cdef Pair pair
    cdef int32_t number
    cdef PyObject* found
    cdef bytes labels
    cdef Py_ssize_t row, size = same_length(lines)
    for row in range(size):
        if types[row] != TEXT:
            samples.add(series[row], fields[row], times[row] // 1_000_000, numbers[row])
    samples.order()
    for number in range(samples.pairs.size()):
        pair = samples.pairs[number]
        found = PyDict_GetItemWithError(known, <int64_t>pair.left << 32 | pair.right)
        labels = <object>found if found != NULL else labels_of(pair.left, pair.right)
        samples.write(PyBytes_AS_STRING(labels), PyBytes_GET_SIZE(labels), out)
    return PyBytes_FromStringAndSize(out.data(), out.size())


@cython.boundscheck(True)
def messages(lines, Py_ssize_t start, Py_ssize_t stop):
    """Return some rows as a list of messages."""
    cdef Py_ssize_t size = same_length(lines)
    cdef const int32_t* series = <const int32_t*>(<array.array?>lines.series).data.as_ints
    cdef const int32_t* fields = <const int32_t*>(<array.array?>lines.fields).data.as_ints
    cdef const uint8_t* types = (<array.array?>lines.types).data.as_uchars
    cdef const double* numbers = (<array.array?>lines.numbers).data.as_doubles
    cdef const int64_t* exact = <const int64_t*>(<array.array?>lines.exact).data.as_voidptr
    cdef const int64_t* times = <const int64_t*>(<array.array?>lines.times).data.as_voidptr
    cdef object known = lines.table.series
    cdef list names = lines.table.fields, made = []
    cdef PyObject* found
    cdef int64_t last = NO_TIME
    cdef object time = None, entry, value
    cdef Py_ssize_t row
    if not 0 <= start <= stop <= size:
        raise IndexError("there are no such rows")
    for row in range(start, stop):
        found = PyDict_GetItemWithError(known, series[row])
        entry = <object>found if found != NULL else known[series[row]]
        if not isinstance(entry, tuple):
            raise TypeError("the table holds something that is no series")
        if times[row] != last:
            last = times[row]
            time = None if last == NO_TIME else last
        if types[row] == FLOAT:
            value = numbers[row]
        elif types[row] == INT:
            value = exact[row]
        elif types[row] == BOOL:
            value = exact[row] != 0
        else:
            value = lines.value(row)
        made.append(Message((<tuple>entry)[0], (<tuple>entry)[1], value, time, names[fields[row]]))
    return made


cdef Py_ssize_t same_length(lines) except -1:
    cdef Py_ssize_t size = len(lines)
    # Not ``starts`` and ``ends``: they would be computed, and are not needed here.
    columns = lines.series, lines.fields, lines.types, lines.numbers, lines.exact, lines.times
    if any(len(column) != size for column in columns):
        raise ValueError("the columns differ in length")
    return size
