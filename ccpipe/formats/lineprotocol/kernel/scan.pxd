# What several kernels use of ``scan.hpp``, which each of them includes by its own header.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef extern from * namespace "ccpipe" nogil:
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
