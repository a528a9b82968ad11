"""A file object for libhdf5 that leaves a readable file whenever the writer is killed.

libhdf5 flushes changes by address, and the superblock last. A process killed in between leaves a
superblock that excludes the newest chunks, or a table longer than its chunks, which libhdf5 cannot
read: 2 of 150 writers that flushed continuously and were killed left such a file. Here changes are
buffered until the flush, and written in an order in which no structure refers to one that is not
yet written.
"""

import bisect
import io
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

SUPERBLOCK, FULL_HEAP, DATA, HEAP, TREE, SYMBOLS, HEADER = range(7)
"""The order: the end of the file, records and names, their indexes, their counts."""

NOTHING_FREE = (1).to_bytes(8, "little")
"""The free list pointer of a name heap without free space."""

_MAGIC = {
    b"\x89HDF": (SUPERBLOCK, 96),
    b"TREE\0": (TREE, 544),
    b"TREE\x01": (TREE, 2096),
    b"SNOD": (SYMBOLS, 328),
    b"HEAP": (HEAP, 32),
}
"""Signatures of structures, and their sizes in files with libhdf5's defaults and
one-dimensional tables; adjacent structures are in one write."""


class OrderedFile(io.RawIOBase):
    """The file object for h5py."""

    def __init__(self, fd: int) -> None:
        """Write to the empty file `fd`, which is closed with this object."""
        self._fd = fd
        self._position = 0
        self._size = 0
        self._end = 0
        """End of the part visible to readers; beyond it, data is written immediately."""
        self._starts: list[int] = []
        self._held: dict[int, bytes] = {}
        """Changes of the part visible to readers, by address, without overlaps."""

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
        """Read written data, buffered or not."""
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
        """Write data beyond the part visible to readers, and buffer the rest."""
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
        """Extend the file; it is never shortened, which is harmless to readers."""
        self._size = self._position if size is None else size
        if self._size > os.fstat(self._fd).st_size:
            os.ftruncate(self._fd, self._size)
        return self._size

    def flush(self) -> None:
        """Write the buffered changes, in order."""
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
        """Redirect further writes to ``/dev/null``; other processes keep the file."""
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(null, self._fd, inheritable=False)
        os.close(null)

    def _order(self, address: int, data: bytes) -> Iterator["_Piece"]:
        """Split a write into structures, each with its rank in the order."""
        while data:
            kind, size = _classify(data)
            piece, depth = data[:size], 0
            if kind > DATA and os.pread(self._fd, 2, address) != data[:2]:
                kind = DATA  # a new structure in unused space
            if kind == HEAP:  # its free list is invalid while names are written
                full = piece[:16] + NOTHING_FREE + piece[24:]
                yield _Piece((FULL_HEAP, 0), address, full)
            elif kind == TREE:
                depth = -data[5]  # a node precedes its children when it is split
            yield _Piece((kind, depth), address, piece)
            address, data = address + size, data[size:]

    def _overlapping(self, start: int, stop: int) -> list[int]:
        """Return the addresses of buffered pieces that overlap a range."""
        first = bisect.bisect_right(self._starts, start) - 1
        if first < 0 or self._starts[first] + len(self._held[self._starts[first]]) <= start:
            first += 1
        return self._starts[first : bisect.bisect_left(self._starts, stop)]

    def _hold(self, start: int, data: bytes) -> None:
        """Buffer a piece until the flush, replacing what it overlaps."""
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
