"""Payloads of cc-backend's events ``job``, ``nodestate`` and ``topology``; names of parts.

Its decoder rejects unknown keys, so only these may be written. Fields with their default value
are omitted. The class ``nodereason`` is our own; cc-backend does not read it.

Source: cc-lib's ``schema/job.go``; cc-backend's ``internal/api/nats.go`` and its documentation
of a cluster's topology.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

MAX_STATES = 1000
"""Maximum number of nodes per event ``nodestate``, so that it fits a broker's maximum payload."""


def part_name(type_: str, type_id: str, stype: str, stype_id: str) -> str:
    """Return the name of a part of a node by its tags, such as ``socket 1``; empty for a node."""
    words = [f"{type_} {type_id}"] if type_ not in ("", "node") else []
    if stype:
        words.append(f"{stype} {stype_id}")
    return " ".join(map(str.strip, words))


def level_name(type_: str, stype: str) -> str:
    """Return the level of a part by its tags, such as ``socket``; empty for a node."""
    return f"{'' if type_ == 'node' else type_} {stype}".strip()


_LEVELS = ("", "socket", "memoryDomain", "core", "hwthread", "accelerator")


def level_rank(level: str) -> tuple[int, str]:
    """Return the key by which a node's value is chosen: the first level that a metric has.

    Values of several levels are of the same thing, and never added up.
    """
    return _LEVELS.index(level) if level in _LEVELS else len(_LEVELS), level


class Resource(msgspec.Struct, omit_defaults=True):
    """A node of a job: cc-backend's ``schema.Resource``."""

    hostname: str
    hwthreads: list[int] = []
    accelerators: list[str] = []
    configuration: str = ""


class JobTag(msgspec.Struct, omit_defaults=True):
    """A tag of a job: cc-backend's ``schema.Tag``."""

    type: str = ""
    name: str = ""
    scope: str = ""
    """Visibility: ``admin``, or empty for all users."""


class StartJob(msgspec.Struct, omit_defaults=True):
    """The event ``start_job``: cc-backend's ``schema.Job`` without the fields that it computes."""

    jobId: int  # noqa: N815 - cc-backend's keys, here and below
    user: str
    cluster: str
    startTime: int  # noqa: N815
    """Seconds since the epoch, like all times in this module."""
    numNodes: int  # noqa: N815
    """The number of resources."""
    resources: list[Resource]
    project: str = ""
    subCluster: str = ""  # noqa: N815
    partition: str = ""
    arrayJobId: int = 0  # noqa: N815
    numHwthreads: int = 0  # noqa: N815
    numAcc: int = 0  # noqa: N815
    smt: int = 0
    shared: str = ""
    """Whether the nodes are shared: ``none``, ``single_user`` or ``multi_user``."""
    monitoringStatus: int = 0  # noqa: N815
    walltime: int = 0
    """Seconds that the job may run; 0 without a limit."""
    submitTime: int = 0  # noqa: N815
    requestedMemory: int = 0  # noqa: N815
    """MByte."""
    jobState: str = ""  # noqa: N815
    metaData: dict[str, str] = {}  # noqa: N815
    tags: list[JobTag] | None = None


class StopJob(msgspec.Struct, omit_defaults=True):
    """The event ``stop_job``: cc-backend's ``StopJobAPIRequest``."""

    jobId: int  # noqa: N815
    stopTime: int  # noqa: N815
    cluster: str = ""
    startTime: int = 0  # noqa: N815
    jobState: str = ""  # noqa: N815
    """One of ``STATES``."""


STATES = (
    "boot_fail",
    "cancelled",
    "completed",
    "deadline",
    "failed",
    "node_fail",
    "out_of_memory",
    "preempted",
    "timeout",
)
"""States of a job that has ended."""


class NodeState(msgspec.Struct, omit_defaults=True):
    """One node of the event ``nodestate``; unknown numbers are omitted."""

    hostname: str
    states: list[str] = []
    """cc-backend uses the first of allocated, reserved, idle, down and mixed."""
    cpusAllocated: int | None = None  # noqa: N815
    memoryAllocated: int | None = None  # noqa: N815
    """MB."""
    gpusAllocated: int | None = None  # noqa: N815
    jobsRunning: int | None = None  # noqa: N815


class NodeStates(msgspec.Struct, omit_defaults=True):
    """The event ``nodestate``."""

    cluster: str
    nodes: list[NodeState] = []


def encode_node_states(cluster: str, nodes: Sequence[NodeState]) -> Iterator[str]:
    """Yield the payloads of events ``nodestate``, each of at most ``MAX_STATES`` nodes."""
    for start in range(0, len(nodes), MAX_STATES):
        part = NodeStates(cluster, list(nodes[start : start + MAX_STATES]))
        yield msgspec.json.encode(part).decode()


class NodeReason(msgspec.Struct):
    """One node of the event ``nodereason``."""

    hostname: str
    reason: str
    """Why the node is down or drained."""


class NodeReasons(msgspec.Struct):
    """The event ``nodereason``, ours: the keys of ``nodestate`` have no place for a reason."""

    cluster: str
    nodes: list[NodeReason] = []


def encode_node_reasons(cluster: str, reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield the payloads of events ``nodereason``, by node; none without a reason."""
    rows = [NodeReason(name, reason) for name, reason in reasons.items() if reason]
    for start in range(0, len(rows), MAX_STATES):
        part = NodeReasons(cluster, rows[start : start + MAX_STATES])
        yield msgspec.json.encode(part).decode()


class Accelerator(msgspec.Struct, omit_defaults=True):
    """An accelerator of a node; cc-backend reads ``id``, ``type`` and ``model``."""

    id: str
    type: str = ""
    model: str = ""
    index: int = 0
    address: str = ""
    architecture: str = ""
    driver: str = ""
    firmware: str = ""
    memory: int = 0
    """kB."""
    powerLimit: int = 0  # noqa: N815
    maxPowerLimit: int = 0  # noqa: N815
    minPowerLimit: int = 0  # noqa: N815
    maxClock: int = 0  # noqa: N815
    maxMemoryClock: int = 0  # noqa: N815


class TopologyEvent(msgspec.Struct, omit_defaults=True):
    """The event ``topology``: the hardware of a node, with cc-backend's keys where it has them."""

    cluster: str
    hostname: str
    processorType: str = ""  # noqa: N815
    socketsPerNode: int = 0  # noqa: N815
    coresPerSocket: int = 0  # noqa: N815
    threadsPerCore: int = 0  # noqa: N815
    memoryDomains: int = 0  # noqa: N815
    memory: int = 0
    """kB."""
    architecture: str = ""
    osName: str = ""  # noqa: N815
    osRelease: str = ""  # noqa: N815
    accelerators: list[Accelerator] = []
