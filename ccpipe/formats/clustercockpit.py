"""What cc-backend reads in events of the classes ``job``, ``nodestate`` and ``topology``.

Its decoder refuses unknown keys, so these types are exactly what may be written. Fields that have
their default value are left out.

Source: cc-lib's ``schema/job.go``; cc-backend's ``internal/api/nats.go`` and its documentation
of a cluster's topology.
"""

import msgspec


class Resource(msgspec.Struct, omit_defaults=True):
    """A node that a job has; cc-backend's ``schema.Resource``."""

    hostname: str
    hwthreads: list[int] = []
    accelerators: list[str] = []
    configuration: str = ""


class StartJob(msgspec.Struct, omit_defaults=True):
    """The event ``start_job``; cc-backend's ``schema.Job``, without what it works out itself."""

    jobId: int  # noqa: N815 - the words of cc-backend, here and below
    user: str
    cluster: str
    startTime: int  # noqa: N815
    """Seconds since the epoch, as all its times are."""
    numNodes: int  # noqa: N815
    """As many as there are resources."""
    resources: list[Resource]
    project: str = ""
    subCluster: str = ""  # noqa: N815
    partition: str = ""
    arrayJobId: int = 0  # noqa: N815
    numHwthreads: int = 0  # noqa: N815
    numAcc: int = 0  # noqa: N815
    smt: int = 0
    shared: str = ""
    """``none``, ``single_user`` or ``multi_user``: whether the nodes are."""
    monitoringStatus: int = 0  # noqa: N815
    walltime: int = 0
    """Seconds that the job may run; 0 without a limit."""
    submitTime: int = 0  # noqa: N815
    requestedMemory: int = 0  # noqa: N815
    """MByte."""
    jobState: str = ""  # noqa: N815
    metaData: dict[str, str] = {}  # noqa: N815


class StopJob(msgspec.Struct, omit_defaults=True):
    """The event ``stop_job``; cc-backend's ``StopJobAPIRequest``."""

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
"""How a job may end."""


class NodeState(msgspec.Struct, omit_defaults=True):
    """One node of the event ``nodestate``."""

    hostname: str
    states: list[str] = []
    cpusAllocated: int = 0  # noqa: N815
    memoryAllocated: int = 0  # noqa: N815
    gpusAllocated: int = 0  # noqa: N815
    jobsRunning: int = 0  # noqa: N815


class NodeStates(msgspec.Struct, omit_defaults=True):
    """The event ``nodestate``."""

    cluster: str
    nodes: list[NodeState] = []


class Accelerator(msgspec.Struct, omit_defaults=True):
    """An accelerator of a node; ``id``, ``type`` and ``model`` are cc-backend's."""

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


class Topology(msgspec.Struct, omit_defaults=True):
    """The event ``topology``: what a node is, in cc-backend's words where it has some."""

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
