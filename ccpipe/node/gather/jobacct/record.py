"""Usage of a task, or of all tasks of a step together: Slurm's ``jobacctinfo_t``.

The packed format is MessagePack of ``[version, record]``. Fields that a later version adds are
ignored; an incompatible change increments the version.

Source: Slurm Job Accounting Gather Plugin API, ``create``, ``destroy``, ``setinfo``, ``getinfo``,
``pack``, ``unpack`` and ``aggregate``; the structure follows current Slurm, with names of resources
(TRES) instead of numbers.
"""

import copy
import enum
import os
import struct
from typing import Annotated, Any, NamedTuple

import msgspec

from ccpipe.errors import CcpipeError, DataError, EncodeError

Count = Annotated[int, msgspec.Meta(ge=0)]

CPU, MEM, VMEM, PAGES, DISK = "cpu", "mem", "vmem", "pages", "fs/disk"
ENERGY, LUSTRE = "energy", "fs/lustre"
GPU_MEM, GPU_UTIL = "gres/gpumem", "gres/gpuutil"

UNITS = {
    CPU: "ms",
    MEM: "bytes",
    VMEM: "bytes",
    PAGES: "",
    DISK: "bytes",
    ENERGY: "J",
    LUSTRE: "bytes",
    GPU_MEM: "bytes",
    GPU_UTIL: "percent",
}
"""Units of resources. ``energy`` is in joules as input and in watts as output."""

PEAKS = frozenset({MEM, VMEM, GPU_MEM, GPU_UTIL})
"""Resources in use, not consumed: a step's total is the sum of its tasks' peaks."""


def is_node_scoped(resource: str) -> bool:
    """Return whether all tasks of a node share one counter of the node."""
    return resource in (ENERGY, LUSTRE) or resource.startswith("ic/")


class JobacctError(CcpipeError):
    """A call of the gather API failed; Slurm returns SLURM_ERROR."""


class TaskId(NamedTuple):
    """Which task it is: its global number, and the index of its node in the step."""

    task: Count | None = None  # None is Slurm's NO_VAL: no specific task
    node: Count | None = None


class Usage(msgspec.Struct):
    """One resource. None is unset: nothing was measured."""

    max: Count | None = None
    max_id: TaskId = TaskId()
    min: Count | None = None
    """For one task the same as `max`: minima appear when tasks are combined."""
    min_id: TaskId = TaskId()
    total: Count | None = None
    per_node: dict[Count, Count] = {}
    """Of a node-scoped counter, the value of each node by its index; `total` is their sum."""


class Rusage(NamedTuple):
    """Resources of an ended process and the children it waited for, as wait4(2) reports them."""

    user: int  # processor time in microseconds
    system: int
    max_rss: int = 0  # bytes of the largest process; 0 if it is not known
    major_faults: int = 0


class JobacctInfo(msgspec.Struct):
    """Usage of one task, or of several together."""

    id: TaskId = TaskId()
    pid: Count = 0
    """The process that the task began as; 0 for several tasks together."""
    tasks: Count = 0
    user: Count = 0  # processor time in microseconds
    system: Count = 0
    usage_in: dict[str, Usage] = {}  # by name of the resource: usage, and bytes read
    usage_out: dict[str, Usage] = {}  # bytes written, and power in watts
    cpu_time_weighed: Count = 0  # milliseconds of processor time whose frequency is known
    weighted_frequency: Count = 0
    """Sum of processor time in milliseconds times the frequency in kHz."""

    @property
    def cpu_frequency(self) -> int | None:
        """Mean frequency in kHz, weighted by processor time; None if it is not known."""
        return self.weighted_frequency // self.cpu_time_weighed if self.cpu_time_weighed else None

    def update(self, resource: str, value: int, *, out: bool = False, peak: int = 0) -> None:
        """Apply a new reading of a task; `peak` is a maximum observed elsewhere."""
        usages = self.usage_out if out else self.usage_in
        usage = usages.get(resource)
        if usage is None:
            usage = usages[resource] = Usage(max_id=self.id, min_id=self.id)
        usage.total = value
        usage.max = usage.min = max(usage.max or 0, value, peak)
        if is_node_scoped(resource):
            node = self.id.node or 0
            usage.per_node[node] = usage.max if not out else value
            usage.max_id = usage.min_id = TaskId(None, self.id.node)

    def assign(self, other: "JobacctInfo") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(other, name))

    def copy(self) -> "JobacctInfo":
        return copy.deepcopy(self)


