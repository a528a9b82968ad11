# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False
"""The work for each message: ``frames.split_in_python``, its lists, and ``stored_in_python``."""

from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

import array as arrays

from ccpipe.bus.nats.protocol.frames import (
    MAX_LINE,
    MAX_MESSAGE,
    BrokenFrame,
    Delivery,
    deliver,
    first_delivery,
)

cdef Py_ssize_t _MAX_LINE = MAX_LINE
cdef Py_ssize_t _MAX_MESSAGE = MAX_MESSAGE

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        pass
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t items)
cdef extern from "../../../formats/lineprotocol/kernel/join.hpp" namespace "ccpipe" nogil:
    struct Slice:
        const char* at
        size_t size
    size_t joined_ends(const vector[Slice]& payloads, int64_t* ends)
    cbool join(const vector[Slice]& payloads, char* to)
cdef extern from "../../../formats/lineprotocol/kernel/utf8.hpp" namespace "ccpipe" nogil:
    cbool is_utf8(const char* text, const char* end)
cdef enum:
    WORDS = 5
    TOKENS = 13  # one more than a subject that acknowledges may have


cdef struct Message:
    Slice subject
    Slice reply
    Slice header
    Slice payload
    bint is_flawed


cdef Py_ssize_t number(Slice word) noexcept:
    """Return a decimal number, -1 where it is none."""
    cdef Py_ssize_t value = 0
    cdef size_t place
    if not 0 < word.size <= 18:
        return -1
    for place in range(word.size):
        if not 48 <= word.at[place] <= 57:  # 0 and 9
            return -1
        value = 10 * value + word.at[place] - 48
    return value


cdef const char* line_end(const char* p, const char* end) noexcept:
    """Return the position of CR LF, or NULL."""
    while True:
        p = <const char*>memchr(p, 13, end - p)
        if p == NULL or p + 1 >= end:
            return NULL
        if p[1] == 10:
            return p
        p += 1


cdef bint is_header(const char* p, Py_ssize_t size) noexcept:
    return (
        size >= 12
        and (memcmp(p, b"NATS/1.0\r\n", 10) == 0 or memcmp(p, b"NATS/1.0 ", 9) == 0)
        and memcmp(p + size - 4, b"\r\n\r\n", 4) == 0
    )


cdef object delivery(object subject, object payload, object header, object reply):
    """Make a ``Delivery`` as it would make itself, which is a tuple."""
    made = PyType_GenericAlloc(<PyTypeObject*>Delivery, 5)
    cdef object flaw = ""
    Py_INCREF(subject)
    Py_INCREF(payload)
    Py_INCREF(header)
    Py_INCREF(reply)
    Py_INCREF(flaw)
    PyTuple_SET_ITEM(made, 0, subject)
    PyTuple_SET_ITEM(made, 1, payload)
    PyTuple_SET_ITEM(made, 2, header)
    PyTuple_SET_ITEM(made, 3, reply)
    PyTuple_SET_ITEM(made, 4, flaw)
    return made


cdef bytes content(Slice slice):
    return PyBytes_FromStringAndSize(slice.at, slice.size)


cdef bint are_equal(Slice one, Slice other) noexcept:
    return one.size == other.size and memcmp(one.at, other.at, one.size) == 0


cdef bint is_text(Slice slice) noexcept:
    return is_utf8(slice.at, slice.at + slice.size)


