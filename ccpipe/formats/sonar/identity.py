"""Which records speak of one job.

A batch job has one number in its cluster, never used twice: records of (cluster, job, epoch 0)
belong together whatever node and time they come from. Any other job is a process group of one
node: (cluster, node, job, epoch) names it, where the epoch tells the node's boots apart; and since
process groups are used again, a silence longer than a gap ends one job and begins the next.

Source: Sonar JSON format output specification, *The meaning of a Job ID* and *Slurm Job ID
structure*.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.formats.sonar.job import SlurmJob
from ccpipe.formats.sonar.sample import SampleAttributes
from ccpipe.formats.sonar.timestamp import parse as parse_time

GAP = 3 * 3600 * 10**9
"""Nanoseconds of silence after which the same number is another job: "on the order of a few
hours", and less than process numbers take to come round again."""

EPOCH_ZERO = 1577836800
"""Seconds from 1970 to 2020: Sonar's ``epoch`` is the time of the node's boot, counted from there,
so that it is never zero (``EpochTimeBase`` in Sonar's ``types.go``)."""


class JobId(NamedTuple):
    """What Slurm calls a job, or one step of it.

    >>> JobId.parse("1467073_1.extern", raw="1467074.extern")
    JobId(job=1467074, step='extern', array_job=1467073, array_task=1, het_job=0, het_offset=None)
    """

    job: int
    """The number of the job itself: of the array's task, of the heterogeneous job's part."""
    step: str = ""
    """``""`` for the job as a whole, ``"0"`` for its first step, ``"batch"``, ``"extern"``."""
    array_job: int = 0
    """The number that all tasks of an array share; 0 for a job that is in none."""
    array_task: int | None = None
    """Its index in the array; None where it is in none, or stands for all that are pending."""
    het_job: int = 0
    """The number that all parts of a heterogeneous job share; 0 for a job that is no such."""
    het_offset: int | None = None
    """Its place in the heterogeneous job."""

    @classmethod
    def parse(cls, text: str, raw: str = "") -> "JobId":
        """Read sacct's ``JobID`` and ``JobIDRaw``.

        Without the second, the number of an array's task is not known: it is then that of the
        array. Pending tasks stand together as ``123_[1-5]``.

        Raises
        ------
        DataError
            for what is no number of a job.

        """
        shown, plain = _JOB_ID.fullmatch(text), _JOB_ID.fullmatch(raw or text)
        if shown is None or plain is None:
            raise DataError(f"{text if shown is None else raw!r:.60} is not a job's number")
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
        """Return what a record says; an array's first task and all pending ones are told alike."""
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


class Sighting(NamedTuple):
    """One record that speaks of a job."""

    cluster: str
    node: str
    job: int
    epoch: int
    time: int
    """Nanoseconds since the epoch of Unix."""


class Job(NamedTuple):
    """One job, whoever spoke of it."""

    cluster: str
    node: str
    """Empty for a batch job, which may run on many nodes."""
    job: int
    epoch: int
    since: int
    """When it was first seen, of the records at hand; 0 for a batch job, which needs no such."""


def sightings(sample: SampleAttributes) -> Iterator[Sighting]:
    """Yield the jobs that a sample speaks of; raises DataError where it has no time."""
    time = parse_time(sample.time)
    if time is None:
        raise DataError(f"a sample of {sample.node!r} has no time: whose jobs it tells is unknown")
    for job in sample.jobs:
        yield Sighting(sample.cluster, sample.node, job.job, job.epoch, time)


def group(records: Iterable[Sighting], *, gap: int = GAP) -> dict[Job, list[Sighting]]:
    """Sort records by job, and those of each job by time; `gap` is in nanoseconds."""
    timelines: dict[Job, list[Sighting]] = {}
    for record in records:
        timelines.setdefault(_timeline(record), []).append(record)
    jobs: dict[Job, list[Sighting]] = {}
    for timeline, members in timelines.items():
        members.sort(key=lambda record: record.time)
        before, job = None, timeline
        for member in members:
            if timeline.epoch and (before is None or member.time - before > gap):
                job = timeline._replace(since=member.time)
            jobs.setdefault(job, []).append(member)
            before = member.time
    return jobs


def _timeline(record: Sighting) -> Job:
    """Return all that names a job but the time."""
    node = record.node if record.epoch else ""
    return Job(record.cluster, node, record.job, record.epoch, 0)


class Tracker:
    """The same for records that come one by one, about in the order of their times.

    It remembers jobs that were seen within two gaps, and no others. A record that comes late, but
    no more than a gap before its job was first seen, belongs to that job.
    """

    def __init__(self, *, gap: int = GAP) -> None:
        """Begin without any job; `gap` is in nanoseconds."""
        self.gap = gap
        self._seen: dict[Job, tuple[int, int]] = {}  # since and last of each, longest unseen first

    def identify(self, record: Sighting) -> Job:
        """Say which job a record belongs to."""
        timeline = _timeline(record)
        if not timeline.epoch:
            return timeline
        since, last = self._seen.pop(timeline, (record.time, record.time))
        if record.time < since - self.gap:  # of an earlier job, long over
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
