"""``Jobs``: the records of a scheduler, as they travel through a pipe."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

import msgspec

from ccpipe.jobs.job import Job
from ccpipe.records import Provenance, RecordList, Rejected

if TYPE_CHECKING:
    import pyarrow as pa

    from ccpipe.formats.slurm.cluster import Cluster

_JOB_SIZE = 2048
"""Approximate size of a job in memory, with its raw record."""


class Jobs(RecordList[Job]):
    """Jobs in the order of their records, with what could not be read beside them."""

    name: ClassVar[str] = "jobs"
    subjects: ClassVar[Sequence[str]] = ("events",)

    def __init__(
        self,
        jobs: Iterable[Job] = (),
        *,
        rejected: Sequence[Rejected] = (),
        provenance: Provenance | None = None,
        size: int | None = None,
        time: int = 0,
        cluster: "Cluster | None" = None,
        errors: Sequence[str] = (),
    ) -> None:
        """Take the jobs, and what else a scheduler reported.

        Parameters
        ----------
        rejected, provenance, size
            See ``RecordList``.
        time
            When a scheduler was asked for them, in nanoseconds since the epoch; 0 if it was not.
        cluster
            What it reported of its nodes and partitions then.
        errors
            What it failed to report.

        """
        super().__init__(jobs, rejected=rejected, provenance=provenance, size=size)
        self.time = time
        self.cluster = cluster
        self.errors = errors

    @staticmethod
    def size_of(record: Job) -> int:  # noqa: ARG004 - all count alike
        """Return the approximate size of a job in memory, in bytes."""
        return _JOB_SIZE

    def take(self, keep: Sequence[int]) -> Self:
        """Return the jobs for which `keep` is true, with all else that was reported."""
        taken = super().take(keep)
        taken.time, taken.cluster, taken.errors = self.time, self.cluster, self.errors
        return taken

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
