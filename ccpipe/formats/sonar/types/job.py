"""Slurm's jobs, from its accounting.

Source: Sonar JSON format output specification, the types of the same names.
"""

from ccpipe.formats.sonar.types.primitives import (
    UNSET,
    ExtendedUint,
    Hostname,
    NonemptyString,
    NonzeroUint,
    OptionalTimestamp,
    Record,
    Timestamp,
    Uint64,
)


class SacctData(Record, frozen=True):
    """Data aggregated by sacct, available if the sampling was done by sacct.

    (As opposed to via the Slurm REST API.) The fields are named as they are in the sacct output,
    and the field documentation is mostly copied from the sacct man page.
    """

    MinCPU: Uint64 = 0
    """Minimum (system + user) CPU time of all tasks in job."""
    AllocTRES: str = ""
    """Requested resources. These are the resources allocated to the job/step after the job started
    running.
    """
    AveCPU: Uint64 = 0
    """Average (system + user) CPU time of all tasks in job."""
    AveDiskRead: Uint64 = 0
    """Average number of kilobytes read by all tasks in job."""
    AveDiskWrite: Uint64 = 0
    """Average number of kilobytes written by all tasks in job."""
    AveRSS: Uint64 = 0
    """Average resident set size of all tasks in job, in kilobytes."""
    AveVMSize: Uint64 = 0
    """Average Virtual Memory size of all tasks in job, in kilobytes."""
    ElapsedRaw: Uint64 = 0
    """The job's elapsed time in seconds."""
    SystemCPU: Uint64 = 0
    """The amount of system CPU time used by the job or job step."""
    UserCPU: Uint64 = 0
    """The amount of user CPU time used by the job or job step."""
    MaxRSS: Uint64 = 0
    """Maximum resident set size of all tasks in job, in kilobytes."""
    MaxVMSize: Uint64 = 0
    """Maximum Virtual Memory size of all tasks in job, in kilobytes."""


