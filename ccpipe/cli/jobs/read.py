"""Jobs from the events that streams store."""

import asyncio
import contextlib
import time

from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.nats.connection import BRIEF_SECONDS, Connection
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.streams.stored import read_stored, stored_patterns
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import ValueType
from ccpipe.live.jobs import LiveJobs
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import Progress, plural

MAX_JOBS = 100_000
"""Beyond it those that ended first are dropped; about 200 MB."""
READ_SECONDS = 300.0


async def stored_jobs(site: Site, *, briefly: bool = False) -> LiveJobs:
    """Return all jobs of which the cluster's stream has the start, and those that wait.

    `briefly` waits for the broker for one second only. Raises UnavailableError or DeniedError.
    """
    reader = _EventReader()
    patterns = Subjects.of(site).patterns(("events",))
    bus = Connection(site.bus, name="jobs", telemetry=Telemetry(), forever=False)
    async with contextlib.AsyncExitStack() as opened:
        try:
            async with asyncio.timeout(BRIEF_SECONDS if briefly else None):
                await opened.enter_async_context(bus)
        except TimeoutError:
            raise UnavailableError(f"no NATS server answers at {bus.url}") from None
        if not site.bus.jetstream or not await stored_patterns(bus, patterns):
            raise UnavailableError(
                f"no stream stores the events of {site.cluster} on {bus.url}: "
                "start a bridge, or name a store"
            )
        try:
            async with asyncio.timeout(READ_SECONDS):
                await read_stored(bus, patterns, reader.receive)
        except TimeoutError:
            raise UnavailableError(
                f"reading the events of {site.cluster} takes more than {READ_SECONDS:.0f} s"
            ) from None
        finally:
            reader.progress.clear()
    reader.jobs.expire(time.time())
    return reader.jobs


class _EventReader:
    """Takes the events of jobs from stored messages."""

    def __init__(self) -> None:
        self.jobs = LiveJobs(MAX_JOBS)
        self.progress = Progress()
        self._codec = LineCodec(lenient=True)
        self._count = 0

    def receive(self, delivery: Delivery) -> None:
        self._count += 1
        for lines, _ in self._codec.decode([delivery]):
            for row, kind in enumerate(lines.types):
                if kind == ValueType.TEXT:
                    self.jobs.feed(lines[row], time.time())
        self.progress.show(f"{plural(self._count, 'message')} read")
