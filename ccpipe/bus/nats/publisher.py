"""Encoded messages onto the bus, in order, each with the id by which the broker knows it again."""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.permissions import ForbiddenError
from ccpipe.bus.nats.store import MESSAGE_ID, NoStreamError, digest, store
from ccpipe.bus.subjects import KEPT, Subjects
from ccpipe.config import Bus

IN_FLIGHT = 32
"""Messages that wait for their acknowledgement at once, each on a subject of its own."""


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
        self._has_stored = False

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Publish messages; where it fails, the same call again sends only what is missing.

        Raises
        ------
        ForbiddenError
            where the server does not permit it; what it permits of them was published.
        UnavailableError, RejectedError, EncodeError, DeniedError
            as ``Sink.write`` does.

        """
        if self.config.jetstream:
            await self._store_all(messages)
        else:
            await self._send_all([each for each in messages if each.id not in self._stored])
        self._stored.clear()

    def take_unstored(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        """Return what a call that failed did not store, and forget the rest."""
        unstored = [message for message in messages if message.id not in self._stored]
        self._stored.clear()
        return unstored

    async def _send_all(self, messages: Sequence[Outgoing]) -> None:
        """Send messages that nobody acknowledges; the server has then seen them."""
        try:
            with self.bus.permissions.publishing({message.subject for message in messages}):
                for message in messages:
                    headers = dict(message.headers) or None
                    await self.bus.publish(message.subject, message.payload, headers=headers)
                await self.bus.flush()
        except ForbiddenError as error:
            self._stored.update(each.id for each in messages if each.subject not in error.subjects)
            raise

    async def _store_all(self, messages: Sequence[Outgoing]) -> None:
        if messages and not self._has_stored:
            # Alone: where its stream must be made first, plain subscribers hear only this twice.
            await self._store_in_stream(messages[:1])
            self._has_stored = True
        await self._store_in_stream(messages)

    async def _store_in_stream(self, messages: Sequence[Outgoing]) -> None:
        missing = await self._store_lanes(messages)
        if missing is not None:
            await self._ensure_stream(missing)
            if missing := await self._store_lanes(messages):
                raise missing

    async def _ensure_stream(self, missing: NoStreamError) -> None:
        from ccpipe.bus.nats.streams.stream import ensure_stream  # where one is missing only

        patterns = [missing.subject, *self.subjects.patterns(self.names)]
        try:
            async with self.bus.permissions.replying(f"{self.bus.api_prefix}.STREAM.NAMES"):
                await ensure_stream(self.bus.jetstream(), self.config, self.subjects, patterns)
        except ForbiddenError:
            reason = f"{missing.reason}, and we may not make one: a bridge does when it starts"
            raise NoStreamError(missing.subject, reason) from None

    async def _store_lanes(self, messages: Sequence[Outgoing]) -> NoStreamError | None:
        """Store what is not stored yet; return the error where a subject has no stream.

        A message waits until the one before it on its subject is stored: were several in flight
        and one failed, its retry would come behind those that were sent after it.
        """
        lanes: dict[str, list[Outgoing]] = {}
        for message in messages:
            lanes.setdefault(message.subject, []).append(message)
        in_flight = asyncio.Semaphore(IN_FLIGHT)
        has_failed = False

        async def store_lane(lane: Sequence[Outgoing]) -> None:
            nonlocal has_failed
            for message in lane:
                async with in_flight:
                    if has_failed:
                        return
                    try:
                        await self._store(message)
                    except ForbiddenError:
                        raise  # which is no reason to hold back other subjects
                    except BaseException:
                        has_failed = True
                        raise

        outcomes = await asyncio.gather(*map(store_lane, lanes.values()), return_exceptions=True)
        return _missing_stream(outcomes)

    async def _store(self, message: Outgoing) -> None:
        if message.id not in self._stored:
            headers = {**message.headers, MESSAGE_ID: message.id}
            await store(self.bus, message.subject, message.payload, headers)
            self._stored.add(message.id)


def _missing_stream(outcomes: Sequence[BaseException | None]) -> NoStreamError | None:
    """Return the error where a subject has no stream; raise what else went wrong."""
    missing = None
    forbidden: set[str] = set()
    for outcome in outcomes:
        if isinstance(outcome, NoStreamError):
            missing = outcome
        elif isinstance(outcome, ForbiddenError):
            forbidden |= outcome.subjects
        elif outcome is not None:
            raise outcome
    if forbidden:
        raise ForbiddenError(forbidden)
    return missing
