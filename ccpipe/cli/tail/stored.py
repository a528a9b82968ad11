"""Messages stored in JetStream: shown first, and searched for the starts of jobs."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

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


class StoredReader:
    """Reads the streams that store the requested subjects."""

    def __init__(
        self,
        bus: Connection,
        site: Site,
        options: Options,
        receive: Callable[[Sequence[str], Delivery], None],
        jobs: "JobNodes | None",
    ) -> None:
        """Prepare; without a history and jobs JetStream is not queried."""
        self.bus = bus
        self.site = site
        self.options = options
        self.receive = receive
        self.jobs = jobs
        self._stored: set[str] = set()

    async def begin(self, patterns: Sequence[str]) -> list[str]:
        """Find what is stored; return the patterns of which nothing is, for plain subscriptions.

        Raises
        ------
        UnavailableError, DeniedError
            if JetStream does not answer, or denies access.

        """
        if self.jobs is not None:
            await self._search(self.jobs)
        if not self.options.is_history:
            return list(patterns)
        from ccpipe.bus.nats.streams.stored import stored_patterns

        self._stored = await stored_patterns(self.bus, patterns)
        if not self._stored:
            note(f"no stream stores {', '.join(patterns)}: new messages only", "yellow")
        return [pattern for pattern in patterns if pattern not in self._stored]

    async def run(self) -> None:
        """Pass on stored messages and, if following, new ones."""
        if self._stored:
            from ccpipe.bus.nats.streams.stored import read_stored

            await read_stored(
                self.bus, sorted(self._stored), lambda delivery: self.receive((), delivery),
                since=self.options.begin, follow=self.options.follow,
            )  # fmt: skip
        elif self.options.follow:
            await asyncio.Event().wait()

    async def _search(self, jobs: "JobNodes") -> None:
        """Search stored messages for starts; without JetStream only new ones are seen."""
        from ccpipe.bus.nats.streams.stored import read_stored

        def learn(delivery: Delivery) -> None:
            try:
                for message in decode(delivery.payload, lenient=True):
                    jobs.add_event(message)
            except CcpipeError:
                return

        patterns = Subjects.of(self.site).patterns(["events"], "*")
        try:
            async with asyncio.timeout(SEARCH_SECONDS):
                await read_stored(self.bus, patterns, learn)
        except (UnavailableError, DeniedError) as error:
            note(f"stored starts of jobs cannot be read: {error}", "yellow")
        except TimeoutError:
            pass
        if not jobs.nodes:
            known = ", ".join(map(str, sorted(jobs.jobs)))
            note(f"no start of job {known} was found: waiting for one", "yellow")
