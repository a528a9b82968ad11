"""Messages stored in JetStream: shown first, and searched for the starts of jobs."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ccpipe.bus.nats.client import end_tasks
from ccpipe.bus.nats.connection import Connection, Delivery
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.tail.options import Options
from ccpipe.config import Site
from ccpipe.errors import CcpipeError, DeniedError, UnavailableError
from ccpipe.formats.lineprotocol import decode
from ccpipe.terminal import note

if TYPE_CHECKING:
    from ccpipe.cli.tail.jobs import JobNodes

SEARCH_SECONDS = 10.0
"""Time limit for searching the starts of jobs before messages are shown."""

Receive = Callable[[Sequence[str], Delivery], None]


class StoredReader:
    """Reads the streams that store the requested subjects."""

    def __init__(
        self,
        bus: Connection,
        site: Site,
        options: Options,
        receive: Receive,
        jobs: "JobNodes | None",
    ) -> None:
        """Prepare; without a history and jobs JetStream is not queried."""
        self.bus = bus
        self.site = site
        self.options = options
        self.receive = receive
        self.jobs = jobs
        self._streams: dict[str, list[str]] = {}

    async def begin(self, patterns: Sequence[str]) -> list[str]:
        """Find the streams; return the patterns that none of them stores, for plain subscriptions.

        Raises
        ------
        UnavailableError, DeniedError
            if JetStream does not answer, or denies access.

        """
        if self.jobs is not None:
            await self._search(self.jobs)
        if not self.options.is_history:
            return list(patterns)
        from ccpipe.bus.nats.streams.history import streams_of

        self._streams = await streams_of(self.bus.jetstream(), patterns)
        stored = {pattern for found in self._streams.values() for pattern in found}
        if not stored:
            note(f"no stream stores {', '.join(patterns)}: new messages only", "yellow")
        return [pattern for pattern in patterns if pattern not in stored]

    async def run(self) -> None:
        """Pass on stored messages and, if following, new ones."""
        if not self._streams:
            if self.options.follow:
                await asyncio.Event().wait()
            return
        from ccpipe.bus.nats.streams.history import StreamHistory

        readers = [
            StreamHistory(
                self.bus, stream, patterns, lambda delivery: self.receive((), delivery),
                since=self.options.begin,
            )
            for stream, patterns in self._streams.items()
        ]  # fmt: skip
        tasks = [asyncio.create_task(each.run(follow=self.options.follow)) for each in readers]
        try:
            await asyncio.gather(*tasks)
        finally:
            await end_tasks(tasks)

    async def _search(self, jobs: "JobNodes") -> None:
        """Search stored messages for starts; without JetStream only new ones are seen."""
        from ccpipe.bus.nats.streams.history import StreamHistory, streams_of

        patterns = Subjects.of(self.site).patterns(["events"], "*")
        try:
            streams = await streams_of(self.bus.jetstream(), patterns)
            for stream, found in streams.items():
                reader = StreamHistory(self.bus, stream, found, self._learn(jobs), since=None)
                reading = asyncio.create_task(reader.run(follow=False))
                await asyncio.wait({reading}, timeout=SEARCH_SECONDS)
                if reading.done():
                    reading.result()
                await end_tasks([reading])
        except (UnavailableError, DeniedError) as error:
            note(f"stored starts of jobs cannot be read: {error}", "yellow")
        if not jobs.nodes:
            known = ", ".join(map(str, sorted(jobs.jobs)))
            note(f"no start of job {known} was found: waiting for one", "yellow")

    @staticmethod
    def _learn(jobs: "JobNodes") -> Callable[[Delivery], None]:
        def learn(delivery: Delivery) -> None:
            try:
                for message in decode(delivery.payload, lenient=True):
                    jobs.add_event(message)
            except CcpipeError:
                return

        return learn
