"""Datatypes of fields and attributes, as numpy writes them."""

import functools
from typing import Any, NamedTuple

import numpy as np

from ccpipe.formats.slurm_profile.hdf5.messages import unpack
from ccpipe.formats.slurm_profile.hdf5.storage import Storage

FIXED_POINT, FLOATING_POINT, STRING, COMPOUND = 0, 1, 3, 6
"""Classes that profiles use."""

MAX_RECORD = 2**16
"""Bytes of one record; Slurm's longest has 96."""

MAX_STRING = 2**16

PADDED, PACKED = 2, 3
"""Versions of record types after the first."""


class Datatype(NamedTuple):
    """One datatype and how many bytes describe it."""

    dtype: np.dtype[Any]
    size: int


def read_datatype(storage: Storage, data: bytes, *, nested: bool = False) -> Datatype:
    """Read the datatype at the start of `data`.

    Raises
    ------
    DamagedProfileError
        also for types that no profile has: references, lists of any length, arrays.

    """
    head, bits, _, size = unpack(storage, "<BBHI", data)
    kind, version = head & 15, head >> 4
    if kind == COMPOUND and not nested:
        return _compound(storage, data, version, size)
    if kind == FIXED_POINT and size in (1, 2, 4, 8):
        letter = "i" if bits & 8 else "u"
        return Datatype(_number(f"{'><'[not bits & 1]}{letter}{size}"), 12)
    if kind == FLOATING_POINT and size in (4, 8):
        return Datatype(_number(f"{'><'[not bits & 1]}f{size}"), 20)
    if kind == STRING and 0 < size <= MAX_STRING:
        return Datatype(np.dtype(f"S{size}"), 8)
    raise storage.damaged(f"a datatype of class {kind} and {size} bytes, which no profile has")


def _compound(storage: Storage, data: bytes, version: int, size: int) -> Datatype:
    count = unpack(storage, "<xH", data)[0]
    if not 1 <= version <= PACKED or not 0 < size <= MAX_RECORD or count > size:
        raise storage.damaged(f"a record type of version {version} with {size} bytes")
    names: list[str] = []
    formats: list[np.dtype[Any]] = []
    offsets: list[int] = []
    position = 8
    for _ in range(count):
        name, position = _name(storage, data, position, padded=version < PACKED)
        offset, position = _offset(storage, data, position, version, size)
        member = read_datatype(storage, data[position:], nested=True)
        if offset + member.dtype.itemsize > size or name in names or not name:
            raise storage.damaged(f"field {name!r:.80} does not fit its record")
        names.append(name)
        formats.append(member.dtype)
        offsets.append(offset)
        position += member.size
    return Datatype(_record(tuple(names), tuple(formats), tuple(offsets), size), position)


@functools.lru_cache(64)
def _number(text: str) -> np.dtype[Any]:
    return np.dtype(text)


@functools.lru_cache(64)
def _record(
    names: tuple[str, ...], formats: tuple[np.dtype[Any], ...], offsets: tuple[int, ...], size: int
) -> np.dtype[Any]:
    """Return a record type; all tables of a series have the same."""
    fields = {"names": names, "formats": formats, "offsets": offsets, "itemsize": size}
    made: np.dtype[Any] = np.dtype(fields)  # type: ignore[call-overload]
    return made


def _name(storage: Storage, data: bytes, position: int, *, padded: bool) -> tuple[str, int]:
    end = data.find(b"\0", position, position + 1024)
    if end < 0:
        raise storage.damaged("a field name has no end")
    length = end - position + 1
    try:
        name = data[position:end].decode()
    except UnicodeDecodeError:
        raise storage.damaged("a field name is no UTF-8") from None
    return name, position + (-(-length // 8) * 8 if padded else length)


def _offset(
    storage: Storage, data: bytes, position: int, version: int, size: int
) -> tuple[int, int]:
    """Return where a member lies in the record, and the position of its type."""
    if version == PACKED:
        width = (size.bit_length() + 7) // 8
        raw = data[position : position + width]
        return int.from_bytes(raw, "little"), position + width
    offset = unpack(storage, "<I", data, position)[0]
    if version == PADDED:
        return offset, position + 4
    if unpack(storage, "<B", data, position + 4)[0] != 0:
        raise storage.damaged("a field is an array, which no profile has")
    return offset, position + 32
