"""A file that libhdf5 writes through, and that can be read whenever its writer is killed.

libhdf5 flushes what it changed by address, and the superblock last. A process that is killed in
between leaves a superblock that denies the newest chunks, or a table longer than its chunks, which
libhdf5 then cannot read: 2 of 150 writers that flushed all the time and were killed left such a
file. Here everything is held back until the flush, and written in an order in which nothing
refers to what is not there yet.
"""

import bisect
import io
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

SUPERBLOCK, FULL_HEAP, DATA, HEAP, TREE, SYMBOLS, HEADER = range(7)
"""The order: the end of the file, records and names, what finds them, and what counts them."""

NOTHING_FREE = (1).to_bytes(8, "little")
"""Stands in the head of a heap of names that has no list of free places."""

_MAGIC = {
    b"\x89HDF": (SUPERBLOCK, 96),
    b"TREE\0": (TREE, 544),
    b"TREE\x01": (TREE, 2096),
    b"SNOD": (SYMBOLS, 328),
    b"HEAP": (HEAP, 32),
}
"""How structures begin, and their sizes in files with libhdf5's defaults and tables of one
dimension; several that are neighbours arrive in one write."""


class OrderedFile(io.RawIOBase):
    """The file object that h5py gets."""

    def __init__(self, fd: int) -> None:
        """Write to the empty file `fd`, which is closed with this object."""
        self._fd = fd
        self._position = 0
        self._size = 0
        self._end = 0
        """Where the part that readers know ends: all beyond it may be written at once."""
        self._starts: list[int] = []
        self._held: dict[int, bytes] = {}
        """Changes of the part that readers know, by address; they do not overlap."""

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Read what was written, held back or not."""
        view = memoryview(buffer).cast("B")
        start, stop = self._position, self._position + len(view)
        data = os.pread(self._fd, len(view), start)
        view[: len(data)] = data
        for address in self._overlapping(start, stop):
            held = self._held[address]
            low, high = max(address, start), min(address + len(held), stop)
            view[low - start : high - start] = held[low - address : high - address]
        self._position += len(view)
        return len(view)

    def write(self, buffer: "ReadableBuffer") -> int:
        """Write beyond what readers know, and hold back the rest."""
        data = bytes(buffer)
        start = self._position
        border = max(0, min(len(data), self._end - start))
        if border:
            self._hold(start, data[:border])
        if border < len(data):
            _write_all(self._fd, data[border:], start + border)
        self._position += len(data)
        self._size = max(self._size, self._position)
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Make the file longer; it is never made shorter, which no reader minds."""
        self._size = self._position if size is None else size
        if self._size > os.fstat(self._fd).st_size:
            os.ftruncate(self._fd, self._size)
        return self._size

    def flush(self) -> None:
        """Write what is held back, in order."""
        if self.closed:
            return
        pieces = [piece for item in self._held.items() for piece in self._order(*item)]
        for piece in sorted(pieces):
            _write_all(self._fd, piece.data, piece.address)
        self._held.clear()
        self._starts.clear()
        self._end = self._size

    def close(self) -> None:
        """Flush, and close the file."""
        if not self.closed:
            try:
                self.flush()
            finally:
                super().close()
                os.close(self._fd)

    def detach_file(self) -> None:
        """Let everything from now on go to ``/dev/null``; other processes keep the file."""
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nowhere, self._fd, inheritable=False)
        os.close(nowhere)

    def _order(self, address: int, data: bytes) -> Iterator["_Piece"]:
        """Take a write apart into structures, each with its place in the order."""
        while data:
            kind, size = _classify(data)
            piece, depth = data[:size], 0
            if kind > DATA and os.pread(self._fd, 2, address) != data[:2]:
                kind = DATA  # a new structure, in what was left of the space for such
            if kind == HEAP:  # while names are written, its list of free places cannot be right
                full = piece[:16] + NOTHING_FREE + piece[24:]
                yield _Piece((FULL_HEAP, 0), address, full)
            elif kind == TREE:
                depth = -data[5]  # a node before its children, while it is split
            yield _Piece((kind, depth), address, piece)
            address, data = address + size, data[size:]

    def _overlapping(self, start: int, stop: int) -> list[int]:
        """Return the addresses of held pieces that reach into a range."""
        first = bisect.bisect_right(self._starts, start) - 1
        if first < 0 or self._starts[first] + len(self._held[self._starts[first]]) <= start:
            first += 1
        return self._starts[first : bisect.bisect_left(self._starts, stop)]

    def _hold(self, start: int, data: bytes) -> None:
        """Keep a piece until the flush; what it covers of others is forgotten."""
        if len(self._held.get(start, b"")) == len(data):
            self._held[start] = data
            return
        stop = start + len(data)
        for address in self._overlapping(start, stop):
            held = self._held.pop(address)
            self._starts.remove(address)
            if address < start:
                self._insert(address, held[: start - address])
            if address + len(held) > stop:
                self._insert(stop, held[stop - address :])
        self._insert(start, data)

    def _insert(self, address: int, data: bytes) -> None:
        bisect.insort(self._starts, address)
        self._held[address] = data


class _Piece(NamedTuple):
    order: tuple[int, int]
    address: int
    data: bytes


def _classify(data: bytes) -> tuple[int, int]:
    for magic, (kind, size) in _MAGIC.items():
        if data.startswith(magic):
            return kind, min(size, len(data))
    if data.startswith(b"\x01\0"):
        ends = [end for magic in _MAGIC if (end := data.find(magic, 16)) > 0]
        return HEADER, min(ends, default=len(data))
    return DATA, len(data)


def _write_all(fd: int, data: bytes, address: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, address)
        view, address = view[count:], address + count
