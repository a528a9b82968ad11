"""The state of a node and its processes at one time.

Source: Sonar JSON format output specification, the types of the same names.
"""

from ccpipe.formats.sonar.types.meta import ErrorObject
from ccpipe.formats.sonar.types.primitives import (
    UNSET,
    ExtendedUint,
    Hostname,
    Int64,
    NonemptyString,
    OptionalTimestamp,
    Record,
    Timestamp,
    Uint64,
)

SampleCpu = Uint64
"""The number of CPU seconds used by the core since boot."""

EPOCH_ZERO = 1577836800
"""Seconds from 1970 to 2020: Sonar's ``epoch`` is the node's boot time, counted from 2020,
so that it is never zero (``EpochTimeBase`` in Sonar's ``types.go``)."""


class SampleGpu(Record, frozen=True):
    """This object exposes utilization figures for the card.

    NOTE: In all monitoring data, cards are identified both by current index and by immutable UUID,
    this is redundant but hopefully useful.

    NOTE: A card index may be local to a job, as Slurm jobs partition the system and may remap
    cards to a local name space. UUID is usually safer.

    NOTE: Some fields are available on some cards and not on others.

    NOTE: If there are multiple fans and we start caring about that then we can add a new field, eg
    "fans", that holds an array of fan speed readings. Similarly, if there are multiple temperature
    sensors and we care about that we can introduce a new field to hold an array of readings.
    """

    index: Uint64 = 0
    """Local card index, may change at boot."""
    uuid: NonemptyString = ""
    """Card UUID. See preamble for notes about UUIDs."""
    failing: Uint64 = 0
    """If not zero, an error code indicating a card failure state. code=1 is "generic failure".
    Other codes TBD.
    """
    fan: Uint64 = 0
    """Percent of primary fan's max speed, may exceed 100% on some cards in some cases."""
    compute_mode: str = ""
    """Current compute mode, completely card-specific if known at all."""
    performance_state: ExtendedUint = UNSET
    """Current performance level, card-specific >= 0, or unset for "unknown".

    Sonar 0.19 writes v+1 in place of v+2: see the profile `sonar`.
    """
    memory: Uint64 = 0
    """Memory use in Kilobytes."""
    ce_util: Uint64 = 0
    """Percent of computing element capability used."""
    memory_util: Uint64 = 0
    """Percent of memory used."""
    temperature: Int64 = 0
    """Degrees C card temperature at primary sensor (note can be negative)"""
    power: Uint64 = 0
    """Watts current power usage."""
    power_limit: Uint64 = 0
    """Watts current power limit."""
    ce_clock: Uint64 = 0
    """Compute element current clock."""
    memory_clock: Uint64 = 0
    """memory current clock."""


class SampleDisk(Record, frozen=True):
    """The state of one disk, in the kernel's own numbers.

    Added after the specification, in Sonar 0.17.
    """

    name: str = ""
    """The device's name, as `sda`."""
    major: Uint64 = 0
    """The device's major number."""
    minor: Uint64 = 0
    """The device's minor number."""
    stats: tuple[Uint64, ...] = ()
    """The numbers after the name in `/proc/diskstats`: 11, 15 or 17 of them, by kernel."""


class SampleSystem(Record, frozen=True):
    """The state of the node independently of the jobs running on it.

    Generally these are independent of cgroup or other resource partitioning.

    NOTE: Other node-wide fields will be added (e.g. for additional memory measures, for I/O and
    for energy).

    NOTE: The sysinfo for the node provides the total memory; available memory = total - used.
    """

    cpus: tuple[SampleCpu, ...] = ()
    """The state of individual cores.

    Dense, in the order of the cores' indices.
    """
    gpus: tuple[SampleGpu, ...] = ()
    """The state of individual GPU devices.

    May be sparse.
    """
    used_memory: Uint64 = 0
    """The amount of primary memory in use in kilobytes."""
    load1: float = 0.0
    """One-minute load average."""
    load5: float = 0.0
    """Five-minute load average."""
    load15: float = 0.0
    """Fifteen-minute load average."""
    runnable_entities: Uint64 = 0
    """Number of currently runnable scheduling entities (processes, threads)"""
    existing_entities: Uint64 = 0
    """Number of currently existing sceduling entities."""
    boot: OptionalTimestamp = ""
    """Time when the node was booted. Sonar writes it in UTC.

    Added after the specification (0.16).
    """
    disks: tuple[SampleDisk, ...] = ()
    """The state of individual disks.

    Added after the specification, in Sonar 0.17.
    """


