# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled kernel: what is done to each byte of an envelope and to each number of a sample.

It does what is plain and answers None to what is odd, which ``sums`` then does in Python.
"""

cimport cython
from cpython cimport array
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport Py_EQ, PyObject, PyObject_RichCompareBool
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint64_t

import array as arrays

from ccpipe.formats.sonar.sample import SampleProcess, SampleProcessGpu

cdef extern from "Python.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member
    long long PyLong_AsLongLongAndOverflow(object, int* overflow) except? -1

cdef enum:
    DIGITS = 20  # of the least integer that 64 bits cannot hold
    BITS = 48  # of a whole number that is not odd
    MOST = 1 << 14  # so many of them add up to less than 63 bits

cdef enum:  # the whole numbers of a process; its three counters come first
    TIME, READ, WRITTEN, RESIDENT, VIRTUAL, THREADS, ROLLEDUP, PID, NUMBERS
    COUNTERS = 3

cdef enum:  # what is added up of the cards
    UTIL, MEMORY, MEMORY_UTIL, CARD_SUMS

cdef array.array _DOUBLE = arrays.array("d")
cdef array.array _UINT64 = arrays.array("Q")


cdef Py_ssize_t place(kind, name) except -1:
    """Say where in a record a field lies: where the interpreter itself looks for it."""
    descriptor = kind.__dict__[name]
    if type(descriptor).__name__ != "member_descriptor":
        raise ImportError(f"{kind.__name__}.{name} does not lie in the record")
    return (<PyMemberDescrObject*>descriptor).d_member.offset


cdef Py_ssize_t[NUMBERS] _NUMBERS = [
    place(SampleProcess, "cpu_time"),
    place(SampleProcess, "data_read"),
    place(SampleProcess, "data_written"),
    place(SampleProcess, "resident_memory"),
    place(SampleProcess, "virtual_memory"),
    place(SampleProcess, "num_threads"),
    place(SampleProcess, "rolledup"),
    place(SampleProcess, "pid"),
]
cdef Py_ssize_t _AVERAGE = place(SampleProcess, "cpu_avg")
cdef Py_ssize_t _PARENT = place(SampleProcess, "ppid")
cdef Py_ssize_t _COMMAND = place(SampleProcess, "cmd")
cdef Py_ssize_t _CARDS = place(SampleProcess, "gpus")
cdef Py_ssize_t _UUID = place(SampleProcessGpu, "uuid")
cdef Py_ssize_t _UTIL = place(SampleProcessGpu, "gpu_util")
cdef Py_ssize_t _MEMORY = place(SampleProcessGpu, "gpu_memory")
cdef Py_ssize_t _MEMORY_UTIL = place(SampleProcessGpu, "gpu_memory_util")


def has_long_number(const unsigned char[::1] raw):
    """Say whether twenty digits stand in a row, as only integers beyond 64 bits need."""
    cdef Py_ssize_t last = DIGITS - 1, run, size = raw.shape[0]
    while last < size:  # twenty in a row hold one of any bytes so far apart
        run = 0
        while run < DIGITS and c"0" <= raw[last - run] <= c"9":
            run += 1
        if run == DIGITS:
            return True
        last += DIGITS - run
    return False


def shares(now, before, double scale):
    """See ``sums.shares``."""
    cdef Py_ssize_t row, size
    cdef int64_t new, old, gained = 0
    if not PyTuple_CheckExact(now) or not PyTuple_CheckExact(before):
        return None
    size = PyTuple_GET_SIZE(now)
    if size > MOST or PyTuple_GET_SIZE(before) != size:
        return None
    cdef list gains = []
    for row in range(size):
        if not whole(PyTuple_GET_ITEM(now, row), &new):
            return None
        if not whole(PyTuple_GET_ITEM(before, row), &old) or new < old:
            return None
        gains.append(scale * <double>(new - old))
        gained += new - old
    return gains, scale * <double>gained


def add_up(processes, before):
    """See ``sums.add_up``."""
    cdef int64_t[NUMBERS] numbers, totals
    cdef int64_t[COUNTERS] gains
    cdef double average = 0.0, averages = 0.0
    cdef Py_ssize_t size, row, number
    cdef PyObject* process
    cdef const uint64_t* was
    cdef Last last = Last(before)
    if not PyTuple_CheckExact(processes) or last.is_odd:
        return None
    size = PyTuple_GET_SIZE(processes)
    if size > MOST:
        return None
    cdef array.array counters = array.clone(_UINT64, COUNTERS * size, False)
    cdef uint64_t* now = <uint64_t*>counters.data.as_voidptr
    cdef list keys = []
    cdef dict cards = {}
    for number in range(NUMBERS):
        totals[number] = 0
    for number in range(COUNTERS):
        gains[number] = 0
    for row in range(size):
        process = <PyObject*>PyTuple_GET_ITEM(processes, row)
        if not read(process, numbers, &average) or not add_cards(process, cards):
            return None
        key = key_of(process, numbers[PID])
        keys.append(key)
        for number in range(NUMBERS):
            totals[number] += numbers[number]
        for number in range(COUNTERS):
            now[number] = numbers[number]
        was = last.counters_of(key, row)
        if was == NULL or now[TIME] < was[TIME]:
            averages += average
        else:
            for number in range(COUNTERS):
                if now[number] > was[number]:
                    gains[number] += now[number] - was[number]
        now += COUNTERS
    resident, virtual, threads = totals[RESIDENT], totals[VIRTUAL], totals[THREADS]
    count = size + totals[ROLLEDUP]
    return (
        (1024 * resident, 1024 * virtual, count, threads + count),
        (averages, gains[TIME], gains[READ], gains[WRITTEN]),
        cards,
        (tuple(keys), counters),
    )


@cython.final
@cython.freelist(8)
cdef class Last:
    """The counters of a job's processes in its last sample."""

    cdef tuple keys
    cdef array.array counters
    cdef dict rows
    cdef bint is_odd

    def __init__(self, before):
        self.keys = ()
        if before is not None:
            self.keys, counters = before
            self.is_odd = not isinstance(counters, arrays.array) or counters.typecode != "Q"
            self.is_odd = self.is_odd or len(counters) != COUNTERS * len(self.keys)
            self.counters = None if self.is_odd else counters

    cdef const uint64_t* counters_of(self, key, Py_ssize_t row) except? NULL:
        """Find a process, which mostly is where it was; NULL for one that is new."""
        if not self.keys:
            return NULL
        if not self.is_at(key, row):
            if self.rows is None:
                self.rows = {known: place for place, known in enumerate(self.keys)}
            row = self.rows.get(key, -1)
            if row < 0:
                return NULL
        return <const uint64_t*>self.counters.data.as_voidptr + COUNTERS * row

    cdef bint is_at(self, key, Py_ssize_t row) except -1:
        if row >= PyTuple_GET_SIZE(self.keys):
            return False
        return PyObject_RichCompareBool(key, <object>PyTuple_GET_ITEM(self.keys, row), Py_EQ)