def create(task_id: TaskId | None = None) -> JobacctInfo:
    """Return a record of a task; without `task_id`, an empty one to add tasks to."""
    return JobacctInfo(task_id or TaskId(), tasks=1 if task_id is not None else 0)


def destroy(info: JobacctInfo | None) -> None:
    """Reset a record in place to the state after ``create()``."""
    if info is not None:
        info.assign(JobacctInfo())


def aggregate(dest: JobacctInfo, source: JobacctInfo | None) -> None:
    """Add the tasks of `source` to `dest`; None adds nothing.

    Of equal maxima, and of equal minima, the first one is kept. Unset values do not count. Totals
    of memory are sums of the tasks' peaks, so that averages are averages of peaks. Counters of a
    whole node (energy, file systems, networks) count once per node, however many tasks report
    them; Slurm adds them up per task.
    """
    if source is None:
        return
    dest.tasks += source.tasks
    dest.user += source.user
    dest.system += source.system
    dest.cpu_time_weighed += source.cpu_time_weighed
    dest.weighted_frequency += source.weighted_frequency
    is_task = source.tasks == 1
    for mine, theirs in ((dest.usage_in, source.usage_in), (dest.usage_out, source.usage_out)):
        for resource, usage in theirs.items():
            _join(mine.setdefault(resource, Usage()), usage, resource, is_task=is_task)


def _join(dest: Usage, source: Usage, resource: str, *, is_task: bool) -> None:
    if source.max is not None and (dest.max is None or dest.max < source.max):
        dest.max, dest.max_id = source.max, source.max_id
    if source.min is not None and (dest.min is None or dest.min > source.min):
        dest.min, dest.min_id = source.min, source.min_id
    if source.per_node:
        for node, value in source.per_node.items():
            dest.per_node[node] = max(dest.per_node.get(node, 0), value)
        dest.total = sum(dest.per_node.values())
        return
    added = source.max if is_task and resource in PEAKS else source.total
    if added is not None:
        dest.total = (dest.total or 0) + added


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
            info.assign(_read_pipe(_descriptor(data)))
            return info
        case DataType.RUSAGE:
            return Rusage(info.user, info.system)
    resource, field = _field(kind)
    usage = info.usage_in.get(resource)
    return None if usage is None else getattr(usage, field)


def set_info(info: JobacctInfo, kind: DataType, data: Any) -> None:
    """Set a part of a record.

    RUSAGE takes the kernel's report of an ended process, and raises processor time, memory and
    page faults to it: it includes processes that ended between two polls. PIPE writes the record
    to the file descriptor `data`.
    """
    match kind:
        case DataType.TOTAL:
            if not isinstance(data, JobacctInfo):
                raise JobacctError(f"set_info: TOTAL takes a record, not {data!r:.60}")
            info.assign(data.copy())
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
MAX_BYTES = 16 * 2**20  # maximum size of a record


class _Packed(msgspec.Struct, array_like=True):
    version: int
    record: msgspec.Raw


def pack(info: JobacctInfo | None) -> bytes:
    """Return a record as bytes; None packs as an empty record."""
    try:
        record = msgspec.msgpack.encode(info or JobacctInfo())
    except OverflowError as error:
        raise EncodeError(f"a counter does not fit 64 bits: {error}") from None
    return msgspec.msgpack.encode(_Packed(VERSION, msgspec.Raw(record)))


def unpack(data: bytes | bytearray | memoryview) -> JobacctInfo:
    """Return the record that ``pack`` encoded; raises DataError."""
    if len(data) > MAX_BYTES:
        raise DataError(f"a packed record of {len(data)} bytes is too long")
    try:
        packed = msgspec.msgpack.decode(data, type=_Packed)
        if packed.version != VERSION:
            raise DataError(f"packed record of version {packed.version} (expected {VERSION})")
        return msgspec.msgpack.decode(packed.record, type=JobacctInfo)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataError(f"not a packed record: {error}") from None
