"""What is known of one job, whatever its scheduler."""

import msgspec

from ccpipe.formats.clustercockpit import STATES

PENDING, RUNNING = "pending", "running"
_FINAL = frozenset(STATES)


class JobNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node of a job, and what of it the job has where the scheduler says so."""

    hostname: str
    hwthreads: tuple[int, ...] = ()
    """Numbers of its hardware threads."""
    accelerators: tuple[str, ...] = ()
    """Ids of its accelerators."""


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one or several records say of a job; a default value means that it is not known.

    Times are nanoseconds since the epoch.
    """

    cluster: str
    id: int
    """Unique in its cluster. Tasks of an array and parts of a heterogeneous job have their own."""
    run: int = 0
    """How often the job was put back into the queue before, where the scheduler counts that."""
    array_id: int = 0
    """Shared by all tasks of an array; 0 if the job is no such task."""
    array_task: int | None = None
    het_id: int = 0
    """Shared by all parts of a heterogeneous job; 0 if the job is no such part."""
    het_offset: int | None = None
    state: str = ""
    """``PENDING``, ``RUNNING`` (also while suspended), or how it ended: one of ``STATES``."""
    user: str = ""
    project: str = ""
    """What the scheduler bills: a project or an account."""
    partition: str = ""
    """Or queue."""
    sub_cluster: str = ""
    submit: int = 0
    start: int = 0
    end: int = 0
    nodes: tuple[JobNode, ...] = ()
    hwthreads: int = 0
    """That it has, on all nodes."""
    requested_hwthreads: int = 0
    accelerators: int = 0
    memory: int = 0
    """That it asked for, in MB."""
    shared: str = ""
    """Whether its nodes are shared: ``none``, ``single_user`` or ``multi_user``."""
    walltime: int = 0
    """Seconds that it may run; 0 without a limit."""
    exit_code: int | None = None
    """128 + signal where a signal ended it."""
    metadata: dict[str, str] = {}
    """What else is worth knowing."""

    @property
    def key(self) -> tuple[str, int]:
        """Cluster and id: what tells it from other jobs."""
        return self.cluster, self.id

    @property
    def has_ended(self) -> bool:
        """Whether it ended and it is known when."""
        return is_final(self.state) and self.end > 0

    @property
    def can_be_reported(self) -> bool:
        """Whether it began, and enough is known for a start: whose it is, when and where."""
        return bool(
            self.state != PENDING and self.start and self.user and self.cluster and self.nodes
        )

    def updated(self, newer: "Job") -> "Job":
        """Return the job with what a newer record says of it; what that one omits stays."""
        if newer == self:
            return self
        known = {
            name: value
            for name, default in _DEFAULTS.items()
            if (value := getattr(newer, name)) != default
        }
        known["metadata"] = self.metadata | newer.metadata
        return msgspec.structs.replace(self, **known)


def is_final(state: str) -> bool:
    """Return whether a job in this state has ended."""
    return state in _FINAL


_DEFAULTS = {
    field.name: None if field.default is msgspec.NODEFAULT else field.default
    for field in msgspec.structs.fields(Job)
    if field.name != "metadata"
}
