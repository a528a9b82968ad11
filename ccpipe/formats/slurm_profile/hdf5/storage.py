"""The bytes of one file by address, and the record of what has been read of them."""

import os
import stat
from os import PathLike
from typing import Self

from ccpipe.formats.slurm_profile.errors import DamagedProfileError, ForeignProfileError

READ_WHOLE = 64 * 2**20
"""Files up to this size are read at once: a snapshot, even of a file that is being written."""

GAPS = 2**20
"""Bytes between chunks that are read along with them."""

MAX_OBJECTS = 2_000_000
"""Groups, tables and tree nodes in one file; a node-step file has less than a hundred."""


class Storage:
    """A file opened for reading, whatever happens to it meanwhile.

    Nothing is mapped into memory: a mapped file that is truncated, as Slurm does when a job is
    requeued, kills the process.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        """Open `path`; raise ``OSError`` where that fails, ForeignProfileError for no file."""
        self.path = os.fspath(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self._whole: bytes | None = None
        self._is_released = False
        self._visited: set[int] = set()
        self._claimed = 0
        try:
            status = os.fstat(self._fd)
            if not stat.S_ISREG(status.st_mode):
                raise ForeignProfileError(self.path, "not a regular file")
            self.size = status.st_size
            self.identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if self.size <= READ_WHOLE:
                self._whole = self._pread(0, self.size)
                self.size = len(self._whole)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; reading what is in memory still works."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def release(self) -> None:
        """Free the memory of a file that was read at once; the next reading reads it again.

        What changed in it meanwhile is then seen, as in a file that is not read at once.
        """
        if self._fd >= 0:
            self._is_released, self._whole = self._whole is not None, None

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes at `address`; raise DamagedProfileError if the file is shorter."""
        if address + size > self.size:
            raise self.damaged(
                f"{size} bytes at address {address} are beyond the end of the file at {self.size}"
            )
        whole = self._in_memory()
        data = self._pread(address, size) if whole is None else whole[address : address + size]
        if len(data) < size:
            raise self.damaged(f"the file was truncated at {address + len(data)} while it was read")
        return data

    def read_many(self, places: list[tuple[int, int]]) -> list[bytes]:
        """Return the bytes at addresses with sizes, in one piece where they lie close together.

        Those beyond the end of a file in memory are fewer.
        """
        whole = self._in_memory()
        if whole is not None:
            return [whole[address : address + size] for address, size in places]
        low = min(address for address, _ in places)
        high = max(address + size for address, size in places)
        if high - low > GAPS + 4 * sum(size for _, size in places):
            return [self.read(address, size) for address, size in places]
        piece = self.read(low, high - low)
        return [piece[address - low : address - low + size] for address, size in places]

    def visit(self, address: int) -> None:
        """Note a structure; raise DamagedProfileError for one met before.

        No program links to one place twice. Files that do so can be small and expand without
        bound, or have circles.
        """
        if address in self._visited:
            raise self.damaged(f"address {address} is linked to twice")
        if len(self._visited) >= MAX_OBJECTS:
            raise self.damaged(f"more than {MAX_OBJECTS} groups and tables")
        self._visited.add(address)

    def claim(self, size: int) -> None:
        """Note bytes of records; raise DamagedProfileError if all of them exceed the file.

        Chunks that share their bytes would let a small file expand without bound.
        """
        self._claimed += size
        if self._claimed > self.size:
            raise self.damaged("the tables claim more bytes than the file has")

    def damaged(self, reason: str, where: str = "") -> DamagedProfileError:
        """Return the error to raise."""
        return DamagedProfileError(self.path, reason, where)

    def _in_memory(self) -> bytes | None:
        """Return the whole file, if it is one of those that are read at once."""
        if self._is_released:
            self._whole, self._is_released = self._pread(0, self.size), False
        return self._whole

    def _pread(self, address: int, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0 and (part := os.pread(self._fd, size, address)):
            parts.append(part)
            address, size = address + len(part), size - len(part)
        return b"".join(parts)
