"""Records of Slurm's jobs and steps, in one set of units.

Times are nanoseconds since the epoch; durations are seconds, volumes bytes, energy joules. None:
the command does not print the value, or prints ``N/A``, ``(null)`` and the like.

Source: ``slurmdb_get_job_id_str`` and ``log_build_step_id_str`` of Slurm; sacct(1), *JobID*.
"""

import re
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Self, TypeVar

import msgspec

from ccpipe.errors import DataError

_ID = re.compile(
    r"(?P<job>[0-9]{1,10})"
    r"(?:_(?:(?P<task>[0-9]{1,10})|\[(?P<tasks>[^]\s]*)\])|\+(?P<offset>[0-9]{1,10}))?"
    r"(?:\.(?P<step>[A-Za-z0-9_+]+))?"
)
_MAX_DIGITS = 10


class SlurmId(msgspec.Struct, frozen=True, order=True, gc=False):
    """Identifies a job, array task or heterogeneous component, and its step."""

    job: int
    """The job's own number, ``JobIDRaw``. The last task of an array has the array's number."""
    step: str = ""
    """``""`` for the job as a whole, else ``0``, ``batch``, ``extern``, ``interactive``."""
    array_job: int | None = None
    array_task: int | None = None
    pending_tasks: str = ""
    """Which tasks a pending array still has, such as ``0-9%2``."""
    het_job: int | None = None
    het_offset: int | None = None

    @classmethod
    def read(cls, shown: str, raw: str = "") -> Self:
        """Read ``JobID`` and ``JobIDRaw``, or squeue's ``%i`` and ``%A``, in either order.

        Without `raw`, the number of an array task is unknown: `job` is then the array's number,
        and the first component's for a heterogeneous job. Raises DataError.
        """
        if raw in ("", shown):
            job, dot, step = shown.partition(".")
            if (
                job.isdigit()
                and job.isascii()
                and len(job) <= _MAX_DIGITS
                and bool(dot) == bool(step)
                and (not dot or (step.isalnum() and step.isascii()))
            ):
                return cls(int(job), step)
        if "_" in raw or "+" in raw:
            shown, raw = raw, shown
        found = _ID.fullmatch(shown)
        own = _ID.fullmatch(raw) if raw else found
        if found is None or own is None:
            bad = shown if found is None else raw
            raise DataError(f"not a job's number: {bad!r:.60} (expected e.g. 13_1, 17+1.0)")
        number, task, tasks, offset, step = found.groups()
        in_array = task is not None or tasks is not None
        return cls(
            job=int(own["job"]),
            step=step or "",
            array_job=int(number) if in_array else None,
            array_task=None if task is None else int(task),
            pending_tasks=tasks or "",
            het_job=None if offset is None else int(number),
            het_offset=None if offset is None else int(offset),
        )

    @property
    def raw(self) -> str:
        return f"{self.job}.{self.step}" if self.step else str(self.job)

    def __str__(self) -> str:
        if self.array_job is not None:
            text = f"{self.array_job}_"
            text += f"[{self.pending_tasks}]" if self.array_task is None else str(self.array_task)
        elif self.het_job is not None:
            text = f"{self.het_job}+{self.het_offset}"
        else:
            text = str(self.job)
        return f"{text}.{self.step}" if self.step else text


class Allocation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job's resources on one node, or on each node of a uniform group."""

    node_list: str
    cpu_ids: str | None = None
    """Slurm's own numbers of the CPUs, such as ``0-3``; only ``scontrol show job -d`` has them."""
    memory: int | None = None
    gres: str | None = None
    comment_gpus: tuple[str, ...] = ()
    """PCI addresses, if the job's comment consists of them."""


class LiveJob(msgspec.Struct, frozen=True, gc=False):
    """A job that is pending, running or has recently ended."""

    id: SlurmId
    name: str | None = None
    user: str | None = None
    uid: int | None = None
    account: str | None = None
    partition: str | None = None
    """May be several while pending, separated by commas."""
    reservation: str | None = None
    state: str | None = None
    """One word in capitals, such as ``RUNNING``."""
    submit: int | None = None
    start: int | None = None
    """The expected start while pending."""
    end: int | None = None
    """While running, when the time limit expires."""
    time_limit: float | None = None
    """Infinite if unlimited."""
    priority: int | None = None
    node_list: str | None = None
    allocation: tuple[Allocation, ...] = ()
    nodes: int | None = None
    """The number allocated or, while pending, the minimum requested."""
    cpus: int | None = None
    memory_per_cpu: int | None = None
    memory_per_node: int | None = None
    req_tres: str | None = None
    alloc_tres: str | None = None
    oversubscribe: str | None = None
    """``NO`` if its nodes are exclusive, else ``OK``, ``YES``, ``USER`` or ``MCS``."""
    reason: str | None = None
    """Why it is pending, such as ``Resources``."""