cdef class Deliveries:
    """Messages as columns: see ``frames.Deliveries``, which is the same in Python."""

    cdef vector[Message] messages
    cdef list chunks  # the bytes that they are parts of

    def __cinit__(self):
        self.chunks = []

    def __len__(self):
        return self.messages.size()

    def __getitem__(self, place):
        cdef Py_ssize_t first, last, step, count = self.messages.size()
        if isinstance(place, slice):
            first, last, step = place.indices(count)
            if step != 1:
                raise ValueError("not consecutive messages")
            return self.part(first, last)
        first = place
        if first < 0:
            first += count
        if not 0 <= first < count:
            raise IndexError(place)
        return self.at(first)

    cdef Deliveries part(self, Py_ssize_t first, Py_ssize_t last):
        cdef Deliveries found = Deliveries()
        if first < last:
            found.messages.assign(self.messages.begin() + first, self.messages.begin() + last)
        found.chunks = self.chunks
        return found

    cdef object at(self, Py_ssize_t place):
        cdef Message message = self.messages[place]
        if message.is_flawed:
            return deliver(
                content(message.subject), content(message.payload), content(message.header),
                content(message.reply),
            )
        return delivery(
            PyUnicode_DecodeUTF8(message.subject.at, message.subject.size, NULL),
            content(message.payload),
            content(message.header),
            PyUnicode_DecodeUTF8(message.reply.at, message.reply.size, NULL),
        )

    @property
    def size(self):
        cdef size_t total = 0
        for message in self.messages:
            total += message.payload.size
        return total

    @property
    def sizes(self):
        return [message.payload.size for message in self.messages]

    @property
    def subjects(self):
        cdef list found = []
        cdef object subject = None
        cdef Slice before
        for message in self.messages:
            # Mostly the subject is that of the message before.
            if subject is None or not are_equal(before, message.subject):
                before = message.subject
                subject = content(before).decode(errors="backslashreplace")
            found.append(subject)
        return found

    @property
    def flawed(self):
        cdef Py_ssize_t place
        return [place for place in range(len(self)) if self.messages[place].is_flawed]

    @property
    def replies(self):
        if self.flawed:
            return b" ".join([delivery.reply.encode() for delivery in self])
        cdef size_t total = 0
        for message in self.messages:
            total += message.reply.size + 1
        if not total:
            return b""
        cdef bytes found = PyBytes_FromStringAndSize(NULL, total - 1)
        cdef char* to = PyBytes_AS_STRING(found)
        cdef char* end = to + total - 1
        for message in self.messages:
            memcpy(to, message.reply.at, message.reply.size)
            to += message.reply.size
            if to < end:
                to[0] = 32
                to += 1
        return found

    @property
    def are_first(self):
        if self.messages.empty():
            return False
        begin = first_delivery(content(self.messages[0].reply).decode(errors="replace")).encode()
        cdef const char* prefix = PyBytes_AS_STRING(begin)
        cdef size_t size = PyBytes_GET_SIZE(begin)
        if not size:
            return False
        for message in self.messages:
            if (
                message.is_flawed
                or message.reply.size < size
                or memcmp(message.reply.at, prefix, size) != 0
            ):
                return False
        return True

    def by_reply(self):
        cdef Deliveries found = Deliveries()
        cdef list others = []
        cdef Py_ssize_t place
        found.chunks = self.chunks
        for place in range(len(self)):
            if self.messages[place].reply.size:
                found.messages.push_back(self.messages[place])
            else:
                others.append(self.at(place))
        return found, others

    def without_prefix(self, str prefix not None):
        cdef bytes encoded = prefix.encode()
        cdef const char* begin = PyBytes_AS_STRING(encoded)
        cdef size_t size = PyBytes_GET_SIZE(encoded)
        cdef Deliveries found = self.part(0, len(self))
        cdef Message* message = found.messages.data()
        cdef Message* end = message + found.messages.size()
        while message < end:
            if message.subject.size >= size and memcmp(message.subject.at, begin, size) == 0:
                message.subject.at += size
                message.subject.size -= size
            message += 1
        return found

    def joined(self):
        cdef vector[Slice] payloads
        payloads.reserve(self.messages.size())
        for message in self.messages:
            payloads.push_back(message.payload)
        cdef array.array ends = array.clone(_INT64, payloads.size(), False)
        cdef size_t total = joined_ends(payloads, <int64_t*>ends.data.as_voidptr)
        cdef bytes found = PyBytes_FromStringAndSize(NULL, total)
        if not join(payloads, PyBytes_AS_STRING(found)):
            return None
        return found, ends


def concatenated(list parts not None):
    """Return the messages of all parts; see ``frames.concatenated_in_python``."""
    cdef Deliveries found = Deliveries(), part
    for each in parts:
        part = each
        found.messages.insert(found.messages.end(), part.messages.begin(), part.messages.end())
        found.chunks += part.chunks
    return found


