"""Jobs from the files in which schedulers account for them."""

import logging
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ccpipe.errors import DataError
from ccpipe.formats import gridengine
from ccpipe.formats.files import ReadableStream, open_stream, read_piece
from ccpipe.formats.gridengine import RejectedAccountingLine
from ccpipe.formats.slurm.text import read_sacct
from ccpipe.jobs import Job
from ccpipe.translate.gridengine.jobs import job_of
from ccpipe.translate.slurm.to_sonar import job_of_row
from ccpipe.translate.sonar.sonar_to_cc import job_of as job_of_sonar

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


def read_jobs(path: Path | str, *, cluster: str = "local") -> "JobFile":
    """Return the jobs of a file, to be iterated: one for each record, in bounded memory.

    The format is detected: Grid Engine's accounting of any version, or the output of ``sacct -P``
    or ``sacct --json``, whose times without a zone are UTC and whose steps are left out.

    Parameters
    ----------
    path
        The file; with a suffix such as ``.gz`` it is decompressed.
    cluster
        Name of the cluster: the files do not have it.

    """
    return JobFile(Path(path), cluster)


class JobFile:
    """The jobs of a file, which each iteration reads from its beginning.

    Iterating raises MissingInputError if the file cannot be opened, and DataError if the rest of
    it cannot be read. Lines that are not records are left out, with one warning in the log.
    """

    def __init__(self, path: Path, cluster: str) -> None:
        self.path = path
        self.cluster = cluster
        self.rejected: list[RejectedAccountingLine] = []
        """The lines that the latest iteration could not read, with reasons."""

    def __iter__(self) -> Iterator[Job]:
        self.rejected = []
        try:
            with open_stream(self.path) as stream:
                is_sacct = _is_sacct(read_piece(stream))
            with open_stream(self.path) as stream:
                yield from self._slurm(stream) if is_sacct else self._gridengine(stream)
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from None
        if self.rejected:
            count, first = len(self.rejected), self.rejected[0]
            where = f"line {first.line}: " if first.line else ""
            log.warning(
                "%s: %d records rejected, first %s%s", self.path, count, where, first.reason
            )

    def to_arrow(self) -> "pa.Table":
        """Return all jobs as one table; see ``Jobs.to_arrow``."""
        from ccpipe.jobs.arrow import to_arrow

        return to_arrow(self, Job)

    def _gridengine(self, stream: ReadableStream) -> Iterator[Job]:
        for part in gridengine.read_stream(stream, file=str(self.path)):
            self.rejected += part.rejected
            for record in part.records:
                yield job_of(record, self.cluster)

    def _slurm(self, stream: ReadableStream) -> Iterator[Job]:
        for part in read_sacct(stream, zone=UTC):
            for bad in part.rejected:
                self._reject(bad.line, bad.reason, bad.original)
            for row in part.records:
                try:
                    job = job_of_sonar(self.cluster, job_of_row(row))
                except DataError as error:
                    self._reject(0, str(error), repr(row).encode(errors="backslashreplace"))
                else:
                    if job is not None:  # not of a step
                        yield replace(job, raw=row)

    def _reject(self, line: int, reason: str, original: bytes) -> None:
        self.rejected.append(RejectedAccountingLine(line, 0, reason, original))


def _is_sacct(head: bytes) -> bool:
    """Return whether a file that begins so is sacct's: a table with a header, or one document."""
    line = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0]
    if line.startswith(b"{"):
        return b'"job_number"' not in line
    return b"|" in line and b"JobID" in line
