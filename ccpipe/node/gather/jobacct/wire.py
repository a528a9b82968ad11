"""A record as bytes, to be sent from node to node: ``pack`` and ``unpack`` of the gather API.

MessagePack of ``[version, record]``. Fields that a later version adds are ignored by this one;
a change that this one could not understand raises the version.
"""

import msgspec

from ccpipe.errors import DataError, EncodeError
from ccpipe.node.gather.jobacct.record import JobacctInfo

VERSION = 1  # of what ``pack`` writes

MAX_BYTES = 16 * 2**20


class _Packed(msgspec.Struct, array_like=True):
    version: int
    record: msgspec.Raw


def pack(info: JobacctInfo | None) -> bytes:
    """Return a record as bytes; None packs as a record in which nothing is set."""
    try:
        record = msgspec.msgpack.encode(info or JobacctInfo())
    except OverflowError as error:
        raise EncodeError(f"a counter does not fit 64 bits: {error}") from None
    return msgspec.msgpack.encode(_Packed(VERSION, msgspec.Raw(record)))


def unpack(data: bytes | bytearray | memoryview) -> JobacctInfo:
    """Return the record that ``pack`` made bytes of; raises DataError."""
    if len(data) > MAX_BYTES:
        raise DataError(f"a packed record of {len(data)} bytes is too long")
    try:
        packed = msgspec.msgpack.decode(data, type=_Packed)
        if packed.version != VERSION:
            raise DataError(f"a packed record of version {packed.version}, this is {VERSION}")
        return msgspec.msgpack.decode(packed.record, type=JobacctInfo)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataError(f"not a packed record: {error}") from None
