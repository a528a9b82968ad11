"""Attributes: the named values of a group or dataset."""

from typing import Any

import numpy as np

from ccpipe.formats.slurm_profile.hdf5.datatype import (
    FIXED_POINT,
    FLOATING_POINT,
    STRING,
    read_datatype,
)
from ccpipe.formats.slurm_profile.hdf5.messages import ATTRIBUTE, HeaderMessage, unpack
from ccpipe.formats.slurm_profile.hdf5.storage import Storage

Value = int | float | str

ENCODED = 3
"""The version that says the encoding of the name, in one byte more."""


def read_attributes(storage: Storage, messages: list[HeaderMessage]) -> dict[str, Value]:
    """Return the attributes that hold one number or text; all others mean nothing here."""
    found: dict[str, Value] = {}
    for message in messages:
        if message.type == ATTRIBUTE:
            name, value = _attribute(storage, message.data)
            if value is not None:
                found[name] = value
    return found


def _attribute(storage: Storage, data: bytes) -> tuple[str, Value | None]:
    version, *sizes = unpack(storage, "<BxHHH", data)
    if not 1 <= version <= ENCODED:
        raise storage.damaged(f"an attribute of version {version}")
    position = 9 if version == ENCODED else 8
    parts: list[bytes] = []
    for size in sizes:
        parts.append(data[position : position + size])
        position += -(-size // 8) * 8 if version == 1 else size
    name, datatype, dataspace = parts
    text = name.partition(b"\0")[0].decode(errors="replace")
    simple = datatype[:1] and datatype[0] & 15 in (FIXED_POINT, FLOATING_POINT, STRING)
    if not simple or count_elements(storage, dataspace) != 1:
        return text, None
    dtype = read_datatype(storage, datatype).dtype
    raw = data[position : position + dtype.itemsize]
    if len(raw) < dtype.itemsize:
        raise storage.damaged(f"attribute {text!r:.80} is cut short")
    return text, _value(raw, dtype)


def _value(raw: bytes, dtype: np.dtype[Any]) -> Value:
    if dtype.kind == "S":
        return raw.partition(b"\0")[0].decode(errors="replace")
    number: int | float = np.frombuffer(raw, dtype)[0].item()
    return number


def count_elements(storage: Storage, dataspace: bytes) -> int:
    """Return how many elements a dataspace of at most one dimension has."""
    version, rank = unpack(storage, "<BB", dataspace)
    if version not in (1, 2) or rank > 1:
        raise storage.damaged(f"a dataspace of version {version} with {rank} dimensions")
    if rank == 0:
        return 1
    return unpack(storage, "<Q", dataspace, 8 if version == 1 else 4)[0]
