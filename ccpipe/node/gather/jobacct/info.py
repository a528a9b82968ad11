"""Reads, sets and packs records: ``setinfo``, ``getinfo``, ``pack`` and ``unpack`` of the API.

Packed is MessagePack of ``[version, record]``. Fields that a later version adds are ignored by this
one; a change that this one could not understand raises the version.
"""

import enum
import os
import struct
from typing import Any

import msgspec

from ccpipe.errors import DataError, EncodeError
from ccpipe.node.gather.jobacct.record import (
    CPU,
    MEM,
    PAGES,
    VMEM,
    JobacctError,
    JobacctInfo,
    Rusage,
    TaskId,
    Usage,
)


class DataType(enum.Enum):
    """Parts of a record. Sizes are in bytes, processor time is in milliseconds."""

    TOTAL = "total"  # the whole record
    PIPE = "pipe"  # the whole record, through a file descriptor
    RUSAGE = "rusage"
    MAX_VSIZE = "max_vsize"
    MAX_VSIZE_ID = "max_vsize_id"
    TOT_VSIZE = "tot_vsize"
    MAX_RSS = "max_rss"
    MAX_RSS_ID = "max_rss_id"
    TOT_RSS = "tot_rss"
    MAX_PAGES = "max_pages"
    MAX_PAGES_ID = "max_pages_id"
    TOT_PAGES = "tot_pages"
    MIN_CPU = "min_cpu"
    MIN_CPU_ID = "min_cpu_id"
    TOT_CPU = "tot_cpu"


_RESOURCES = {"vsize": VMEM, "rss": MEM, "pages": PAGES, "cpu": CPU}
_LENGTH = struct.Struct("<I")


def get_info(info: JobacctInfo, kind: DataType, data: Any = None) -> Any:
    """Return a part of a record; None if it is unset.

    TOTAL returns a copy. PIPE reads a record from the file descriptor `data` into `info`.
    """
    match kind:
        case DataType.TOTAL:
            return info.copy()
        case DataType.PIPE:
            info.become(_read_pipe(_descriptor(data)))
            return info
        case DataType.RUSAGE:
            return Rusage(info.user, info.system)
    resource, field = _field(kind)
    usage = info.usage_in.get(resource)
    return None if usage is None else getattr(usage, field)


def set_info(info: JobacctInfo, kind: DataType, data: Any) -> None:
    """Set a part of a record.

    RUSAGE takes what the kernel reports of an ended process, and raises processor time, memory
    and page faults to it: it knows of what ended between two polls. PIPE writes the record to the
    file descriptor `data`.
    """
    match kind:
        case DataType.TOTAL:
            if not isinstance(data, JobacctInfo):
                raise JobacctError(f"set_info: TOTAL takes a record, not {data!r:.60}")
            info.become(data.copy())
        case DataType.PIPE:
            _write_pipe(_descriptor(data), pack(info))
        case DataType.RUSAGE:
            if not isinstance(data, Rusage):
                raise JobacctError(f"set_info: RUSAGE takes a Rusage, not {data!r:.60}")
            _set_rusage(info, data)
        case _:
            resource, field = _field(kind)
            wanted: Any = TaskId if field.endswith("_id") else int
            try:
                value = msgspec.convert(data, wanted)
            except msgspec.ValidationError as error:
                raise JobacctError(f"set_info: {kind.name}: {error}") from None
            if wanted is int and value < 0:
                raise JobacctError(f"set_info: {kind.name}: {value} is negative")
            usage = info.usage_in.setdefault(resource, Usage(max_id=info.id, min_id=info.id))
            setattr(usage, field, value)


def _set_rusage(info: JobacctInfo, rusage: Rusage) -> None:
    info.user = max(info.user, rusage.user)
    info.system = max(info.system, rusage.system)
    total = (info.user + info.system) // 1000
    usage = info.usage_in.get(CPU)
    info.update(CPU, max(total, (usage.total if usage else 0) or 0))
    for resource, value in ((MEM, rusage.max_rss), (PAGES, rusage.major_faults)):
        known = info.usage_in.get(resource)
        now = (known.total if known else 0) or 0
        if value and resource == PAGES:
            info.update(resource, max(now, value))
        elif value:
            info.update(resource, now, peak=value)


def _field(kind: DataType) -> tuple[str, str]:
    """Return the resource and the field of ``Usage`` that a type such as ``max_rss_id`` names."""
    which, _, rest = kind.value.partition("_")
    name, _, is_id = rest.partition("_")
    return _RESOURCES[name], "total" if which == "tot" else f"{which}_id" if is_id else which


def _descriptor(data: Any) -> int:
    if not isinstance(data, int) or data < 0:
        raise JobacctError(f"PIPE takes a file descriptor, not {data!r:.60}")
    return data


def _write_pipe(fd: int, packed: bytes) -> None:
    rest = memoryview(_LENGTH.pack(len(packed)) + packed)
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
    except OSError as error:
        raise JobacctError(f"file descriptor {fd}: {error}") from error


def _read_pipe(fd: int) -> JobacctInfo:
    try:
        (length,) = _LENGTH.unpack(_read(fd, _LENGTH.size))
        if length > MAX_BYTES:
            raise JobacctError(f"file descriptor {fd}: a record of {length} bytes is too long")
        return unpack(_read(fd, length))
    except (OSError, DataError) as error:
        raise JobacctError(f"file descriptor {fd}: {error}") from error


def _read(fd: int, length: int) -> bytes:
    parts = []
    while length:
        part = os.read(fd, length)
        if not part:
            raise JobacctError(f"file descriptor {fd}: ended within a record")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


VERSION = 1  # of what ``pack`` writes
MAX_BYTES = 16 * 2**20  # a longer record is refused


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
