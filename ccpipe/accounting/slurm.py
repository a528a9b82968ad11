"""Slurm's jobs as the scheduler-independent columns that ``measures`` and ``sums`` use.

>>> from ccpipe.formats.slurm.text import SacctReader
>>> text = b"JobID|State|ElapsedRaw|MaxRSS\\n3|COMPLETED|55|\\n3.batch|COMPLETED|55|21484K\\n"
>>> (run,) = group_steps(SacctReader().read(text).records)
>>> run.job.elapsed, run.memory
(55, 21999616)
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from ccpipe.accounting.sums import OUTCOME, SchedulerColumns
from ccpipe.errors import DataError, MissingExtra
from ccpipe.formats.slurm.records import SacctRow
from ccpipe.formats.slurm.values import gpu_count, tres

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

UNFINISHED = frozenset({
    "COMPLETING", "CONFIGURING", "PENDING", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RUNNING",
    "RESV_DEL_HOLD", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SUSPENDED",
})  # fmt: skip
"""States of a run that has not ended."""
REQUEUED = "REQUEUED"
"""State of a run after which the job was queued again (``sacct --duplicates``)."""


class JobRun(msgspec.Struct, kw_only=True):
    """One run of a job, an array's task or a heterogeneous job's component, with its steps."""

    job: SacctRow
    memory: int | None = None
    """Largest peak of a step: bytes of all its tasks together, like in seff(1)."""
    max_rss: int | None = None
    """Largest peak of a task in any step, in bytes."""
    user_cpu: float | None = None
    system_cpu: float | None = None
    total_cpu: float | None = None
    """From the job's row, else the sum over its steps; seconds, like the others."""
    consumed_energy: int | None = None
    """Joules."""

    @property
    def is_final(self) -> bool:
        return self.job.state is not None and self.job.state not in UNFINISHED

    @property
    def ends_job(self) -> bool:
        """Whether the job ended with it; a heterogeneous job ends with its first component."""
        return self.is_final and self.job.state != REQUEUED and not self.job.id.het_offset

    @property
    def gpus(self) -> int:
        """GPUs allocated; raises DataError if the TRES cannot be read."""
        return _gpu_count(self.job.alloc_tres)

    @property
    def wait(self) -> float | None:
        if self.job.submit is None or self.job.start is None:
            return None
        return max(0, self.job.start - self.job.submit) / 10**9

    @property
    def efficiency(self) -> float | None:
        allocated = (self.job.alloc_cpus or 0) * (self.job.elapsed or 0)
        return self.total_cpu / allocated if self.total_cpu is not None and allocated else None


_gpu_count = functools.lru_cache(4096)(gpu_count)


def group_steps(
    rows: Iterable[SacctRow], problem: Callable[[str], None] = lambda _: None
) -> Iterator[JobRun]:
    """Yield a run for each job's row, with the rows of its steps after it.

    `problem` is called for steps without a preceding row of their job, and for unreadable values in
    rows that are otherwise counted.
    """
    steps: list[SacctRow] = []
    job: SacctRow | None = None
    for row in rows:
        if not row.is_step:
            if job is not None:
                yield _run(job, steps, problem)
            job, steps = row, []
        elif job is not None and row.id.job == job.id.job:
            steps.append(row)
        else:
            problem(f"step {row.id}: no row of its job precedes it")
    if job is not None:
        yield _run(job, steps, problem)


def _run(job: SacctRow, steps: Sequence[SacctRow], problem: Callable[[str], None]) -> JobRun:
    run = JobRun(
        job=job,
        user_cpu=_own_or_sum("user_cpu", job, steps),
        system_cpu=_own_or_sum("system_cpu", job, steps),
        total_cpu=_own_or_sum("total_cpu", job, steps),
        consumed_energy=_own_or_sum("consumed_energy", job, steps),
    )
    try:
        run.max_rss = max((s.max_rss for s in steps if s.max_rss is not None), default=job.max_rss)
        used = (memory for step in steps if (memory := _memory(step)) is not None)
        run.memory = max(used, default=run.max_rss)
        _gpu_count(job.alloc_tres)
        run.job = _with_cpus(job)
    except DataError as error:
        problem(f"job {job.id}: {error}")
        run.job = _with_cpus(msgspec.structs.replace(job, alloc_tres=None))
    if run.total_cpu is None and run.user_cpu is not None and run.system_cpu is not None:
        run.total_cpu = run.user_cpu + run.system_cpu
    return run


def _with_cpus(job: SacctRow) -> SacctRow:
    """Fill in the allocated CPUs and their time if the columns are missing."""
    cpus, time = job.alloc_cpus, job.cpu_time
    if cpus is None and job.alloc_tres:
        cpus = _cpu_count(job.alloc_tres)
    if time is None and cpus is not None and job.elapsed is not None:
        time = cpus * job.elapsed
    if (cpus, time) == (job.alloc_cpus, job.cpu_time):
        return job
    return msgspec.structs.replace(job, alloc_cpus=cpus, cpu_time=time)


