"""Datasets of records: what libhdf5's packet tables are on disk."""

import zlib
from collections.abc import Iterator

import numpy as np

from ccpipe.formats.slurm_profile.errors import NewerFormatError
from ccpipe.formats.slurm_profile.hdf5.arrays import Records
from ccpipe.formats.slurm_profile.hdf5.attribute import Value, count_elements, read_attributes
from ccpipe.formats.slurm_profile.hdf5.datatype import read_datatype
from ccpipe.formats.slurm_profile.hdf5.messages import (
    DATASPACE,
    DATATYPE,
    EXTERNAL,
    FILTERS,
    LAYOUT,
    UNDEFINED,
    HeaderMessage,
    unpack,
)
from ccpipe.formats.slurm_profile.hdf5.storage import Storage
from ccpipe.formats.slurm_profile.hdf5.stored import HEAD, TAIL, unpack_stored

DEFLATE = 1
VERSION = 3
"""Of the layout, in files of libhdf5 1.6.3 to 1.14."""

DIMENSIONS = 2
"""Of a chunk: rows, and the bytes of a record."""

COMPACT, CONTIGUOUS, CHUNKED = 0, 1, 2
MAX_CHUNK = 64 * 2**20
"""Bytes of one chunk in memory; Slurm's have less than a thousand."""

MAX_DEPTH = 16
_CHUNK = np.dtype(
    [("size", "<u4"), ("skipped", "<u4"), ("row", "<u8"), ("byte", "<u8"), ("address", "<u8")]
)
"""A key of a chunk tree and the child that follows it."""


