# Payloads to one payload: a part of ``_kernel.pyx``.

def join(list payloads):
    """Join payloads that can be decoded together; see ``decoder.py``."""
    cdef Py_ssize_t count = len(payloads), place, size, total = 0
    cdef array.array ends = array.clone(_INT64, count, False)
    cdef int64_t* end = <int64_t*>ends.data.as_voidptr
    cdef const char* text
    cdef bytes payload
    for place in range(count):
        payload = <bytes?>payloads[place]
        text = PyBytes_AS_STRING(payload)
        size = PyBytes_GET_SIZE(payload)
        total += size + (size == 0 or text[size - 1] != c"\n")
        end[place] = total
    cdef bytes joined = PyBytes_FromStringAndSize(NULL, total)
    cdef char* to = PyBytes_AS_STRING(joined)
    for place in range(count):
        payload = <bytes>payloads[place]
        text = PyBytes_AS_STRING(payload)
        size = PyBytes_GET_SIZE(payload)
        if memchr(text, c'"', size) != NULL or size and text[size - 1] == c"\\":
            return None
        memcpy(to, text, size)
        to += size
        if size == 0 or text[size - 1] != c"\n":
            to[0] = c"\n"
            to += 1
    return joined, ends


def rows_before(array.array starts not None, array.array ends not None):
    """Return how many rows start before each end; see ``decoder.py``."""
    if starts.typecode != "q" or ends.typecode != "q":
        raise TypeError("not columns of 64-bit integers")
    cdef Py_ssize_t rows = len(starts), count = len(ends), row = 0, place
    cdef const int64_t* start = <const int64_t*>starts.data.as_voidptr
    cdef const int64_t* end = <const int64_t*>ends.data.as_voidptr
    cdef array.array found = array.clone(_INT64, count, False)
    cdef int64_t* before = <int64_t*>found.data.as_voidptr
    for place in range(count):
        while row < rows and start[row] < end[place]:
            row += 1
        before[place] = row
    return found