cdef inline PyObject* field(PyObject* record, Py_ssize_t place) noexcept:
    return (<PyObject**>(<char*>record + place))[0]


cdef inline bint whole(PyObject* value, int64_t* number) except -1:
    """Read a whole number; say whether it is one, and not odd."""
    cdef int overflow = 0
    if value == NULL or not PyLong_CheckExact(<object>value):
        return False
    number[0] = PyLong_AsLongLongAndOverflow(<object>value, &overflow)
    return overflow == 0 and number[0] >> BITS == 0


cdef inline bint real(PyObject* value, double* number) noexcept:
    """Read a float; say whether it is one."""
    if value == NULL or not PyFloat_CheckExact(<object>value):
        return False
    number[0] = PyFloat_AS_DOUBLE(<object>value)
    return True


cdef inline bint read(PyObject* process, int64_t* numbers, double* average) except -1:
    """Read the numbers of a process; say whether all are there, and none is odd."""
    cdef Py_ssize_t number
    if type(<object>process) is not SampleProcess:
        return False
    for number in range(NUMBERS):
        if not whole(field(process, _NUMBERS[number]), &numbers[number]):
            return False
    return real(field(process, _AVERAGE), average)


cdef inline known(PyObject* record, Py_ssize_t place):
    """Return a field that is not looked into."""
    cdef PyObject* value = field(record, place)
    if value == NULL:
        raise AttributeError("a record without all its fields")
    return <object>value


cdef inline key_of(PyObject* process, int64_t pid):
    if pid:
        return known(process, _NUMBERS[PID])
    return known(process, _PARENT), known(process, _COMMAND)


cdef bint add_cards(PyObject* process, dict cards) except -1:
    """Add what a process does on cards to what others do; say whether nothing is odd."""
    cdef Py_ssize_t row
    cdef PyObject* card
    cdef double util = 0.0, memory_util = 0.0
    cdef int64_t memory = 0
    cdef array.array sums
    cdef PyObject* held = field(process, _CARDS)
    if held == NULL or not PyTuple_CheckExact(<object>held):
        return False
    for row in range(PyTuple_GET_SIZE(<object>held)):
        card = <PyObject*>PyTuple_GET_ITEM(<object>held, row)
        if type(<object>card) is not SampleProcessGpu or not (
            real(field(card, _UTIL), &util)
            and whole(field(card, _MEMORY), &memory)
            and real(field(card, _MEMORY_UTIL), &memory_util)
        ):
            return False
        uuid = known(card, _UUID)
        sums = cards.get(uuid)
        if sums is None:
            cards[uuid] = sums = array.clone(_DOUBLE, CARD_SUMS, True)
        sums.data.as_doubles[UTIL] += util
        sums.data.as_doubles[MEMORY] += <double>memory
        sums.data.as_doubles[MEMORY_UTIL] += memory_util
    return True
