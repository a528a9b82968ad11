# Payloads to one payload: a part of ``_kernel.pyx``.

cdef extern from "join.hpp" namespace "ccpipe" nogil:
    struct Slice:
        const char* at
        size_t size
    size_t joined_ends(const vector[Slice]& payloads, int64_t* ends)
    cbool join_slices "ccpipe::join"(const vector[Slice]& payloads, char* to)


def join(list payloads):
    """Join payloads that can be decoded together; see ``decoder.py``."""
    cdef vector[Slice] slices
    cdef Slice slice
    cdef bytes payload
    slices.reserve(len(payloads))
    for each in payloads:
        payload = <bytes?>each
        slice.at, slice.size = PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload)
        slices.push_back(slice)
    cdef array.array ends = array.clone(_INT64, slices.size(), False)
    cdef size_t total = joined_ends(slices, <int64_t*>ends.data.as_voidptr)
    cdef bytes joined = PyBytes_FromStringAndSize(NULL, total)
    if not join_slices(slices, PyBytes_AS_STRING(joined)):
        return None
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
