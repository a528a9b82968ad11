"""Job identity: which records are about the same job.

A batch job has a unique number in its cluster: records of (cluster, job, epoch 0) belong together
whatever their node and time. Any other job is a process group of one node: (cluster, node, job,
epoch) identifies it, where the epoch distinguishes the node's boots. Since process group IDs are
reused, a gap without records ends one job and begins the next.

Source: Sonar JSON format output specification, *The meaning of a Job ID* and *Slurm Job ID
structure*.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.formats.sonar.types.job import SlurmJob
from ccpipe.formats.sonar.types.sample import SampleAttributes
from ccpipe.formats.sonar.types.timestamp import parse as parse_time

GAP = 3 * 3600 * 10**9
"""Nanoseconds without records after which the same number is another job: "on the order of a few
hours", and less than it takes for process IDs to be reused."""

EPOCH_ZERO = 1577836800
"""Seconds from 1970 to 2020: Sonar's ``epoch`` is the node's boot time, counted from 2020,
so that it is never zero (``EpochTimeBase`` in Sonar's ``types.go``)."""


class JobId(NamedTuple):
    """Slurm's ID of a job, or of one of its steps.

    >>> JobId.parse("1467073_1.extern", raw="1467074.extern")
    JobId(job=1467074, step='extern', array_job=1467073, array_task=1, het_job=0, het_offset=None)
    """

    job: int
    """The number of the job itself: of the array's task, of the heterogeneous job's part."""
    step: str = ""
    """``""`` for the job as a whole, ``"0"`` for its first step, ``"batch"``, ``"extern"``."""
    array_job: int = 0
    """The number that all tasks of an array share; 0 outside of arrays."""
    array_task: int | None = None
    """Index in the array; None outside of arrays, and for all pending tasks together."""
    het_job: int = 0
    """The number that all parts of a heterogeneous job share; 0 for any other job."""
    het_offset: int | None = None
    """Index in the heterogeneous job."""

    @classmethod
    def parse(cls, text: str, raw: str = "") -> "JobId":
        """Read sacct's ``JobID`` and ``JobIDRaw``.

        Without the second, the job of an array's task is not known: the array's number is used.
        Pending tasks are listed together as ``123_[1-5]``.

        Raises
        ------
        DataError
            for anything else.

        """
        shown, plain = _JOB_ID.fullmatch(text), _JOB_ID.fullmatch(raw or text)
        if shown is None or plain is None:
            raise DataError(f"{text if shown is None else raw!r:.60} is not a job ID")
        number, task, offset, step = shown.group("job", "task", "offset", "step")
        return cls(
            job=int(plain["job"]),
            step=step or "",
            array_job=int(number) if "_" in text else 0,
            array_task=None if task is None else int(task),
            het_job=0 if offset is None else int(number),
            het_offset=None if offset is None else int(offset),
        )

    @classmethod
    def of(cls, job: SlurmJob) -> "JobId":
        """Return a record's ID; task 0 of an array looks like all its pending tasks there."""
        return cls(
            job=job.job_id,
            step=job.job_step,
            array_job=job.array_job_id,
            array_task=job.array_task_id if job.array_job_id else None,
            het_job=job.het_job_id,
            het_offset=job.het_job_offset if job.het_job_id else None,
        )

    def __str__(self) -> str:
        """Write it as ``JobID`` shows it: ``1467073_1.extern``."""
        text = str(self.array_job or self.het_job or self.job)
        if self.array_task is not None:
            text += f"_{self.array_task}"
        if self.het_offset is not None:
            text += f"+{self.het_offset}"
        return f"{text}.{self.step}" if self.step else text


_JOB_ID = re.compile(
    r"(?P<job>[0-9]{1,19})(?:_(?:(?P<task>[0-9]{1,19})|\[[^]]*\])|\+(?P<offset>[0-9]{1,19}))?"
    r"(?:\.(?P<step>[^.]+))?"
)


class JobObservation(NamedTuple):
    """One record about a job."""

    cluster: str
    node: str
    job: int
    epoch: int
    time: int
    """Nanoseconds since the Unix epoch."""


class JobIdentity(NamedTuple):
    """One job, whatever records are about it."""

    cluster: str
    node: str
    """Empty for a batch job, which may run on many nodes."""
    job: int
    epoch: int
    since: int
    """Time of the first of its records, in nanoseconds; 0 for a batch job."""


def job_observations(sample: SampleAttributes) -> Iterator[JobObservation]:
    """Yield a record for each job of a sample; raises DataError if it has no time."""
    time = parse_time(sample.time)
    if time is None:
        raise DataError(
            f"a sample of {sample.node!r} has no time, so its jobs cannot be identified"
        )
    for job in sample.jobs:
        yield JobObservation(sample.cluster, sample.node, job.job, job.epoch, time)


def group_by_job(
    records: Iterable[JobObservation], *, gap: int = GAP
) -> dict[JobIdentity, list[JobObservation]]:
    """Group records by job, sorted by time; `gap` is in nanoseconds."""
    timelines: dict[JobIdentity, list[JobObservation]] = {}
    for record in records:
        timelines.setdefault(_timeline(record), []).append(record)
    jobs: dict[JobIdentity, list[JobObservation]] = {}
    for timeline, members in timelines.items():
        members.sort(key=lambda record: record.time)
        before, job = None, timeline
        for member in members:
            if timeline.epoch and (before is None or member.time - before > gap):
                job = timeline._replace(since=member.time)
            jobs.setdefault(job, []).append(member)
            before = member.time
    return jobs


def _timeline(record: JobObservation) -> JobIdentity:
    """Return the identity without the time."""
    node = record.node if record.epoch else ""
    return JobIdentity(record.cluster, node, record.job, record.epoch, 0)


class JobTracker:
    """Identifies jobs record by record, in approximate order of time.

    It remembers jobs seen within two gaps. A late record that is no more than a gap older than the
    first record of its job belongs to that job.
    """

    def __init__(self, *, gap: int = GAP) -> None:
        """Begin without jobs; `gap` is in nanoseconds."""
        self.gap = gap
        self._seen: dict[JobIdentity, tuple[int, int]] = {}  # first and last time; oldest first

    def identify(self, record: JobObservation) -> JobIdentity:
        """Return the job that a record belongs to."""
        timeline = _timeline(record)
        if not timeline.epoch:
            return timeline
        since, last = self._seen.pop(timeline, (record.time, record.time))
        if record.time < since - self.gap:  # of an earlier job
            self._seen[timeline] = since, last
            return timeline._replace(since=record.time)
        if record.time - last > self.gap:
            since = record.time
        self._seen[timeline] = since, max(last, record.time)
        self._forget(record.time - 2 * self.gap)
        return timeline._replace(since=since)

    def _forget(self, before: int) -> None:
        while True:
            timeline = next(iter(self._seen))
            if self._seen[timeline][1] >= before:
                return
            del self._seen[timeline]