class SampleProcessGpu(Record, frozen=True):
    """Per-process per-gpu sample data.

    NOTE: The difference between gpu_memory and gpu_memory_util is that, on some cards some of the
    time, it is possible to determine one of these but not the other, and vice versa. For example,
    on the NVIDIA cards we can read both quantities for running processes but only gpu_memory for
    some zombies. On the other hand, on our AMD cards there used to be no support for detecting the
    absolute amount of memory used, nor the total amount of memory on the cards, only the
    percentage of gpu memory used (gpu_memory_util). Sometimes we can convert one figure to
    another, but other times we cannot quite do that. Rather than encoding the logic for dealing
    with this in the monitoring component, the task is currently offloaded to the back end. It
    would be good to clean this up, with experience from more GPU types too - maybe gpu_memory_util
    can be removed.

    NOTE: Some cards do not reveal the amount of compute or memory per card per process, only which
    cards and how much compute or memory in aggregate (NVIDIA at least provides the more detailed
    data). In that case, the data revealed here for each card will be the aggregate figure for the
    process divided by the number of cards the process is running on.
    """

    index: Uint64 = 0
    """Local card index, may change at boot."""
    uuid: NonemptyString = ""
    """Card UUID. See preamble for notes about UUIDs."""
    gpu_util: float = 0.0
    """The current GPU percentage utilization for the process on the card.

    (The "gpu_" prefix here and below is sort of redundant but have been retained since it makes
    the fields analogous to the "cpu_" fields.)
    """
    gpu_memory: Uint64 = 0
    """The current GPU memory used in kilobytes for the process on the card. See notes."""
    gpu_memory_util: float = 0.0
    """The current GPU memory usage percentage for the process on the card. See notes."""


class SampleProcess(Record, frozen=True):
    """Sample values for a single process within a job.

    NOTE: Other per-process fields can be added, eg for I/O and energy.

    NOTE: Memory utilization, produced by slurm-monitor, can be computed as resident_memory/memory
    where resident_memory is the field above and memory is that field in the sysinfo object for the
    node or in the slurm data (allocated memory).

    NOTE: Resident memory is a complicated figure. What we want is probably the Pss ("Proportional
    Set Size") which is private memory + a share of memory shared with other processes but that is
    often not available. Then we must choose from just private memory (RssAnon) or private memory +
    all resident memory shared with other processes (Rss). The former is problematic because it
    undercounts memory, the latter problematic because summing resident memory of the processes
    will frequently lead to a number that is more than physical memory as shared memory is counted
    several times.

    NOTE: Container software may not reveal all the process data we want. Docker, for example,
    provides cpu_util but not cpu_avg or cpu_time, and a memory utilization figure from which
    resident_memory must be back-computed.

    NOTE: The fields cpu_time, cpu_avg, and cpu_util are different views on the same quantities and
    are used variously by Sonar and the slurm-monitor dashboard. The Jobanalyzer back-end computes
    its own cpu_util from a time series of cpu_time values and using the cpu_avg as the first value
    in the computed series. The slurm-monitor dashboard in contrast uses cpu_util directly, but as
    it will require some time to perform the sampling it slows down the monitoring process (a
    little) and make it more expensive (a little), and the result is less accurate (it's a sample,
    not an averaging over the entire interval). Possibly having either cpu_avg and cpu_time
    together or cpu_util on its own would be sufficient.
    """

    resident_memory: Uint64 = 0
    """Kilobytes of private resident memory."""
    virtual_memory: Uint64 = 0
    """Kilobytes of virtual data+stack memory."""
    cmd: str = ""
    """The command (not the command line), zombie processes get an extra <defunct> annotation at
    the end, a la ps.
    """
    pid: Uint64 = 0
    """Process ID, zero is used for rolled-up samples (see below at "Rolledup").

    Since 0.18 Sonar as a daemon gives a rolled-up process a synthetic number beyond the system's
    `pid_max`.
    """
    ppid: Uint64 = 0
    """Parent-process ID."""
    num_threads: Uint64 = 0
    """The number of threads in the process, minus 1 - we don't count the process's main thread
    (allowing this fields to be omitted in transmission for most processes).
    """
    cpu_avg: float = 0.0
    """The running average CPU percentage over the true lifetime of the process as reported by the
    operating system. 100.0 corresponds to "one full core's worth of computation". See notes.
    """
    cpu_util: float = 0.0
    """The current sampled CPU utilization of the process, 100.0 corresponds to "one full core's
    worth of computation". See notes.
    """
    cpu_time: Uint64 = 0
    """Cumulative CPU time in seconds for the process over its lifetime. See notes."""
    data_read: Uint64 = 0
    """Kilobytes read with all sorts of read calls (rounded up)."""
    data_written: Uint64 = 0
    """Kilobytes written with all sorts of write calls (rounded up)."""
    data_cancelled: Uint64 = 0
    """Kilobytes written but never flushed to physical media (i.e., held in RAM but then made
    obsolete by overwriting or file deletion or similar) (rounded up).
    """
    rolledup: Int64 = 0
    """The number of additional samples for processes that are "the same" that have been rolled
    into this one. That is, if the value is 1, the record represents the sum of the sample data for
    two processes. See postamble for more.
    """
    gpus: tuple[SampleProcessGpu, ...] = ()
    """GPU sample data for all cards used by the process."""
    in_container: bool = False
    """Whether the process runs in a container.

    Added after the specification (0.16).
    """


