"""What Slurm calls a job or a step: ``3``, ``13_1``, ``36_[0-9%2]``, ``17+1``, ``3.batch``.

>>> SlurmId.read("13_1.batch", raw="14.batch")
SlurmId(job=14, step='batch', array_job=13, array_task=1, pending_tasks='', het_job=None, \
het_offset=None)

Source: ``slurmdb_get_job_id_str`` and ``log_build_step_id_str`` of Slurm; sacct(1), *JobID*.
"""

import re
from typing import Self

import msgspec

from ccpipe.errors import DataError

_ID = re.compile(
    r"(?P<job>[0-9]{1,10})"
    r"(?:_(?:(?P<task>[0-9]{1,10})|\[(?P<tasks>[^]\s]*)\])|\+(?P<offset>[0-9]{1,10}))?"
    r"(?:\.(?P<step>[A-Za-z0-9_+]+))?"
)
_MAX_DIGITS = 10


class SlurmId(msgspec.Struct, frozen=True, order=True, gc=False):
    """Which job, task of an array, component of a heterogeneous job, and step."""

    job: int
    """The job's own number, ``JobIDRaw``. The last task of an array has that of the array."""
    step: str = ""
    """``""`` for the job as a whole, else ``0``, ``batch``, ``extern``, ``interactive``."""
    array_job: int | None = None
    """The number that all tasks of an array share."""
    array_task: int | None = None
    pending_tasks: str = ""
    """Which tasks a pending array still has, such as ``0-9%2``."""
    het_job: int | None = None
    """The number that all components of a heterogeneous job share."""
    het_offset: int | None = None

    @classmethod
    def read(cls, shown: str, raw: str = "") -> Self:
        """Read ``JobID`` and ``JobIDRaw``, or squeue's ``%i`` and ``%A``, in either order.

        Without the second, the number of an array's task is not known: `job` is then that of the
        array, and for a component of a heterogeneous job that of the first.

        Raises
        ------
        DataError
            for what is no number of a job.

        """
        if raw in ("", shown):
            job, dot, step = shown.partition(".")
            if (
                job.isdigit()
                and job.isascii()
                and len(job) <= _MAX_DIGITS
                and bool(dot) == bool(step)
                and (not dot or (step.isalnum() and step.isascii()))
            ):
                return cls(int(job), step)
        if "_" in raw or "+" in raw:
            shown, raw = raw, shown
        found = _ID.fullmatch(shown)
        own = _ID.fullmatch(raw) if raw else found
        if found is None or own is None:
            bad = shown if found is None else raw
            raise DataError(f"not a job's number: {bad!r:.60} (expected e.g. 13_1, 17+1.0)")
        number, task, tasks, offset, step = found.groups()
        in_array = task is not None or tasks is not None
        return cls(
            job=int(own["job"]),
            step=step or "",
            array_job=int(number) if in_array else None,
            array_task=None if task is None else int(task),
            pending_tasks=tasks or "",
            het_job=None if offset is None else int(number),
            het_offset=None if offset is None else int(offset),
        )

    @property
    def raw(self) -> str:
        """As ``JobIDRaw`` prints it: ``14.batch``."""
        return f"{self.job}.{self.step}" if self.step else str(self.job)

    def __str__(self) -> str:
        """Return it as ``JobID`` prints it: ``13_1.batch``."""
        if self.array_job is not None:
            text = f"{self.array_job}_"
            text += f"[{self.pending_tasks}]" if self.array_task is None else str(self.array_task)
        elif self.het_job is not None:
            text = f"{self.het_job}+{self.het_offset}"
        else:
            text = str(self.job)
        return f"{text}.{self.step}" if self.step else text