class SacctRow(msgspec.Struct, frozen=True, gc=False):
    """A row of sacct, sstat or slurmdbd: a whole job, or one of its steps.

    Texts are as Slurm prints them; ``values.tres`` parses the resource lists.
    """

    id: SlurmId
    job_name: str | None = None
    """In a step's row, the step's name."""
    user: str | None = None
    """Empty in a step's row."""
    account: str | None = None
    state: str | None = None
    """One word in capitals, such as ``CANCELLED``; None in rows of sstat."""
    submit: int | None = None
    """In a step's row, when the step began."""
    start: int | None = None
    end: int | None = None
    time_limit: float | None = None
    """Infinite if unlimited; None also if the partition's limit applies."""
    partition: str | None = None
    reservation: str | None = None
    node_list: str | None = None
    """A list as ``formats.nodelist`` reads it; None if no nodes are assigned."""
    priority: int | None = None
    """0 for a held job."""
    layout: str | None = None
    """How the tasks of a step are distributed, such as ``Block``."""
    req_cpus: int | None = None
    req_mem: int | None = None
    """Per `req_mem_of`."""
    req_mem_of: str | None = None
    """``job``; until 20.11 ``cpu`` or ``node``."""
    req_nodes: int | None = None
    suspended: float | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    """The signal that ended it, else 0; 125 means out of memory."""
    min_cpu: float | None = None
    """The minimum CPU time of a task; like all measurements, of ended steps only."""
    alloc_tres: str | None = None
    ave_cpu: float | None = None
    ave_disk_read: int | None = None
    """Rounded to 0.01 MiB; `tres_usage_in_ave` etc. have the exact ``fs/disk``."""
    ave_disk_write: int | None = None
    ave_rss: int | None = None
    """The mean of the tasks' peaks, not of their use over time."""
    ave_vm_size: int | None = None
    elapsed: float | None = None
    """From start to end, without the time it was suspended."""
    system_cpu: float | None = None
    user_cpu: float | None = None
    """In milliseconds below an hour, in whole seconds above."""
    max_rss: int | None = None
    max_vm_size: int | None = None
    cluster: str | None = None
    uid: int | None = None
    group: str | None = None
    gid: int | None = None
    qos: str | None = None
    wckey: str | None = None
    cancelled_by: int | None = None
    """The uid of the user who cancelled it; lost when slurmctld restarts."""
    alloc_cpus: int | None = None
    alloc_nodes: int | None = None
    ntasks: int | None = None
    req_tres: str | None = None
    cpu_time: float | None = None
    """Allocated CPUs times `elapsed`, used or not."""
    total_cpu: float | None = None
    consumed_energy: int | None = None
    tres_usage_in_ave: str | None = None
    tres_usage_in_tot: str | None = None
    tres_usage_out_ave: str | None = None
    oversubscribe: str | None = None
    """As in ``LiveJob``; like `allocation` from scontrol, while slurmctld knows the job."""
    allocation: tuple[Allocation, ...] = ()
    other: dict[str, str] = {}
    """Non-empty cells of all other columns, by name in lower case."""

    @property
    def is_step(self) -> bool:
        return bool(self.id.step)

    @property
    def requested_memory(self) -> int | None:
        """Bytes requested for the whole job, whatever `req_mem` is per; None if unknown."""
        if self.req_mem is None or self.req_mem_of == "job":
            return self.req_mem
        count = {"cpu": self.req_cpus, "node": self.req_nodes}.get(self.req_mem_of or "")
        return None if count is None else self.req_mem * count


Record = TypeVar("Record")
MAX_EXCERPT = 200


class RejectedRow(NamedTuple):
    """A row, record or JSON object that cannot be parsed."""

    line: int
    """The number of its first line, from 1; in JSON the object's position in its list, from 0."""
    reason: str
    original: bytes
    """As printed; truncated if longer than a record may be."""
    offset: int = 0
    """Byte offset of a dead letter; unknown for outputs of commands."""

    @property
    def excerpt(self) -> str:
        text = self.original[: 4 * MAX_EXCERPT].decode("utf-8", "backslashreplace")
        return text if len(text) <= MAX_EXCERPT else text[: MAX_EXCERPT - 1] + "…"


@dataclass(slots=True)
class ParsedOutput(Generic[Record]):
    """The records and rejected rows of an output or a chunk."""

    records: list[Record] = field(default_factory=list)
    rejected: list[RejectedRow] = field(default_factory=list)

    def extend(self, other: "ParsedOutput[Record]") -> None:
        self.records += other.records
        self.rejected += other.rejected