class Dataset:
    """A table of records, read in slices."""

    def __init__(self, storage: Storage, messages: list[HeaderMessage], path: str) -> None:
        """Read what the header's `messages` say; `path` is the dataset's name in the file."""
        self.path = path
        self.attributes: dict[str, Value] = read_attributes(storage, messages)
        self._storage = storage
        first = {message.type: message.data for message in reversed(messages)}
        if EXTERNAL in first:
            raise storage.damaged("the records are in another file, which is not opened", path)
        if not {DATASPACE, DATATYPE} <= set(first):
            raise storage.damaged("a dataset without type or size", path)
        self.dtype = read_datatype(storage, first[DATATYPE]).dtype
        self.claimed = count_elements(storage, first[DATASPACE])
        """Rows that the header promises."""
        self._deflated = _is_deflated(storage, first.get(FILTERS))
        self._compact: bytes | None = None
        self._rows_per_chunk, self._chunks = self._read_layout(first[LAYOUT])
        self._rows = min(self.claimed, self._count_stored())

    def __len__(self) -> int:
        """Return the rows that are there; fewer than ``claimed`` in a damaged file."""
        return self._rows

    def read(self, start: int = 0, stop: int | None = None) -> Records:
        """Return rows from `start` up to `stop`; raise DamagedProfileError for bad chunks."""
        stop = min(self._rows, self._rows if stop is None else stop)
        per = self._rows_per_chunk
        if stop <= start:
            return np.empty(0, self.dtype)
        first, last = start // per, (stop - 1) // per
        data = self._compact or self._unpack(self._chunks[first : last + 1])
        rows = np.frombuffer(data, self.dtype)
        return rows[start - first * per : stop - first * per]

    def _read_layout(self, data: bytes) -> tuple[int, Records]:
        """Return the rows of a chunk and all chunks, sorted by row."""
        storage, width = self._storage, self.dtype.itemsize
        version, kind = unpack(storage, "<BB", data)
        if version > VERSION:
            raise NewerFormatError(storage.path, f"dataset layout of version {version}", self.path)
        if version < VERSION:
            raise storage.damaged(f"dataset layout of version {version}", self.path)
        if kind == COMPACT:
            size = unpack(storage, "<H", data, 2)[0]
            self._compact = data[4 : 4 + size]
            return max(size // width, 1), _whole(len(self._compact), 0)
        if kind == CONTIGUOUS:
            address, size = unpack(storage, "<QQ", data, 2)
            size = 0 if address == UNDEFINED else size // width * width
            storage.claim(size)
            return max(size // width, 1), _whole(size, address)
        dimensions, tree, rows, element = unpack(storage, "<BQII", data, 2)
        if kind != CHUNKED or dimensions != DIMENSIONS or element != width or not rows:
            raise storage.damaged("chunks that do not fit the records", self.path)
        if rows * width > MAX_CHUNK:
            raise storage.damaged(f"chunks of {rows * width} bytes", self.path)
        return rows, self._read_chunks(tree, rows)

    def _read_chunks(self, tree: int, rows: int) -> Records:
        nodes = b"".join(self._leaves(tree)) if tree != UNDEFINED else b""
        chunks = np.frombuffer(nodes, _CHUNK)
        starts = chunks["row"]
        if not (starts[1:] > starts[:-1]).all():
            # While libhdf5 splits a node, both halves may list the same chunks.
            chunks = chunks[np.unique(starts, return_index=True)[1]]
        sound = (chunks["row"] == np.arange(len(chunks), dtype="<u8") * np.uint64(rows)) & (
            chunks["address"] + chunks["size"] <= self._storage.size
        )
        sound &= chunks["address"] < self._storage.size
        chunks = chunks[: len(chunks) if sound.all() else int(np.argmin(sound))]
        self._storage.claim(int(chunks["size"].sum()))
        return chunks

    def _leaves(self, address: int, depth: int = 0) -> Iterator[bytes]:
        self._storage.visit(address)
        head = self._storage.read(address, 24)
        level, count = head[5], int.from_bytes(head[6:8], "little")
        if head[:5] != b"TREE\x01" or depth > MAX_DEPTH:
            raise self._storage.damaged(f"no tree of chunks at address {address}", self.path)
        node = self._storage.read(address + 24, count * _CHUNK.itemsize)
        if level == 0:
            yield node
            return
        for child in np.frombuffer(node, _CHUNK)["address"].tolist():
            yield from self._leaves(child, depth + 1)

    def _count_stored(self) -> int:
        if self._compact is not None:
            return len(self._compact) // self.dtype.itemsize
        return len(self._chunks) * self._rows_per_chunk

    def _unpack(self, chunks: Records) -> bytes:
        """Return the records of some chunks."""
        size = self._rows_per_chunk * self.dtype.itemsize
        places = zip(chunks["address"].tolist(), chunks["size"].tolist(), strict=True)
        loaded = self._storage.read_many(list(places))
        if self._deflated and len({*map(len, loaded)}) == 1 and not chunks["skipped"].any():
            grid = np.frombuffer(b"".join(loaded), np.uint8).reshape(len(loaded), -1)
            records = unpack_stored(grid) if grid.shape[1] == size + HEAD + TAIL else None
            if records is not None:
                return records
        rows, skipped = chunks["row"].tolist(), chunks["skipped"].tolist()
        return b"".join(
            self._unpack_one(data, size, row, deflated=self._deflated and not skip & 1)
            for data, row, skip in zip(loaded, rows, skipped, strict=True)
        )

    def _unpack_one(self, data: bytes, size: int, row: int, *, deflated: bool) -> bytes:
        try:
            records = zlib.decompressobj().decompress(data, size + 1) if deflated else data
        except zlib.error as error:
            raise self._storage.damaged(f"row {row}: {error}", self.path) from None
        if len(records) != size:
            reason = f"row {row}: {len(records)} bytes in a chunk of {size}"
            raise self._storage.damaged(reason, self.path)
        return records


def _whole(size: int, address: int) -> Records:
    """Return all records as a single chunk, if there are any."""
    return np.array([(size, 0, 0, 0, address)] if size else [], _CHUNK)


def _is_deflated(storage: Storage, data: bytes | None) -> bool:
    """Return whether chunks are deflated; raise NewerFormatError for other filters."""
    if data is None:
        return False
    version, count = unpack(storage, "<BB", data)
    start = 8 if version == 1 else 2
    if count == 0:
        return False
    if count > 1 or unpack(storage, "<H", data, start)[0] != DEFLATE:
        raise NewerFormatError(storage.path, "chunks with other filters than deflate")
    return True
