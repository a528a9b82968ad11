"""``SacctRow``: what Slurm's accounting says of a job or a step, in one set of units."""

import msgspec

from ccpipe.formats.slurm.job_id import SlurmId


class SacctRow(msgspec.Struct, frozen=True, gc=False):
    """A row of sacct, sstat or slurmdbd: of a whole job, or of one of its steps.

    Times are nanoseconds since the epoch; durations are seconds, volumes bytes, energy joules.
    None is what was not asked for, and what Slurm leaves empty. Texts are as Slurm prints them;
    ``resources.tres`` reads those of resources.
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
    db_index: int | None = None
    """slurmdbd's own number of the record: it distinguishes the runs of a requeued job."""
    uid: int | None = None
    group: str | None = None
    gid: int | None = None
    qos: str | None = None
    wckey: str | None = None
    cancelled_by: int | None = None
    """The uid of who cancelled it; slurmctld forgets it when restarted."""
    reason: str | None = None
    """Why it was pending last."""
    derived_exit_code: int | None = None
    """The greatest of its steps'."""
    derived_exit_signal: int | None = None
    flags: str | None = None
    restarts: int | None = None
    eligible: int | None = None
    planned: float | None = None
    """From when it was eligible until it started."""
    alloc_cpus: int | None = None
    alloc_nodes: int | None = None
    ntasks: int | None = None
    constraints: str | None = None
    licenses: str | None = None
    req_tres: str | None = None
    cpu_time: float | None = None
    """What was allocated, used or not: CPUs times `elapsed`."""
    total_cpu: float | None = None
    ave_pages: int | None = None
    max_pages: int | None = None
    max_rss_node: str | None = None
    max_rss_task: int | None = None
    max_disk_read: int | None = None
    max_disk_write: int | None = None
    consumed_energy: int | None = None
    tres_usage_in_ave: str | None = None
    tres_usage_in_max: str | None = None
    tres_usage_in_min: str | None = None
    tres_usage_in_tot: str | None = None
    tres_usage_out_ave: str | None = None
    tres_usage_out_max: str | None = None
    tres_usage_out_min: str | None = None
    tres_usage_out_tot: str | None = None
    comment: str | None = None
    admin_comment: str | None = None
    system_comment: str | None = None
    submit_line: str | None = None
    work_dir: str | None = None
    container: str | None = None
    failed_node: str | None = None

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
