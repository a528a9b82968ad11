"""``Jobs``: the records of a scheduler, as they travel through a pipe."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Self, SupportsIndex, overload

import msgspec

from ccpipe.jobs.job import Job
from ccpipe.pipeline.interfaces import Rejected

if TYPE_CHECKING:
    import pyarrow as pa

_JOB_SIZE = 2048
"""Approximate size of a job in memory, with its raw record."""


class Jobs(list[Job]):
    """Jobs, with what could not be read beside them.

    Parameters
    ----------
    jobs
        In the order of their records.
    rejected
        The pieces of their payload that could not be read.
    payload_size
        Its size in bytes.

    """

    name: ClassVar[str] = "jobs"
    subjects: ClassVar[Sequence[str]] = ("events",)

    def __init__(
        self,
        jobs: Iterable[Job] = (),
        *,
        rejected: Sequence[Rejected] = (),
        payload_size: int = 0,
    ) -> None:
        super().__init__(jobs)
        self.rejected = rejected
        self.payload_size = payload_size

    @overload
    def __getitem__(self, index: SupportsIndex) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> "Jobs": ...
    def __getitem__(self, index: SupportsIndex | slice) -> "Job | Jobs":
        found = super().__getitem__(index)
        return Jobs(found) if isinstance(found, list) else found

    @classmethod
    def of(cls, records: Iterable[Job]) -> Self:
        """Return ``Jobs`` unchanged, any other jobs as ``Jobs``."""
        return records if isinstance(records, cls) else cls(records)

    @classmethod
    def concat(cls, parts: Sequence[Sequence[Job]]) -> Self:
        """Concatenate jobs in order."""
        jobs = [cls.of(part) for part in parts]
        return cls(
            chain.from_iterable(jobs),
            rejected=[bad for part in jobs for bad in part.rejected],
            payload_size=sum(part.payload_size for part in jobs),
        )

    @property
    def size(self) -> int:
        """Approximate size of the jobs in memory, in bytes."""
        return self.payload_size + _JOB_SIZE * len(self)

    def to_arrow(self) -> "pa.Table":
        """Return an Arrow table with the fields of each job but its raw record.

        Times are timestamps, null if they are unknown; nodes and usage are nested.

        Raises
        ------
        MissingExtra
            if pyarrow is not installed.
        DataError
            if Arrow cannot hold a value, such as an integer beyond 64 bits.

        """
        from ccpipe.jobs.arrow import to_arrow

        return to_arrow(self)

    def original(self, index: int) -> bytes:
        """Return a job's raw record as JSON, or the job without one; ``repr`` where JSON cannot."""
        job = self[index]
        try:
            return msgspec.json.encode(job if job.raw is None else job.raw)
        except (TypeError, ValueError):
            return repr(job).encode(errors="backslashreplace")
