# Series to columns: a part of ``_kernel.pyx``.

cdef extern from "parts.hpp" namespace "ccpipe" nogil:
    struct Texts:
        string valid, bytes
        vector[int32_t] offsets
    cdef cppclass SeriesTexts:
        SeriesTexts(vector[string]) except +
        vector[Texts] columns
        Texts keys, values
        vector[int32_t] ends
        cbool add(const char*, size_t) except +
        void add_name(const string&) except +
        void add_tag(const string&, const string&) except +
        void end_row() except +


def series_texts(table, array.array codes not None, list tags):
    """Return the parts of some series as the buffers of Arrow's arrays.

    These are a column for the measurement and each of `tags`, where the other tags of each row end,
    and the keys and values of these.
    """
    cdef Encodings encodings = table.codes
    cdef SeriesTexts* texts = new SeriesTexts(tags)
    cdef string encoding
    cdef Py_ssize_t place
    try:
        for place in range(len(codes)):
            if not encodings.all.key(codes.data.as_ints[place], encoding):
                raise IndexError(f"there is no series {codes[place]}")
            if not texts.add(encoding.data(), encoding.size()):
                series = table.series[codes[place]]
                texts.add_name(series.name.encode())
                for key, value in series.tags.items():
                    texts.add_tag(key.encode(), value.encode())
                texts.end_row()
        columns = [_buffers(texts.columns[place]) for place in range(1 + len(tags))]
        return columns, _int32(texts.ends), _buffers(texts.keys), _buffers(texts.values)
    finally:
        del texts


cdef tuple _buffers(const Texts& texts):
    if texts.bytes.size() > INT32_MAX:
        raise OverflowError("more than 2 GiB of texts in one column")
    return <bytes>texts.valid, _int32(texts.offsets), <bytes>texts.bytes


cdef array.array _int32(const vector[int32_t]& numbers):
    cdef array.array found = array.clone(_INT32, numbers.size(), False)
    memcpy(found.data.as_voidptr, numbers.data(), numbers.size() * sizeof(int32_t))
    return found
