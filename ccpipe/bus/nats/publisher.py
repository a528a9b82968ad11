"""Encoded messages onto the bus, in order, each with the id by which the broker knows it again."""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.store import MESSAGE_ID, NoStreamError, digest, store
from ccpipe.bus.nats.streams.stream import KEPT, ensure_stream
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Bus

IN_FLIGHT = 32
"""Messages that wait for their acknowledgement at once."""


class Outgoing(NamedTuple):
    """A message that is to be published."""

    subject: str
    payload: bytes
    id: str
    """The same id within the broker's window for duplicates is stored once."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Besides the id."""

    @classmethod
    def of(cls, subject: str, payload: bytes) -> "Outgoing":
        """Return a message whose id is a hash of what it says and where."""
        return cls(subject, payload, digest(subject, payload))


class Publisher:
    """Publishes messages over a connection that somebody else opens and closes.

    With JetStream a call returns when the broker has stored every message; without it, when the
    server has seen them.
    """

    def __init__(
        self, bus: Connection, config: Bus, subjects: Subjects, names: Sequence[str] = KEPT
    ) -> None:
        """Publish on `subjects`; a stream for those of these names is made where there is none."""
        self.bus = bus
        self.config = config
        self.subjects = subjects
        self.names = names
        self._stored: set[str] = set()

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Publish messages; where it fails, the same call again sends only what is missing.

        Raises
        ------
        UnavailableError, RejectedError, EncodeError, DeniedError
            as ``Sink.write`` does.

        """
        for start in range(0, len(messages), IN_FLIGHT):
            await self._publish_window(messages[start : start + IN_FLIGHT])
        if not self.config.jetstream:
            await self.bus.flush()
        self._stored.clear()

    def take_unstored(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        """Return what a call that failed did not store, and forget the rest."""
        unstored = [message for message in messages if message.id not in self._stored]
        self._stored.clear()
        return unstored

    async def _publish_window(self, window: Sequence[Outgoing]) -> None:
        """Publish messages concurrently; the broker still receives them in order."""
        if not self.config.jetstream:
            for message in window:
                await self.bus.publish(
                    message.subject, message.payload, headers=dict(message.headers) or None
                )
            return
        missing = await self._store_window(window)
        if missing is not None:
            patterns = [missing.subject, *self.subjects.patterns(self.names)]
            await ensure_stream(self.bus.jetstream(), self.config, self.subjects, patterns)
            if missing := await self._store_window(window):
                raise missing

    async def _store_window(self, window: Sequence[Outgoing]) -> NoStreamError | None:
        """Store what is not stored yet; return the error where a subject has no stream."""
        outcomes = await asyncio.gather(*map(self._store, window), return_exceptions=True)
        missing = None
        for outcome in outcomes:
            if isinstance(outcome, NoStreamError):
                missing = outcome
            elif outcome is not None:
                raise outcome
        return missing

    async def _store(self, message: Outgoing) -> None:
        if message.id not in self._stored:
            headers = {**message.headers, MESSAGE_ID: message.id}
            await store(self.bus, message.subject, message.payload, headers)
            self._stored.add(message.id)