class SampleJob(Record, frozen=True):
    """Sample data for a single job.

    NOTE: Information about processes comes from various sources, and not all paths reveal all the
    information, hence there is some hedging about what values there can be, eg for user names.

    NOTE: The (job,epoch) pair must always be used together. If epoch is 0 then job is never 0 and
    other (job,0) records coming from the same or other nodes in the same cluster at the same or
    different time denote other aspects of the same job. Slurm jobs will have epoch=0, allowing us
    to merge event streams from the job both intra- and inter-node, while non-mergeable jobs will
    have epoch not zero. See extensive discussion in the "Rectification" section below.

    NOTE: Other job-wide / cross-process / per-slurm-job fields can be added, e.g. for I/O and
    energy, but only those that can only be monitored from within the node itself. Job data that
    can be extracted from a Slurm master node will be sent with the job data, see later.

    NOTE: Process entries can also be created for jobs running in containers. See below for
    comments about the data that can be collected.

    NOTE: On batch systems there may be more jobs than those managed by the batch system. These are
    distinguished by a non-zero epoch, see above.
    """

    job: Uint64 = 0
    """The job ID."""
    user: NonemptyString = ""
    """User name on the cluster; `_user_<uid>` if not determined but user ID is available,
    `_user_unknown` otherwise.
    """
    epoch: Uint64 = 0
    """Zero for batch jobs, otherwise is a nonzero value that increases (by some amount) when the
    system reboots, and never wraps around. You may think of it as a boot counter for the node, but
    you must not assume that the values observed will be densely packed. See notes.
    """
    processes: tuple[SampleProcess, ...] = ()
    """Processes in the job, all have the same Job ID."""


class SampleAttributes(Record, frozen=True):
    """Holds the state of the node and of its running processes, possibly filtered.

    The state is that at a point in time.

    NOTE: A SampleAttributes object with an empty jobs array represents a heartbeat from an idle
    node, or a recoverable error situation if errors is not empty.
    """

    time: Timestamp = ""
    """Time the current data were obtained."""
    cluster: Hostname = ""
    """The canonical cluster name whence the datum originated."""
    node: Hostname = ""
    """The name of the node as it is known to the node itself."""
    system: SampleSystem | None = None
    """State of the node as a whole.

    None if it was not requested: Sonar leaves it out unless it runs with `load`.
    """
    jobs: tuple[SampleJob, ...] = ()
    """State of jobs on the nodes."""
    errors: tuple[ErrorObject, ...] = ()
    """Recoverable errors, if any."""
