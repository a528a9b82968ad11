"""A job of any scheduler, and ``Jobs``: the records of a scheduler, as they travel in a pipe."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import msgspec

from ccpipe.formats.clustercockpit import STATES
from ccpipe.records import Provenance, RecordList, Rejected

if TYPE_CHECKING:
    import pyarrow as pa

    from ccpipe.formats.slurm.cluster import Cluster
    from ccpipe.jobs.pending import PendingJob


PENDING, RUNNING, REQUEUED = "pending", "running", "requeued"
_FINAL = frozenset(STATES)

MAX_SECONDS = 30 * 86400
"""How long a job without a time limit is taken to run if nothing is heard of its end."""
EXTENSION = 86400
"""How long a job may run beyond its limit, which can be extended, or by being suspended."""
ENDED = "ended"
"""The state of a job whose end is known, or assumed, but not how it ended."""


class JobNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node of a job, and its resources on it if the scheduler reports them."""

    hostname: str
    hwthreads: tuple[int, ...] = ()
    """Numbers of the hardware threads."""
    accelerators: tuple[str, ...] = ()
    """Ids of the accelerators."""
    cpus: int | None = None
    """How many hardware threads are allocated here; None, as below, where that is unknown."""
    gpus: int | None = None
    memory: int | None = None
    """MB."""


class JobUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Resources used by a job or a step; None means unknown."""

    wallclock: int | float | None = None
    """Seconds."""
    cpu: float | None = None
    """Seconds of processor time, all tasks."""
    user: float | None = None
    system: float | None = None
    max_rss: int | float | None = None
    """Bytes."""
    max_vmem: float | None = None
    """Bytes."""
    memory: float | None = None
    """GiB·s."""
    io: float | None = None
    """GiB read and written."""


class RunKey(NamedTuple):
    """Identity of a run of a job in events of ClusterCockpit."""

    cluster: str
    id: int
    start: int
    """Nanoseconds since the epoch; 0 if a stop does not contain it."""


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run of a job of any scheduler, as one or several records describe it.

    A default value means unknown. Times are nanoseconds since the epoch.
    """

    cluster: str
    id: int
    """Unique in its cluster. Array tasks and components of heterogeneous jobs have their own."""
    step: str = ""
    """The step or task of the job that the record is about; empty for the job itself."""
    run: int = 0
    """Number of times the job was requeued before, if the scheduler counts them."""
    array_id: int = 0
    """Shared by all tasks of an array; 0 if the job is not an array task."""
    array_task: int | None = None
    het_id: int = 0
    """Shared by all components of a heterogeneous job; 0 if the job is not one of them."""
    het_offset: int | None = None
    state: str = ""
    """``PENDING``, ``RUNNING`` (also while suspended), ``REQUEUED`` where only a run ended, or how
    the job ended: one of ``STATES``."""
    outcome: str = ""
    """How it ended, in the words of its scheduler."""
    runs_again: bool = False
    """Whether only this run has ended, after which the scheduler may run the job again."""
    name: str = ""
    user: str = ""
    project: str = ""
    """Project or account that is billed."""
    partition: str = ""
    """Partition or queue."""
    sub_cluster: str = ""
    submit: int = 0
    start: int = 0
    end: int = 0
    nodes: tuple[JobNode, ...] = ()
    hwthreads: int = 0
    """Allocated, on all nodes."""
    requested_hwthreads: int = 0
    accelerators: int = 0
    memory: int = 0
    """Requested on each of its nodes, in bytes; the mean if that differs."""
    shared: str = ""
    """Whether its nodes are shared: ``none``, ``single_user`` or ``multi_user``."""
    walltime: int = 0
    """Time limit in seconds; 0 if unlimited or unknown."""
    exit_code: int | None = None
    """128 + signal if a signal ended it."""
    metadata: dict[str, str] = {}
    """Further information for users."""
    start_metadata: dict[str, str] = {}
    """More of it, such as the batch script, that is forgotten once the start was emitted."""
    usage: JobUsage | None = None
    raw: object = None
    """The record that it was read from, for fields not listed here; never stored."""

    @property
    def key(self) -> tuple[str, int]:
        """Cluster and id, which identify the job."""
        return self.cluster, self.id

    @property
    def run_key(self) -> RunKey:
        """Cluster, id and start, which identify the run."""
        return RunKey(self.cluster, self.id, self.start)

    @property
    def shares_nodes(self) -> bool:
        """Whether other jobs may run on its nodes; unknown counts as no, as most schedulers do."""
        return self.shared not in ("", "none")

    @property
    def has_ended(self) -> bool:
        """Whether it has ended at a known time."""
        return is_final(self.state) and self.end > 0

    def assumed_end(self, now: int) -> int:
        """Return when a job must have ended whose stop was lost; 0 if it may still run at `now`."""
        limit = (self.walltime or MAX_SECONDS) * 10**9
        is_late = self.start and not self.end and now > self.start + limit + EXTENSION * 10**9
        return self.start + limit if is_late else 0

    @property
    def can_be_reported(self) -> bool:
        """Whether it has started, and its user, time and nodes are known."""
        return bool(
            self.state != PENDING and self.start and self.user and self.cluster and self.nodes
        )

    def updated(self, newer: "Job") -> "Job":
        """Return the job updated by a newer record; fields missing there are kept."""
        if newer == self:
            return self
        known = {
            name: value
            for name, default in _DEFAULTS.items()
            if (value := getattr(newer, name)) != default
        }
        known["metadata"] = self.metadata | newer.metadata
        known["start_metadata"] = self.start_metadata | newer.start_metadata
        return msgspec.structs.replace(self, **known)


