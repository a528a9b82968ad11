"""The process that reads HDF5 files for ``hdf5``, so that crashes are harmless.

Memory and CPU time are limited, so that a hostile file can only make it fail. Links to other files
are not followed, and rows in external files are not read.
"""

import contextlib
import io
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ccpipe.errors import MissingExtra
from ccpipe.formats.slurm_profile.hdf5 import (
    HEAD,
    SUPERBLOCK,
    Failure,
    GroupReply,
    ObjectRequest,
    Reply,
    RowsReply,
    TableReply,
    Value,
)

try:
    import h5py
except ImportError:
    raise MissingExtra("h5py", "hdf5") from None

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

SECONDS = 60
"""CPU time per request; reading a whole job file of 150 MB takes two seconds."""

MEMORY = 4 * 2**30
READ_WHOLE = 64 * 2**20
"""Files up to this size are read at once."""

MAX_BYTES = 256 * 2**20
"""Total size of open files; the least recently used are closed, and reopened if needed."""

MAX_FILES = 256
EXPANSION = 1032
"""Maximum ratio of the tables' size to the file's, plus ``HEADROOM``: deflate's maximum."""

HEADROOM = 256 * 2**20
MAX_CHUNK = 64 * 2**20
"""Bytes of a chunk in memory; Slurm's have less than a thousand."""

SMALL = 2**16

MAX_DEPTH = 16
END_OF_FILE = {0: 40, 1: 44, 2: 28, 3: 28}
"""Offset of the file's length in superblocks of each version."""


class OpenFile:
    """An open file."""

    def __init__(self, path: bytes, inode: tuple[int, int]) -> None:
        status = Path(os.fsdecode(path)).stat()
        if (status.st_dev, status.st_ino) != inode:
            raise ValueError("the file was replaced while it was read")
        self.size = status.st_size
        self.file = _open(os.fsdecode(path), self.size)
        self._left = self.size * EXPANSION + HEADROOM
        self._names: dict[int, str] = {}
        self._last: tuple[str, Any] = "", None

    def describe(self, name: str) -> GroupReply | TableReply:
        item = self._find(name)
        if isinstance(item, h5py.Group):
            names = [other for other in map(_name, item) if _is_hard_link(item, other)]
            return GroupReply(sorted(names, key=str.encode), dict(_attributes(item)))
        rows = self._count_rows(item)
        width = item.dtype.itemsize
        self._left -= rows * width
        if self._left < 0:
            raise ValueError("the tables claim far more bytes than the file has")
        fields = [
            (field, kind.str, offset)
            for field, (kind, offset, *_) in (item.dtype.fields or {}).items()
        ]
        return TableReply(fields, width, rows, item.size)

    def read(self, name: str, start: int, stop: int) -> RowsReply:
        table = self._find(name)
        if table.ndim == 0:
            return RowsReply(table[()].tobytes())
        try:
            return RowsReply(table[start:stop].tobytes())
        except OSError as error:
            if stop - start == 1:
                row = start - start % (table.chunks or [1])[0]
                raise ValueError(f"row {row}: {error}") from None
            middle = (start + stop) // 2
            halves = self.read(name, start, middle), self.read(name, middle, stop)
            return RowsReply(halves[0].data + halves[1].data)

    def _find(self, name: str) -> Any:
        """Return an object by hard links only; a table only if its rows are in this file."""
        if name == self._last[0]:
            return self._last[1]
        item: Any = self.file["/"]
        parts = [part for part in name.split("/") if part]
        for part in parts:
            if not _is_hard_link(item, part):
                raise ValueError("a link to another place")
            item = item[part]
        first = self._names.setdefault(h5py.h5o.get_info(item.id).addr, name)
        if first != name or len(parts) > MAX_DEPTH:
            raise ValueError(f"linked to twice: as {first!r:.80} too")
        if not isinstance(item, h5py.Group):
            _check_table(item)
        self._last = name, item
        return item

    def _count_rows(self, table: Any) -> int:
        """Return the number of leading rows whose bytes are in the file."""
        layout = table.id.get_create_plist().get_layout()
        if layout == h5py.h5d.COMPACT:
            return int(table.size)
        if layout == h5py.h5d.CONTIGUOUS:
            offset = table.id.get_offset()
            stored = 0 if offset is None else max(0, self.size - offset) // table.dtype.itemsize
            return min(int(table.size), stored)
        rows, per = int(table.size), int(table.chunks[0])
        starts: list[int] = []

        def add(chunk: Any) -> None:
            if chunk.byte_offset + chunk.size <= self.size:
                starts.append(chunk.chunk_offset[0])

        table.id.chunk_iter(add)
        gaps = (number for number, start in enumerate(sorted(starts)) if start != number * per)
        return min(rows, next(gaps, len(starts)) * per)