@functools.lru_cache(4096)
def _cpu_count(text: str) -> int | None:
    count = tres(text).get("cpu")
    return None if count is None else int(count)


def _own_or_sum(name: str, job: SacctRow, steps: Sequence[SacctRow]) -> Any:
    own = getattr(job, name)
    known = [value for step in steps if (value := getattr(step, name)) is not None]
    return own if own or not known else sum(known)


def _memory(step: SacctRow) -> int | None:
    """Return the bytes of all tasks: TRESUsageInTot, else the largest task's times the tasks."""
    total = tres(step.tres_usage_in_tot).get("mem")
    if total is not None:
        return int(total)
    return None if step.max_rss is None else step.max_rss * (step.ntasks or 1)


_TEXTS = (
    "cluster", "user", "group", "account", "partition", "qos", "reservation", "wckey", "node_list",
    "job_name",
)  # fmt: skip
COLUMNS: dict[str, tuple[pa.DataType, Callable[[JobRun], Any]]] = {
    **{name: (pa.string(), attrgetter(f"job.{name}")) for name in _TEXTS},
    "state": (pa.string(), lambda run: run.job.state or "UNKNOWN"),
    "alloc_cpus": (pa.int64(), lambda run: run.job.alloc_cpus or 0),
    "alloc_nodes": (pa.int64(), lambda run: run.job.alloc_nodes or 0),
    "job": (pa.int64(), attrgetter("job.id.job")),
    "array_job": (pa.int64(), lambda run: run.job.id.array_job or 0),
    **{name: (pa.int64(), attrgetter(f"job.{name}")) for name in ("submit", "start", "end")},
    **{name: (pa.float64(), attrgetter(f"job.{name}")) for name in ("elapsed", "cpu_time")},
    **{
        name: (pa.float64(), attrgetter(name))
        for name in ("user_cpu", "system_cpu", "total_cpu", "consumed_energy", "memory")
    },
    "gpu_time": (pa.float64(), lambda run: run.gpus * (run.job.elapsed or 0)),
    "requested_memory": (
        pa.float64(),
        lambda run: None if run.memory is None else run.job.requested_memory,
    ),
    "is_final": (pa.bool_(), attrgetter("is_final")),
    "ends_job": (pa.bool_(), attrgetter("ends_job")),
}
"""Type and getter of each column. Memory in bytes, times in ns, others in seconds."""


def to_table(runs: Sequence[JobRun], columns: Sequence[str]) -> pa.Table:
    return pa.table({
        name: pa.array(map(COLUMNS[name][1], runs), COLUMNS[name][0], size=len(runs))
        for name in columns
    })  # fmt: skip


def job_columns(table: pa.Table) -> dict[str, Any]:
    return {
        "is_master": pa.repeat(_TRUE, table.num_rows),
        "is_run": table["is_final"],
        "slots": table["alloc_cpus"],
        "submission_time": table["submit"],
        "start_time": table["start"],
        "wallclock": pc.fill_null(table["elapsed"], _ZERO),
        "memory": table["memory"],
        "requested_memory": table["requested_memory"],
        OUTCOME: table["state"],
        "ends_job": table["ends_job"],
    }


_TRUE, _ZERO = pa.scalar(True, pa.bool_()), pa.scalar(0.0, pa.float64())

SLURM = SchedulerColumns(
    keys={
        "cluster": "cluster", "user": "user", "group": "group", "account": "account",
        "partition": "partition", "qos": "qos", "reservation": "reservation", "wckey": "wckey",
        "nodelist": "node_list", "cpus": "alloc_cpus", "nodes": "alloc_nodes", "name": "job_name",
        "job": "job", "array": "array_job", "state": OUTCOME, "day": "end", "month": "end",
    },
    sums={
        "ElapsedRaw": "elapsed", "CPUTimeRAW": "cpu_time", "UserCPU": "user_cpu",
        "SystemCPU": "system_cpu", "TotalCPU": "total_cpu", "GPUTime": "gpu_time",
        "ConsumedEnergyRaw": "consumed_energy",
    },
    cpu="TotalCPU",
    fields=(
        "alloc_cpus", "submit", "start", "elapsed", "memory", "requested_memory", "state",
        "is_final", "ends_job",
    ),
    job_columns=job_columns,
    good=frozenset({"COMPLETED", REQUEUED}),
)  # fmt: skip
"""Slurm's jobs, by sacct's names; GPUTime is GPUs times elapsed time, in seconds."""
