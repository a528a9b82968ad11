"""Identity of jobs.

A batch job has a unique number in its cluster: records of (cluster, job, epoch 0) belong together
whatever their node and time. Any other job is a process group of one node: (cluster, node, job,
epoch) identifies it, where the epoch distinguishes the node's boots. Since process group IDs are
reused, a gap without records ends one job and begins the next.

Source: Sonar JSON format output specification, *The meaning of a Job ID* and *Slurm Job ID
structure*.
"""

import re
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.formats.sonar.types.job import SlurmJob

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

        Raises DataError for anything else.
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