def split(bytearray store, Py_ssize_t start, Py_ssize_t end):
    """Cut ``store[start:end]`` into frames; see ``split_in_python``."""
    if not 0 <= start <= end <= PyByteArray_GET_SIZE(store):
        raise ValueError("not a part of the store")
    cdef const char* base = PyByteArray_AS_STRING(store)
    cdef const char* p = base + start
    cdef const char* stop = base + end
    cdef const char* line
    cdef const char* body
    cdef const char* space
    cdef Slice words[WORDS]
    cdef Py_ssize_t count, numbers, sid, of = 0, size, header_size, needed
    cdef Message message
    cdef list frames = []
    cdef Deliveries run = None
    while True:
        line = line_end(p, stop)
        if line == NULL:
            if stop - p > _MAX_LINE:
                raise BrokenFrame(f"a control line of more than {MAX_LINE} bytes")
            needed = 1
            break
        if line - p >= 4 and memcmp(p, b"MSG ", 4) == 0:
            numbers, space = 1, p + 3
        elif line - p >= 5 and memcmp(p, b"HMSG ", 5) == 0:
            numbers, space = 2, p + 4
        else:
            frames.append((0, PyBytes_FromStringAndSize(p, line - p)))
            of, p = 0, line + 2
            continue
        count = 0
        while space != NULL and count < WORDS:
            words[count].at = space + 1
            space = <const char*>memchr(space + 1, 32, line - space - 1)
            words[count].size = (line if space == NULL else space) - words[count].at
            count += 1
        if space != NULL or not 2 + numbers <= count <= 3 + numbers or not words[0].size:
            raise broken(p, line)
        sid, size = number(words[1]), number(words[count - 1])
        header_size = number(words[count - 2]) if numbers == 2 else 0
        if sid <= 0 or not 0 <= header_size <= size <= _MAX_MESSAGE:
            raise broken(p, line)
        body = line + 2
        if stop - body < size + 2:
            needed = body + size + 2 - p
            break
        if body[size] != 13 or body[size + 1] != 10:
            raise BrokenFrame("a message does not end where its length says")
        if sid != of:
            of, run = sid, Deliveries()
            frames.append((sid, run))
        message.subject = words[0]
        message.reply = words[2]
        if count == 2 + numbers:
            message.reply.size = 0
        message.header.at, message.header.size = body, header_size
        message.payload.at, message.payload.size = body + header_size, size - header_size
        message.is_flawed = (
            header_size and not is_header(body, header_size)
            or not (is_text(message.reply) and is_text(message.subject))
        )
        run.messages.push_back(message)
        p = body + size + 2
    keep(frames, base + start, p)
    return frames, p - base, needed


cdef void keep(list frames, const char* begin, const char* end):
    """Copy what the messages are parts of: the store is written to again."""
    cdef bytes chunk = None
    cdef Message* message
    cdef Message* stop
    cdef ptrdiff_t moved = 0
    cdef Deliveries run
    for sid, content in frames:
        if not sid:
            continue
        if chunk is None:
            chunk = PyBytes_FromStringAndSize(begin, end - begin)
            moved = PyBytes_AS_STRING(chunk) - begin
        run = content
        run.chunks.append(chunk)
        message = run.messages.data()
        stop = message + run.messages.size()
        while message < stop:
            message.subject.at += moved
            message.reply.at += moved
            message.header.at += moved
            message.payload.at += moved
            message += 1


cdef object broken(const char* p, const char* line):
    text = PyBytes_FromStringAndSize(p, line - p)
    return BrokenFrame(f"not the line of a message: {text!r:.120}")


cdef array.array _INT64 = arrays.array("q")


cdef bint int64(const char* p, const char* end, int64_t* found) noexcept:
    """Read a decimal number; false where it is none or too large."""
    cdef uint64_t value = 0
    if not 0 < end - p <= 19:
        return False
    while p < end:
        if not 48 <= p[0] <= 57:  # 0 and 9
            return False
        value = 10 * value + p[0] - 48
        p += 1
    found[0] = <int64_t>value
    return value <= <uint64_t>INT64_MAX


cdef bint read_stored(const char* p, Py_ssize_t size, int64_t* number, int64_t* stamp) noexcept:
    """Do what ``frames.stored_as`` does; false for its None."""
    cdef const char* end = p + size
    cdef const char* tokens[TOKENS]
    cdef Py_ssize_t count = 1, place
    if size < 8 or memcmp(p, b"$JS.ACK.", 8) != 0:
        return False
    tokens[0] = p
    while p < end:  # faster than a search for each of so short tokens
        if p[0] == 46:  # a dot
            if count == TOKENS:
                return False
            tokens[count] = p + 1
            count += 1
        p += 1
    if count != 9 and count != 11 and count != 12:
        return False
    place = 5 if count == 9 else 7
    return (
        int64(tokens[place], tokens[place + 1] - 1, number)
        and int64(tokens[place + 2], tokens[place + 3] - 1, stamp)
    )


def stored(bytes replies not None):
    """Return numbers and times in columns; see ``frames.stored_in_python``."""
    cdef const char* p = PyBytes_AS_STRING(replies)
    cdef const char* end = p + PyBytes_GET_SIZE(replies)
    cdef const char* space
    cdef Py_ssize_t count = replies.count(b" ") + 1, row
    cdef array.array numbers = array.clone(_INT64, count, False)
    cdef array.array times = array.clone(_INT64, count, False)
    cdef int64_t* number = <int64_t*>numbers.data.as_voidptr
    cdef int64_t* stamp = <int64_t*>times.data.as_voidptr
    for row in range(count):
        space = <const char*>memchr(p, 32, end - p)
        if space == NULL:
            space = end
        if not read_stored(p, space - p, number + row, stamp + row):
            return None
        p = space + 1
    return numbers, times
