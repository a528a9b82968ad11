"""Records onto the bus."""

import asyncio
from typing import Any, Self

from ccpipe.bus.codecs import Codec, Packing
from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.nats.connection import Connection, check
from ccpipe.bus.nats.store import HEADER_ROOM, MESSAGE_ID, NoStreamError, digest, store
from ccpipe.bus.nats.stream import KEPT, ensure_stream
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site, Size
from ccpipe.pipeline import Limits, Sink
from ccpipe.telemetry import Telemetry

IN_FLIGHT = 32
"""Messages that wait for their acknowledgement at once."""


class NatsSink(Sink):
    """Publishes records on the subjects of their kind, in messages of a few hundred lines.

    With JetStream a write returns when the broker has stored every message. Its id is a hash of
    what it says and where, so that what is published again within the broker's window for
    duplicates is stored once. Without JetStream it returns when the server has seen everything.
    """

    limits = Limits(age=0.0)

    def __init__(
        self,
        *,
        site: Site,
        telemetry: Telemetry,
        codec: Codec | None = None,
        lines: int = 500,
        bytes: Size = Size(64 * 2**10),  # noqa: A002 - the recipe's word
        subjects: dict[str, str | dict[str, str]] | None = None,
    ) -> None:
        """Bound each message by `lines` and `bytes`; line protocol where no codec is given.

        `subjects` are those of ``[bus.subjects]`` that differ for what this sink publishes.
        """
        self.site = site
        self.telemetry = telemetry
        self.subjects = Subjects.of(site, subjects)
        self.lines = lines
        self.bytes = bytes
        self.codec = codec or LineCodec()
        self.takes = self.codec.records
        self.bus = Connection(site.bus, name="publisher", telemetry=telemetry)
        self._is_ours = True
        self._stored: set[str] = set()

    def using(self, bus: Connection) -> Self:
        """Publish over a connection that somebody else opens and closes."""
        self.bus, self._is_ours = bus, False
        return self

    async def __aenter__(self) -> Self:
        """Connect; where no server is there yet that goes on in the background."""
        if self._is_ours:
            await self.bus.connect_in_background()
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Close the connection."""
        if self._is_ours:
            await self.bus.__aexit__(None, None, None)

    async def check(self) -> None:
        """Check that the broker accepts our credentials."""
        await check(self.site.bus, self.telemetry)

    async def write(self, records: Any) -> None:
        """Publish records; see ``Sink.write`` for what it raises."""
        self.bus.require_connected()  # credentials that were refused end the pipe here
        packing = Packing(self.lines, self.bytes, self.bus.max_payload - HEADER_ROOM)
        messages = list(self.codec.encode(records, self.subjects, packing))
        for start in range(0, len(messages), IN_FLIGHT):
            await self._publish_window(messages[start : start + IN_FLIGHT])
        if not self.site.bus.jetstream:
            await self.bus.flush()
        self._stored.clear()

    async def _publish_window(self, window: list[tuple[str, bytes]]) -> None:
        """Publish messages concurrently; the broker still receives them in order."""
        if not self.site.bus.jetstream:
            for subject, payload in window:
                await self.bus.publish(subject, payload)
            return
        missing = await self._store_window(window)
        if missing is not None:
            patterns = [missing.subject, *self.subjects.patterns(KEPT)]
            await ensure_stream(self.bus.jetstream(), self.site.bus, self.subjects, patterns)
            if missing := await self._store_window(window):
                raise missing

    async def _store_window(self, window: list[tuple[str, bytes]]) -> "NoStreamError | None":
        """Store what is not stored yet; return the error where a subject has no stream."""
        outcomes = await asyncio.gather(
            *(self._store(*message) for message in window), return_exceptions=True
        )
        missing = None
        for outcome in outcomes:
            if isinstance(outcome, NoStreamError):
                missing = outcome
            elif outcome is not None:
                raise outcome
        return missing

    async def _store(self, subject: str, payload: bytes) -> None:
        message_id = digest(subject, payload)
        if message_id not in self._stored:
            await store(self.bus, subject, payload, {MESSAGE_ID: message_id})
            self._stored.add(message_id)
