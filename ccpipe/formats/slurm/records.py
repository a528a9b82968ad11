"""What Slurm's commands report of jobs and steps, in one set of units.

Times are nanoseconds since the epoch; durations are seconds, volumes bytes, energy joules. None is
what the command does not print, or prints as ``N/A``, ``(null)`` and the like.
"""

import msgspec

from ccpipe.formats.slurm.job_id import SlurmId


class Allocation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a job has on one node, or on each of several that are alike."""

    node_list: str
    cpu_ids: str | None = None
    """Slurm's own numbers of the CPUs, such as ``0-3``; only ``scontrol show job -d`` has them."""
    memory: int | None = None
    gres: str | None = None
    """Such as ``gpu:a100:2(IDX:0-1)``; ``resources.gres`` reads it."""


class LiveJob(msgspec.Struct, frozen=True, gc=False):
    """A job that waits, runs or ended not long ago."""

    id: SlurmId
    name: str | None = None
    user: str | None = None
    uid: int | None = None
    account: str | None = None
    partition: str | None = None
    """While it waits it may be several, with commas between."""
    reservation: str | None = None
    state: str | None = None
    """One word in capitals, such as ``RUNNING``."""
    submit: int | None = None
    start: int | None = None
    """While it waits, when it is expected to start."""
    end: int | None = None
    """While it runs, when its time limit ends it."""
    time_limit: float | None = None
    """Infinite where there is none."""
    priority: int | None = None
    node_list: str | None = None
    allocation: tuple[Allocation, ...] = ()
    nodes: int | None = None
    """How many it has or, while it waits, needs at least."""
    cpus: int | None = None
    memory_per_cpu: int | None = None
    memory_per_node: int | None = None
    req_tres: str | None = None
    alloc_tres: str | None = None
    oversubscribe: str | None = None
    """``NO`` where it has its nodes to itself, else ``OK``, ``YES``, ``USER`` or ``MCS``."""


class SacctRow(msgspec.Struct, frozen=True, gc=False):
    """A row of sacct, sstat or slurmdbd: of a whole job, or of one of its steps.

    Texts are as Slurm prints them; ``resources.tres`` reads those of resources.
    """

    id: SlurmId
    job_name: str | None = None
    """Of the step, in the row of a step."""
    user: str | None = None
    """Empty in the row of a step."""
    account: str | None = None
    state: str | None = None
    """One word in capitals, such as ``CANCELLED``; None in rows of sstat."""
    submit: int | None = None
    """In the row of a step, when the step began."""
    start: int | None = None
    end: int | None = None
    time_limit: float | None = None
    """Infinite where there is none; None also where it is the partition's."""
    partition: str | None = None
    reservation: str | None = None
    node_list: str | None = None
    """A list as ``formats.nodelist`` reads it; None if no nodes are assigned."""
    priority: int | None = None
    """0 for a job that is held."""
    layout: str | None = None
    """How the tasks of a step are distributed, such as ``Block``."""
    req_cpus: int | None = None
    req_mem: int | None = None
    """Of what `req_mem_of` names."""
    req_mem_of: str | None = None
    """``job``; until 20.11 ``cpu`` or ``node``."""
    req_nodes: int | None = None
    suspended: float | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    """Which signal ended it, else 0; 125 stands for out of memory."""
    min_cpu: float | None = None
    """The minimum CPU time of a task; as any measurement, of steps that have ended."""
    alloc_tres: str | None = None
    ave_cpu: float | None = None
    ave_disk_read: int | None = None
    """Rounded to 0.01 MiB; `tres_usage_in_ave` and its like hold the exact ``fs/disk``."""
    ave_disk_write: int | None = None
    ave_rss: int | None = None
    """The mean of the tasks' peaks, rather than of their use over time."""
    ave_vm_size: int | None = None
    elapsed: float | None = None
    """From start to end, without the time it was suspended."""
    system_cpu: float | None = None
    user_cpu: float | None = None
    """With milliseconds below an hour, without any above."""
    max_rss: int | None = None
    max_vm_size: int | None = None
    cluster: str | None = None
    uid: int | None = None
    group: str | None = None
    gid: int | None = None
    qos: str | None = None
    wckey: str | None = None
    cancelled_by: int | None = None
    """The uid of who cancelled it; slurmctld forgets it when restarted."""
    alloc_cpus: int | None = None
    alloc_nodes: int | None = None
    ntasks: int | None = None
    req_tres: str | None = None
    cpu_time: float | None = None
    """What was allocated, used or not: CPUs times `elapsed`."""
    total_cpu: float | None = None
    consumed_energy: int | None = None
    tres_usage_in_ave: str | None = None
    tres_usage_in_tot: str | None = None
    tres_usage_out_ave: str | None = None
    other: dict[str, str] = {}
    """The cells of all other columns of a table, where not empty, by name in lower case."""

    @property
    def is_step(self) -> bool:
        """Whether this is the row of a step rather than of a whole job."""
        return bool(self.id.step)

    @property
    def requested_memory(self) -> int | None:
        """Bytes that the whole job asked for, whatever `req_mem` is of; None where unknown."""
        if self.req_mem is None or self.req_mem_of == "job":
            return self.req_mem
        count = {"cpu": self.req_cpus, "node": self.req_nodes}.get(self.req_mem_of or "")
        return None if count is None else self.req_mem * count