def is_final(state: str) -> bool:
    """Return whether a job in this state has ended."""
    return state in _FINAL


_DEFAULTS = {
    field.name: None if field.default is msgspec.NODEFAULT else field.default
    for field in msgspec.structs.fields(Job)
    if not field.name.endswith("metadata")
}


_JOB_SIZE = 2048
"""Approximate size of a job in memory, with its raw record."""


class Jobs(RecordList[Job]):
    """Jobs in the order of their records, and the records that could not be read."""

    name: ClassVar[str] = "jobs"
    subjects: ClassVar[Sequence[str]] = ("events",)

    def __init__(
        self,
        jobs: Iterable[Job] = (),
        *,
        rejected: Sequence[Rejected] = (),
        provenance: Provenance | None = None,
        size: int | None = None,
        time: int = 0,
        cluster: "Cluster | None" = None,
        queue: "Sequence[PendingJob] | None" = None,
        errors: Sequence[str] = (),
    ) -> None:
        """Take the jobs, and what else a scheduler reported.

        Parameters
        ----------
        rejected, provenance, size
            See ``RecordList``.
        time
            When the scheduler was queried, in nanoseconds since the epoch; 0 if it was not.
        cluster
            Its nodes and partitions at that time.
        queue
            All jobs that were pending at that time; None if that is not known.
        errors
            Queries that failed.

        """
        super().__init__(jobs, rejected=rejected, provenance=provenance, size=size)
        self.time = time
        self.cluster = cluster
        self.queue = queue
        self.errors = errors

    @staticmethod
    def size_of(record: Job) -> int:  # noqa: ARG004 - all count alike
        """Return the approximate size of a job in memory, in bytes."""
        return _JOB_SIZE

    def take(self, keep: Sequence[int]) -> Self:
        """Return the jobs for which `keep` is true, with all else that was reported."""
        taken = super().take(keep)
        taken.time, taken.cluster, taken.errors = self.time, self.cluster, self.errors
        taken.queue = self.queue
        return taken

    def to_arrow(self) -> "pa.Table":
        """Return an Arrow table with the fields of each job but its raw record.

        Times are timestamps, null if they are unknown; nodes and usage are nested.

        Raises
        ------
        MissingExtra
            if pyarrow is not installed.
        DataError
            if Arrow cannot represent a value, such as an integer beyond 64 bits.

        """
        from ccpipe.jobs.arrow import to_arrow

        return to_arrow(self, Job)

    def original(self, index: int) -> bytes:
        """Return a job's raw record as JSON, or the job without one; ``repr`` where JSON cannot."""
        job = self[index]
        try:
            return msgspec.json.encode(job if job.raw is None else job.raw)
        except (TypeError, ValueError):
            return repr(job).encode(errors="backslashreplace")
