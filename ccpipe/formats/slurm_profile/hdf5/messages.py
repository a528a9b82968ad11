"""Object headers: the messages that describe a group or a dataset."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ccpipe.formats.slurm_profile.errors import NewerFormatError
from ccpipe.formats.slurm_profile.hdf5.storage import Storage

DATASPACE, DATATYPE, EXTERNAL, LAYOUT, FILTERS = 0x01, 0x03, 0x07, 0x08, 0x0B
ATTRIBUTE, CONTINUATION, SYMBOL_TABLE = 0x0C, 0x10, 0x11
LINK_INFO, LINK = 0x02, 0x06
"""Types of messages that mean something here; all others are skipped."""

UNDEFINED = 2**64 - 1
"""The address of what does not exist."""

MAX_HEADER = 2**20
"""Bytes in all messages of one object."""

SHARED = 0x02
"""The flag of a message that is stored elsewhere: no profile has one."""


class HeaderMessage(NamedTuple):
    """One message of an object header."""

    type: int
    data: bytes


def read_header(storage: Storage, address: int) -> list[HeaderMessage]:
    """Return all messages of the object at `address`, those of continuation blocks too.

    Raises
    ------
    DamagedProfileError, NewerFormatError

    """
    storage.visit(address)
    prefix = storage.read(address, 16)
    if prefix[:4] == b"OHDR":
        raise NewerFormatError(storage.path, f"object header of version {prefix[4]}")
    version, count, size = struct.unpack("<BxH4xI4x", prefix)
    if version != 1:
        raise storage.damaged(f"no object header at address {address}")
    messages: list[HeaderMessage] = []
    blocks = [(address + 16, size)]
    total = 0
    for start, length in blocks:  # grows while it is read
        total += length
        if total > MAX_HEADER:
            raise storage.damaged(f"object header at address {address} has no end")
        for message in _split(storage, storage.read(start, length)):
            if len(messages) == count:
                break
            messages.append(message)
            if message.type == CONTINUATION:
                block = unpack(storage, "<QQ", message.data)
                storage.visit(block[0])
                blocks.append((block[0], block[1]))
            elif message.type in (LINK_INFO, LINK):
                raise NewerFormatError(storage.path, "groups without symbol tables")
    return messages


def _split(storage: Storage, block: bytes) -> Iterator[HeaderMessage]:
    offset = 0
    while offset + 8 <= len(block):
        kind, size, flags = struct.unpack_from("<HHB", block, offset)
        data = block[offset + 8 : offset + 8 + size]
        if len(data) < size:
            raise storage.damaged(f"a header message of {size} bytes in a block of {len(block)}")
        if flags & SHARED and kind in (DATASPACE, DATATYPE, LAYOUT, FILTERS):
            raise NewerFormatError(storage.path, "shared header messages")
        yield HeaderMessage(kind, data)
        offset += 8 + size


def unpack(storage: Storage, layout: str, data: bytes, offset: int = 0) -> tuple[int, ...]:
    """Unpack integers; raise DamagedProfileError if `data` is too short."""
    try:
        return struct.unpack_from(layout, data, offset)
    except struct.error:
        raise storage.damaged(f"a structure of {len(data)} bytes is cut short") from None
