"""Publishing the samples of profile files."""

import time
from collections.abc import Sequence

from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Site
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.slurm_profile.extract import samples
from ccpipe.formats.slurm_profile.table import Table
from ccpipe.message import Message
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import note

BATCH = 10_000
REPORT_SECONDS = 5.0


async def publish_samples(tables: Sequence[Table], site: Site, job: str | None) -> int:
    """Publish all samples as metrics and return their number.

    `job` is the job of tables whose file does not say it. Raises UnavailableError, DeniedError as
    ``Sink.write`` does.
    """
    count = 0
    waiting: list[Message] = []
    reported = time.monotonic()
    async with NatsSink(site=site, telemetry=Telemetry()) as sink:
        for sample in samples(tables, site.cluster, job):
            waiting += sample
            count += 1
            if len(waiting) >= BATCH:
                await sink.write(to_lines(waiting))
                waiting = []
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                note(f"{count} samples published")
        await sink.write(to_lines(waiting))
    return count
