"""What slurmctld knows now, from whichever command or dialect: jobs, steps, nodes, partitions.

Units are those of ``SacctRow``: times are nanoseconds since the epoch, durations seconds, volumes
bytes. None is what the command does not print, or prints as ``N/A``, ``(null)`` and the like.
"""

import msgspec

from ccpipe.formats.slurm.job_id import SlurmId


class Allocation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a job has on one node, or on each of several that are alike."""

    node_list: str
    cpu_count: int | None = None
    cpu_ids: str | None = None
    """Slurm's own numbers of the CPUs, such as ``0-3``; only ``scontrol show job -d`` has them."""
    cores: tuple[tuple[int, int], ...] = ()
    """Socket and core, each counted from 0; only JSON has them."""
    memory: int | None = None
    gres: str | None = None
    """Such as ``gpu:a100:2(IDX:0-1)``; ``resources.gres`` reads it."""


class LiveJob(msgspec.Struct, frozen=True, gc=False):
    """A job that waits, runs or ended not long ago."""

    id: SlurmId
    name: str | None = None
    user: str | None = None
    uid: int | None = None
    group: str | None = None
    gid: int | None = None
    account: str | None = None
    cluster: str | None = None
    partition: str | None = None
    """While it waits it may be several, with commas between."""
    qos: str | None = None
    reservation: str | None = None
    wckey: str | None = None
    state: str | None = None
    """One word in capitals, such as ``RUNNING``."""
    state_flags: tuple[str, ...] = ()
    """What else it is, such as ``COMPLETING``; only JSON of 23.02 and later has it."""
    reason: str | None = None
    """Why it waits or how it ended: in JSON a word, in text the description where there is one."""
    description: str | None = None
    """The same at length; only JSON has both."""
    exit_code: int | None = None
    exit_signal: int | None = None
    derived_exit_code: int | None = None
    derived_exit_signal: int | None = None
    submit: int | None = None
    eligible: int | None = None
    start: int | None = None
    """While it waits, when it is expected to start."""
    end: int | None = None
    """While it runs, when its time limit ends it."""
    suspended_at: int | None = None
    """When it was suspended or resumed last."""
    ran_before_suspension: float | None = None
    """Seconds that it had run until `suspended_at`."""
    run_time: float | None = None
    time_limit: float | None = None
    """Infinite where there is none. 22.05 prints neither of both in JSON: it is None then."""
    priority: int | None = None
    nice: int | None = None
    restarts: int | None = None
    node_list: str | None = None
    batch_host: str | None = None
    req_node_list: str | None = None
    exc_node_list: str | None = None
    allocation: tuple[Allocation, ...] = ()
    nodes: int | None = None
    """How many it has or, while it waits, needs at least."""
    cpus: int | None = None
    tasks: int | None = None
    cpus_per_task: int | None = None
    memory_per_cpu: int | None = None
    memory_per_node: int | None = None
    min_memory: int | None = None
    """One of the two above; squeue does not say which."""
    req_tres: str | None = None
    alloc_tres: str | None = None
    tres_per_job: str | None = None
    tres_per_node: str | None = None
    tres_per_task: str | None = None
    gres_detail: tuple[str, ...] = ()
    """What it has of each node, in the order of `node_list`."""
    dependency: str | None = None
    oversubscribe: str | None = None
    """``NO`` where it has its nodes to itself, else ``OK``, ``YES``, ``USER`` or ``MCS``."""
    licenses: str | None = None
    features: str | None = None
    comment: str | None = None
    admin_comment: str | None = None
    system_comment: str | None = None
    command: str | None = None
    work_dir: str | None = None
    std_out: str | None = None
    std_err: str | None = None
    container: str | None = None
    is_batch: bool | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node, and what of it is in use."""

    name: str
    states: tuple[str, ...] = ()
    """In capitals, the state first and then its flags: ``DOWN``, ``DRAIN``, ``NOT_RESPONDING``."""
    partitions: tuple[str, ...] = ()
    hostname: str | None = None
    address: str | None = None
    reason: str | None = None
    reason_user: str | None = None
    reason_time: int | None = None
    cpus: int | None = None
    alloc_cpus: int | None = None
    cpu_load: float | None = None
    boards: int | None = None
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    memory: int | None = None
    alloc_memory: int | None = None
    free_memory: int | None = None
    """What the system has free, whether it is allocated or not."""
    tmp_disk: int | None = None
    weight: int | None = None
    features: tuple[str, ...] = ()
    active_features: tuple[str, ...] = ()
    gres: str | None = None
    gres_used: str | None = None
    tres: str | None = None
    alloc_tres: str | None = None
    architecture: str | None = None
    operating_system: str | None = None
    version: str | None = None
    comment: str | None = None
    boot_time: int | None = None
    slurmd_start_time: int | None = None
    last_busy: int | None = None


class Partition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A partition and its nodes."""

    name: str
    node_list: str | None = None
    """None for a partition without nodes."""
    state: str | None = None
    """``UP``, ``DOWN``, ``DRAIN`` or ``INACTIVE``."""
    is_default: bool | None = None
    total_nodes: int | None = None
    total_cpus: int | None = None
    max_time: float | None = None
    """Infinite where there is no limit."""
    default_time: float | None = None
    max_nodes: float | None = None
    min_nodes: int | None = None
    priority_tier: int | None = None
    priority_job_factor: int | None = None
    qos: str | None = None
    oversubscribe: str | None = None
    tres: str | None = None
    allow_accounts: str | None = None
    allow_groups: str | None = None
    allow_qos: str | None = None