class SlurmJob(Record, frozen=True):
    """One record of a Slurm job: of the job itself or of one of its steps.

    See extensive discussion in the postamble for what motivates the following spec. In particular,
    Job IDs are very complicated.

    Fields below mostly carry names and semantics from the Slurm REST API, except where those names
    or semantics are unworkable. (For example, the name field really needs to be job_name.)

    NOTE: Fields with substructure (AllocTRES, GRESDetail) may have parsers, see other files in
    this package.

    NOTE: There may be various ways of getting the data: sacct, scontrol, slurmrestd, or talking to
    the database directly.

    NOTE: References to "slurm" for the fields below are to the Slurm REST API specification. That
    API is poorly documented and everything here is subject to change.

    NOTE: The first four fields, job_id, job_step, job_name, and job_state must be transmitted in
    every record. Other fields depend on the nature and state of the job. Every field should be
    transmitted with the first record for the step that is sent after the field acquires a value.
    """

    job_id: NonzeroUint = 0
    """The Slurm Job ID that directly controls the task that the record describes, in an array or
    het job this is the primitive ID of the subjob.

    sacct: the part of `JobIDRaw` before the separator (".", "_", "+").

    slurm: `JOB_INFO.job_id`.
    """
    job_step: str = ""
    """The step identifier for the job identified by job_id. For the topmost step/stage of a job
    this will be the empty string. Other values normally have the syntax of unsigned integers, but
    may also be the strings "extern" and "batch". This field's default value is the empty string.

    NOTE: step 0 and step "empty string" are different, in fact thinking of a normal number-like
    step name as a number may not be very helpful.

    sacct: the part of `JobIDRaw` after the separator.

    slurm: via jobs: `Job.STEP_STEP.name`, probably.
    """
    job_name: str = ""
    """The name of the job.

    sacct: `JobName`.

    slurm: `JOB_INFO.name`.
    """
    job_state: NonemptyString = ""
    """The state of the job described by the record, an all-uppercase word from the set PENDING,
    RUNNING, CANCELLED, COMPLETED, DEADLINE, FAILED, OUT_OF_MEMORY, TIMEOUT.

    sacct: `State`, though sometimes there's additional information in the output that we will
    discard ("CANCELLED by nnn").

    slurm: `JOB_STATE.current` probably, though that has multiple values.
    """
    array_job_id: Uint64 = 0
    """The overarching ID of an array job, see discussion in the postamble.

    sacct: the n of a `JobID` of the form `n_m.s`

    slurm: `JOB_INFO.array_job_id`.
    """
    array_task_id: Uint64 = 0
    """if `array_job_id` is not zero, the array element's index. Individual elements of an array
    job have their own plain job_id; the `array_job_id` identifies these as part of the same array
    job and the array_task_id identifies their position within the array, see later discussion.

    sacct: the m of a `JobID` of the form `n_m.s`.

    slurm: `JOB_INFO.array_task_id`.
    """
    het_job_id: Uint64 = 0
    """If not zero, the overarching ID of a heterogenous job.

    sacct: the n of a `JobID` of the form `n+m.s`

    slurm: `JOB_INFO.het_job_id`
    """
    het_job_offset: Uint64 = 0
    """If `het_job_id` is not zero, the het job element's index.

    sacct: the m of a `JobID` of the form `n+m.s`

    slurm: `JOB_INFO.het_job_offset`.
    """
    user_name: str = ""
    """The name of the user running the job. Important for tracking resources by user.

    sacct: `User`

    slurm: `JOB_INFO.user_name`
    """
    account: str = ""
    """The name of the user's account. Important for tracking resources by account.

    sacct: `Account`

    slurm: `JOB_INFO.account`
    """
    submit_time: OptionalTimestamp = ""
    """The time the job was submitted.

    sacct: `Submit`

    slurm: `JOB_INFO.submit_time`

    The specification calls it a Timestamp; it is an OptionalTimestamp here, since a job may not
    have one yet.
    """
    time_limit: ExtendedUint = UNSET
    """The time limit in minutes for the job.

    sacct: `TimelimitRaw`

    slurm: `JOB_INFO.time_limit`

    Sonar 0.19 writes seconds: see the profile `sonar`.
    """
    partition: str = ""
    """The name of the partition to use.

    sacct: `Partition`

    slurm: `JOB_INFO.partiton`
    """
    reservation: str = ""
    """The name of the reservation.

    sacct: `Reservation`

    slurm: `JOB_INFO.resv_name`
    """
    nodes: tuple[str, ...] = ()
    """The nodes allocated to the job or step.

    sacct: `NodeList`

    slurm: `JOB_INFO.nodes`

    Each is a list of nodes as NodeRange writes it.
    """
    priority: ExtendedUint = UNSET
    """The job priority.

    sacct: `Priority`

    slurm: `JOB_INFO.priority`
    """
    distribution: str = ""
    """Requested layout.

    sacct: `Layout`

    slurm: `JOB_INFO.steps[i].task.distribution`
    """
    gres_detail: tuple[str, ...] = ()
    """Requested resources. For running jobs, the data can in part be synthesized from process
    samples: we'll know the resources that are being used.

    sacct: TBD - TODO (possibly unavailable or maybe only when RUNNING).

    slurm: `JOB_INFO.gres_detail`

    Sonar removed it after 0.16: see `requested_resources`.
    """
    requested_cpus: Uint64 = 0
    """Number of requested CPUs.

    sacct: `ReqCPUS`

    slurm: `JOB_INFO.cpus`

    TODO: Is this per node? If so, change the name of the field.

    Later versions say: for the job in total.
    """
    minimum_cpus_per_node: Uint64 = 0
    """TODO: Description. This may be the same as requested_cpus?

    sacct: TODO - TBD.

    slurm: `JOB_INFO.minimum_cpus_per_node`

    Sonar removed it after 0.16.
    """
    requested_memory_per_node: Uint64 = 0
    """Amount of requested memory in kilobytes.

    sacct: `ReqMem`

    slurm: `JOB_INFO.memory_per_node`
    """
    requested_node_count: Uint64 = 0
    """Number of requested nodes.

    sacct: `ReqNodes`

    slurm: `JOB_INFO.node_count`
    """
    start_time: OptionalTimestamp = ""
    """Time the job started, if started.

    sacct: `Start`

    slurm: `JOB_INFO.start_time`

    The specification calls it a Timestamp; it is an OptionalTimestamp here, since a job may not
    have one yet.
    """
    suspend_time: Uint64 = 0
    """Number of seconds the job was suspended.

    sacct: `Suspended`

    slurm: `JOB_INFO.suspend_time`
    """
    end_time: OptionalTimestamp = ""
    """Time the job ended (or was cancelled), if ended.

    sacct: `End`

    slurm: `JOB_INFO.end_time`

    The specification calls it a Timestamp; it is an OptionalTimestamp here, since a job may not
    have one yet.
    """
    exit_code: Uint64 = 0
    """Job exit code, if ended.

    sacct: `ExitCode`

    slurm: `JOB_INFO.exit_code.return_code`
    """
    sacct: SacctData | None = None
    """Data specific to sacct output."""
    requested_resources: str = ""
    """Requested resources, as `scontrol` shows them in `ReqTRES` or `TRES`.

    Added after the specification (0.16).
    """
    allocated_resources: str = ""
    """Allocated resources: the same text as `sacct.AllocTRES`.

    Added after the specification (0.16).
    """


class JobsAttributes(Record, frozen=True):
    """A collection of jobs.

    NOTE: There can eventually be other types of jobs, there will be other fields for them here,
    and the decoder will populate the correct field. Other fields will be nil.
    """

    time: Timestamp = ""
    """Time the current data were obtained."""
    cluster: Hostname = ""
    """The canonical cluster name."""
    slurm_jobs: tuple[SlurmJob, ...] = ()
    """Individual job records. There may be multiple records per job, one per job step."""
