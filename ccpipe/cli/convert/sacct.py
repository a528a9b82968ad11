"""``ccpipe convert --from sacct``."""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC

from ccpipe.config import Duration, Site
from ccpipe.errors import EncodeError
from ccpipe.formats.files import ReadableStream
from ccpipe.formats.slurm.records import SacctRow
from ccpipe.formats.slurm.text.sacct import read_stream
from ccpipe.formats.sonar import WriteProfile, encode
from ccpipe.jobs import Jobs
from ccpipe.message import Message
from ccpipe.terminal import printable
from ccpipe.translate.slurm.jobs import job_of_row
from ccpipe.translate.slurm.to_cc import SlurmToCc
from ccpipe.translate.slurm.to_sonar import SlurmToSonar

ROWS = 1000
"""Rows in one envelope."""
Encoder = tuple[bytes, Callable[[Sequence[Message]], bytes]]


class FromSacct:
    """A ``Converter`` of ``sacct -P`` or ``--json`` to Sonar's JSON, or to events of jobs.

    Times without a zone are UTC.
    """

    unit = "row"

    def __init__(self, cluster: str, profile: WriteProfile, target: Encoder | None = None) -> None:
        """Write Sonar's JSON for a profile, or events as `target` encodes them."""
        self.cluster = cluster
        self.profile = profile
        self.head = target[0] if target else b""
        self.encode = target[1] if target else None
        site = Site(cluster=cluster)
        self.to_sonar = SlurmToSonar(site=site, batch_size=ROWS)
        self.to_cc = SlurmToCc(site=site, stop_delay=Duration(0))

    def convert(
        self, stream: ReadableStream, problem: Callable[[str], None]
    ) -> Iterator[tuple[bytes, int]]:
        for reading in read_stream(stream, zone=UTC):
            for bad in reading.rejected:
                problem(f":{bad.line}: {printable(f'{bad.reason}: {bad.excerpt}')}")
            for at in range(0, len(reading.records), ROWS):
                rows = reading.records[at : at + ROWS]
                try:
                    yield self._convert(rows), len(rows)
                except EncodeError as error:
                    problem(f": {printable(str(error))}")

    def _convert(self, rows: Sequence[SacctRow]) -> bytes:
        known = [row.end or row.start or row.submit or 0 for row in rows]
        jobs = Jobs(
            [job_of_row(row, self.cluster) for row in rows], time=max(known) or time.time_ns()
        )
        if self.encode is not None:
            return self.encode(self.to_cc.feed(jobs))
        (envelope,) = self.to_sonar.feed(jobs)
        return encode(envelope, profile=self.profile)

    def finish(self, problem: Callable[[str], None]) -> Iterator[tuple[bytes, int]]:  # noqa: ARG002 - see Converter
        return iter(())
