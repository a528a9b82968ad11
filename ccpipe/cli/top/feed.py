"""Feeds messages from the broker into the model."""

import asyncio
import contextlib
import functools
from collections.abc import Sequence

from ccpipe.bus.nats.connection import Connection, Delivery
from ccpipe.bus.nats.streams.stored import read_stored
from ccpipe.bus.subjects import Subjects, matches
from ccpipe.cli.top.model import Model
from ccpipe.config import Site
from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.formats.lineprotocol import decode
from ccpipe.telemetry import Telemetry

KINDS = ("metrics", "events", "log", "dead")
"""The subscribed subjects."""

REPLAY_SECONDS = 10.0
"""Time limit for reading stored starts of jobs at startup."""


class ModelFeed:
    """Keeps a model up to date while it is open."""

    def __init__(self, site: Site, model: Model) -> None:
        """Prepare to connect."""
        self.bus = Connection(site.bus, name="top", telemetry=Telemetry())
        self.model = model
        self.patterns = Subjects.of(site).patterns(KINDS, "*")
        self._events = Subjects.of(site).patterns(["events"], "*")
        self._dead = Subjects.of(site).patterns(["dead"], "*")

    async def run(self) -> None:
        """Receive until cancelled; raises DeniedError if the server refuses us."""
        async with self.bus:
            await self._replay_jobs()
            for place, pattern in enumerate(self.patterns):
                receive = functools.partial(self._receive, self.patterns[:place])
                await self.bus.subscribe(pattern, receive)
            await asyncio.Event().wait()

    async def _replay_jobs(self) -> None:
        """Load running jobs; without JetStream only new ones are known."""
        receive = functools.partial(self._receive, ())
        with contextlib.suppress(UnavailableError, DeniedError, TimeoutError):
            async with asyncio.timeout(REPLAY_SECONDS):
                await read_stored(self.bus, self._events, receive)

    def _receive(self, earlier: Sequence[str], delivery: Delivery) -> None:
        if any(matches(pattern, delivery.subject) for pattern in earlier):
            return
        if any(matches(pattern, delivery.subject) for pattern in self._dead):
            cluster = delivery.subject.partition(".")[0]
            reason = delivery.headers.get("Ccpipe-Reason", "no reason given")
            origin = delivery.headers.get("Ccpipe-Origin", "?")
            self.model.add_dead_letter(cluster, reason, origin)
        else:
            self.model.add_lines(decode(delivery.payload, lenient=True), len(delivery.payload))