def _open(path: str, size: int) -> Any:
    """Open a file, even if truncated, or left open for SWMR by a killed process."""
    if size < (end := _end_of_file(path)):
        return h5py.File(_TruncatedFile(path, end), "r", locking=False)
    options = {"driver": "core", "backing_store": False} if size <= READ_WHOLE else {}
    try:
        return h5py.File(path, "r", locking=False, **options)
    except OSError as error:
        with contextlib.suppress(OSError):
            return h5py.File(path, "r", locking=False, swmr=True)
        raise error from None


class _TruncatedFile(io.FileIO):
    """A truncated file that reports its full length, which libhdf5 requires to open it."""

    def __init__(self, path: str, end: int) -> None:
        super().__init__(path)
        self._end = end

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        at_end = whence == os.SEEK_END
        return super().seek(self._end + offset if at_end else offset, 0 if at_end else whence)

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill the buffer; raises OSError beyond the end."""
        count = super().readinto(buffer) or 0
        if count < memoryview(buffer).nbytes:
            raise OSError("beyond the end of the file, which is truncated")
        return count


def _end_of_file(path: str) -> int:
    with Path(path).open("rb") as file:
        head = file.read(SUPERBLOCK)
    position = END_OF_FILE.get(head[8], len(head))
    return int.from_bytes(head[position : position + 8], "little")


def _name(name: str | bytes) -> str:
    if isinstance(name, bytes):
        raise ValueError(f"{name!r:.80} cannot be a name")  # noqa: TRY004 - of the file
    return name


def _is_hard_link(group: Any, name: str) -> bool:
    return bool(group.id.links.get_info(name.encode()).type == h5py.h5l.TYPE_HARD)


def _check_table(item: Any) -> None:
    if not isinstance(item, h5py.Dataset):
        raise ValueError("neither group nor dataset")  # noqa: TRY004 - of the file
    if item.external or item.is_virtual:
        raise ValueError("keeps its rows in other files")
    if item.shape is None or item.ndim > 1:
        raise ValueError("not a table: it has no dimension, or several")
    if item.dtype.hasobject or item.dtype.itemsize > SMALL:
        raise ValueError("a datatype which no profile has")
    if item.chunks and item.chunks[0] * item.dtype.itemsize > MAX_CHUNK:
        raise ValueError(f"chunks of {item.chunks[0] * item.dtype.itemsize} bytes")


def _attributes(item: Any) -> list[tuple[str, Value]]:
    """Return the attributes with one number or text; others are not used in profiles."""
    found: list[tuple[str, Value]] = []
    for name in map(_name, item.attrs):
        attribute = item.attrs.get_id(name)
        single = attribute.get_space().get_simple_extent_npoints() == 1
        if single and attribute.dtype.kind in "iufS" and attribute.dtype.itemsize <= SMALL:
            value = item.attrs[name]
            value = value.item() if hasattr(value, "item") else value
            if attribute.dtype.kind == "f":
                value = float(value)  # of 16 bytes too
            if isinstance(value, bytes):
                value = value.partition(b"\0")[0].decode(errors="replace")
            found.append((name, value))
    return found


class Reader:
    """Answers requests, and caches open files."""

    def __init__(self) -> None:
        self._files: dict[int, OpenFile] = {}
        """In the order of last use."""

    def answer(self, request: ObjectRequest) -> Reply:
        try:
            file = self._files.pop(request.file, None)
            if not request.name:
                if file is not None:
                    file.file.close()
                return Failure("closed")
            file = file or OpenFile(request.path, request.inode)
            self._keep(request.file, file)
            if request.stop is None:
                return file.describe(request.name)
            return file.read(request.name, request.start, request.stop)
        except Exception as error:  # noqa: BLE001 - libhdf5 and h5py raise anything for bad files
            words = str(error.args[0]) if isinstance(error, KeyError) else str(error)
            return Failure(" ".join(words.split()) or type(error).__name__)

    def _keep(self, number: int, file: OpenFile) -> None:
        size = file.size + sum(other.size for other in self._files.values())
        while self._files and (size > MAX_BYTES or len(self._files) >= MAX_FILES):
            oldest = self._files.pop(next(iter(self._files)))
            oldest.file.close()
            size -= oldest.size
        self._files[number] = file


def main() -> None:
    """Answer requests from standard input on standard output."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    decoder, encoder = msgspec.msgpack.Decoder(ObjectRequest), msgspec.msgpack.Encoder()
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    reader = Reader()
    while size := int.from_bytes(requests.read(HEAD), "little"):
        request = decoder.decode(requests.read(size))
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + SECONDS, hard))
        data = encoder.encode(reader.answer(request))
        replies.write(len(data).to_bytes(HEAD, "little") + data)
        replies.flush()


if __name__ == "__main__":
    main()
