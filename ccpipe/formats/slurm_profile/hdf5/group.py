"""Groups: names that link to other groups and to datasets."""

import struct
from collections.abc import Iterator

from ccpipe.formats.slurm_profile.errors import (
    ForeignProfileError,
    LiveProfileError,
    NewerFormatError,
)
from ccpipe.formats.slurm_profile.hdf5.attribute import Value, read_attributes
from ccpipe.formats.slurm_profile.hdf5.dataset import Dataset
from ccpipe.formats.slurm_profile.hdf5.messages import (
    LAYOUT,
    SYMBOL_TABLE,
    UNDEFINED,
    HeaderMessage,
    read_header,
    unpack,
)
from ccpipe.formats.slurm_profile.hdf5.storage import Storage

SIGNATURE = b"\x89HDF\r\n\x1a\n"
SUPERBLOCK = 96
"""Bytes; all that Slurm's plug-in has on disk while a step runs."""

MAX_DEPTH = 16
MAX_NAME = 1024
SOFT_LINK = 2


class Group:
    """One group; its links are read with it, what they lead to is read when asked for."""

    def __init__(self, storage: Storage, messages: list[HeaderMessage], path: str) -> None:
        """Read the links that the header's `messages` lead to; `path` is the group's name."""
        self.path = path
        self.attributes: dict[str, Value] = read_attributes(storage, messages)
        self._storage = storage
        self._links = _read_links(storage, messages)
        self._opened: dict[str, Group | Dataset] = {}

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in the order of their bytes, as libhdf5's name index does."""
        return iter(self._links)

    def __len__(self) -> int:
        return len(self._links)

    def __contains__(self, name: object) -> bool:
        return name in self._links

    def open(self, name: str) -> "Group | Dataset":
        """Read what `name` links to.

        Raises
        ------
        KeyError
            if there is no such name
        DamagedProfileError, NewerFormatError

        """
        if name not in self._opened:
            self._opened[name] = self._read(self._links[name], f"{self.path.rstrip('/')}/{name}")
        return self._opened[name]

    def group(self, name: str) -> "Group | None":
        """Return a group of this group; None if the name is missing or leads to a dataset."""
        found = self.open(name) if name in self._links else None
        return found if isinstance(found, Group) else None

    def _read(self, address: int, path: str) -> "Group | Dataset":
        messages = read_header(self._storage, address)
        if any(message.type == LAYOUT for message in messages):
            return Dataset(self._storage, messages, path)
        return Group(self._storage, messages, path)


def open_root(storage: Storage) -> Group:
    """Read the superblock and return the root group.

    Raises
    ------
    LiveProfileError
        for a file of which only the superblock was written
    ForeignProfileError, DamagedProfileError, NewerFormatError

    """
    if storage.size == 0:
        raise LiveProfileError(storage.path, "the file is empty")
    head = storage.read(0, min(storage.size, SUPERBLOCK))
    if not head.startswith(SIGNATURE):
        raise ForeignProfileError(storage.path, "not an HDF5 file")
    if len(head) < SUPERBLOCK:
        raise storage.damaged(f"truncated after {len(head)} bytes")
    version, offsets, lengths = head[8], head[13], head[14]
    if version > 1:
        raise NewerFormatError(storage.path, f"superblock of version {version}")
    if (offsets, lengths) != (8, 8):
        raise storage.damaged(f"addresses of {offsets} and lengths of {lengths} bytes")
    start = 24 if version == 0 else 28
    base, _, _, _, _, root = struct.unpack_from("<6Q", storage.read(start, 48))
    if base != 0:
        raise storage.damaged(f"the file starts at address {base}")
    if storage.size <= SUPERBLOCK and root >= storage.size:
        raise LiveProfileError(
            storage.path,
            "only the superblock is on disk: the step still runs, or its slurmstepd was killed",
        )
    return Group(storage, read_header(storage, root), "/")


def _read_links(storage: Storage, messages: list[HeaderMessage]) -> dict[str, int]:
    tables = [message.data for message in messages if message.type == SYMBOL_TABLE]
    if len(tables) != 1:
        raise storage.damaged("an object is neither group nor dataset")
    tree, heap = unpack(storage, "<QQ", tables[0])
    names = _read_heap(storage, heap)
    links: dict[str, int] = {}
    if tree != UNDEFINED:
        for node in _leaves(storage, tree):
            links.update(_read_symbols(storage, node, names))
    return dict(sorted(links.items(), key=lambda link: link[0].encode()))


def _read_heap(storage: Storage, address: int) -> bytes:
    head = storage.read(address, 32)
    size, _, data = struct.unpack_from("<8xQQQ", head)
    if head[:5] != b"HEAP\0":
        raise storage.damaged(f"no heap of names at address {address}")
    return storage.read(data, size)


def _leaves(storage: Storage, address: int, depth: int = 0) -> Iterator[int]:
    """Return the addresses of the symbol nodes below a node of a group's tree."""
    storage.visit(address)
    head = storage.read(address, 24)
    if head[:5] != b"TREE\0" or depth > MAX_DEPTH:
        raise storage.damaged(f"no tree of names at address {address}")
    level, count = head[5], int.from_bytes(head[6:8], "little")
    children = struct.unpack(f"<{2 * count}Q", storage.read(address + 24, 16 * count))[1::2]
    for child in children:
        if level == 0:
            yield child
        else:
            yield from _leaves(storage, child, depth + 1)


def _read_symbols(storage: Storage, address: int, names: bytes) -> Iterator[tuple[str, int]]:
    storage.visit(address)
    head = storage.read(address, 8)
    if head[:5] != b"SNOD\x01":
        raise storage.damaged(f"no names at address {address}")
    count = int.from_bytes(head[6:8], "little")
    for entry in struct.iter_unpack("<QQI20x", storage.read(address + 8, 40 * count)):
        offset, header, cache = entry
        end = names.find(b"\0", offset, offset + MAX_NAME)
        if end < 0:
            raise storage.damaged("a name has no end")
        if cache == SOFT_LINK:
            continue  # leads to another place by name; no profile has one
        yield _decode(storage, names[offset:end]), header


def _decode(storage: Storage, raw: bytes) -> str:
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        name = ""
    if not name or name == "." or "/" in name:
        raise storage.damaged(f"{raw!r:.80} cannot be a name")
    return name
