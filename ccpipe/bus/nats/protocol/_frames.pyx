# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False
"""The work for each message: ``frames.split_in_python`` and ``splitter.stored_in_python``."""

from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.string cimport memchr, memcmp

import array as arrays

from ccpipe.bus.nats.protocol.frames import (
    MAX_LINE,
    MAX_MESSAGE,
    BrokenFrame,
    Delivery,
    deliver,
    stored_as,
)

cdef Py_ssize_t _MAX_LINE = MAX_LINE
cdef Py_ssize_t _MAX_MESSAGE = MAX_MESSAGE

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    ctypedef struct PyTypeObject:
        pass
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t items)
cdef enum:
    WORDS = 5
    TOKENS = 13  # one more than a subject that acknowledges may have


cdef struct Word:
    const char* at
    Py_ssize_t size


cdef Py_ssize_t number(Word word) noexcept:
    """Return a decimal number, -1 where it is none."""
    cdef Py_ssize_t value = 0, place
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
    cdef Word words[WORDS]
    cdef Py_ssize_t count, numbers, sid, of = 0, size, header_size
    cdef Word before
    cdef object subject = None, reply, header
    cdef list frames = [], run = None
    before.at = NULL
    before.size = 0
    while True:
        line = line_end(p, stop)
        if line == NULL:
            if stop - p > _MAX_LINE:
                raise BrokenFrame(f"a control line of more than {MAX_LINE} bytes")
            return frames, p - base, 1
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
            if space == NULL:
                words[count].size = line - words[count].at
            else:
                words[count].size = space - words[count].at
            count += 1
        if space != NULL or not 2 + numbers <= count <= 3 + numbers or not words[0].size:
            raise broken(p, line)
        sid, size = number(words[1]), number(words[count - 1])
        header_size = number(words[count - 2]) if numbers == 2 else 0
        if sid <= 0 or not 0 <= header_size <= size <= _MAX_MESSAGE:
            raise broken(p, line)
        body = line + 2
        if stop - body < size + 2:
            return frames, p - base, body + size + 2 - p
        if body[size] != 13 or body[size + 1] != 10:
            raise BrokenFrame("a message does not end where its length says")
        if sid != of:
            of, run = sid, []
            frames.append((sid, run))
        try:
            if header_size and not is_header(body, header_size):
                raise ValueError
            # Mostly the subject is that of the message before.
            if subject is None or not (
                before.size == words[0].size and memcmp(before.at, words[0].at, before.size) == 0
            ):
                subject = PyUnicode_DecodeUTF8(words[0].at, words[0].size, NULL)
                before = words[0]
            reply = header = None
            if count > 2 + numbers:
                reply = PyUnicode_DecodeUTF8(words[2].at, words[2].size, NULL)
            if header_size:
                header = PyBytes_FromStringAndSize(body, header_size)
            run.append(
                delivery(
                    subject,
                    PyBytes_FromStringAndSize(body + header_size, size - header_size),
                    b"" if header is None else header,
                    "" if reply is None else reply,
                )
            )
        except ValueError:  # UnicodeDecodeError is one
            run.append(
                deliver(
                    PyBytes_FromStringAndSize(words[0].at, words[0].size),
                    PyBytes_FromStringAndSize(body + header_size, size - header_size),
                    PyBytes_FromStringAndSize(body, header_size),
                    b"" if count == 2 + numbers
                    else PyBytes_FromStringAndSize(words[2].at, words[2].size),
                )
            )
        p = body + size + 2


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
    cdef Py_ssize_t count = 0, place
    if size < 8 or memcmp(p, b"$JS.ACK.", 8) != 0:
        return False
    while p != NULL and count < TOKENS:
        tokens[count] = p
        count += 1
        p = <const char*>memchr(p, 46, end - p)  # a dot
        if p != NULL:
            p += 1
    if p != NULL or (count != 9 and count != 11 and count != 12):
        return False
    place = 5 if count == 9 else 7
    return (
        int64(tokens[place], tokens[place + 1] - 1, number)
        and int64(tokens[place + 2], tokens[place + 3] - 1, stamp)
    )


def stored(list replies):
    """Return numbers and times in columns; see ``splitter.stored_in_python``."""
    cdef Py_ssize_t count = len(replies), row, size
    cdef array.array numbers = array.clone(_INT64, count, False)
    cdef array.array times = array.clone(_INT64, count, False)
    cdef int64_t* number = <int64_t*>numbers.data.as_voidptr
    cdef int64_t* stamp = <int64_t*>times.data.as_voidptr
    cdef const char* text
    cdef str reply
    for row in range(count):
        reply = replies[row]
        if reply is None:
            raise TypeError("a reply subject is a string")
        if PyUnicode_IS_COMPACT_ASCII(reply):
            text = PyUnicode_AsUTF8AndSize(reply, &size)
            if not read_stored(text, size, number + row, stamp + row):
                return None
        elif (found := stored_as(reply)) is None:
            return None
        else:
            number[row], stamp[row] = found
    return numbers, times
