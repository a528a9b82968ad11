"""Publishes encoded messages in order, each with an id for duplicate detection."""

from collections.abc import Sequence

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.outgoing import Outgoing
from ccpipe.bus.nats.permissions import ForbiddenError
from ccpipe.bus.nats.store import NoStreamError, store
from ccpipe.bus.subjects import KEPT, Subjects
from ccpipe.config import Bus
from ccpipe.errors import DeniedError, UnavailableError

FIND_SECONDS = 1.0
"""Time limit for finding out whether a stream exists."""


class Publisher:
    """Publishes messages over a connection opened and closed by the caller.

    With JetStream a call returns when the broker has stored every message; without it, when the
    server has received them.
    """

    def __init__(
        self, bus: Connection, config: Bus, subjects: Subjects, names: Sequence[str] = KEPT
    ) -> None:
        """Publish on `subjects`; for those of these names a stream is created if none exists."""
        self.bus = bus
        self.config = config
        self.subjects = subjects
        self.names = names
        self._stored: set[str] = set()
        self._has_stored = False

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Publish messages; after a failure, the same call again sends only what is missing.

        Raises as ``Sink.write`` does, and ForbiddenError, where permitted messages were published.
        """
        if self.config.jetstream:
            await self._store_all(messages)
        else:
            await self._send_all([each for each in messages if each.id not in self._stored])
        self._stored.clear()

    def unstored(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        return [message for message in messages if message.id not in self._stored]

    def forget(self) -> None:
        self._stored.clear()

    async def _send_all(self, messages: Sequence[Outgoing]) -> None:
        """Publish messages without acknowledgement; the server has then received them."""
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
            await self._find_stream(messages[0].subject)
            # Alone: if its stream must be created first, plain subscribers receive only this twice.
            await self._store_in_stream(messages[:1])
            self._has_stored = True
        await self._store_in_stream(messages)

    async def _find_stream(self, subject: str) -> None:
        """Create the stream if it is visibly missing, so that nothing is published twice."""
        from ccpipe.bus.nats.streams.jetstream import names_of  # only with JetStream: it takes 1 MB

        try:
            async with self.bus.permissions.replying(self._api_of_streams, asks=True):
                is_stored = bool(await names_of(self.bus.jetstream(FIND_SECONDS), subject))
        except (ForbiddenError, UnavailableError, DeniedError):
            return  # a missing stream shows when the first message is not acknowledged
        if not is_stored:
            await self._ensure_stream(NoStreamError(subject, "no stream stores it"))

    async def _store_in_stream(self, messages: Sequence[Outgoing]) -> None:
        try:
            await store(self.bus, messages, self._stored)
        except NoStreamError as missing:
            await self._ensure_stream(missing)
            try:
                await store(self.bus, messages, self._stored)
            except NoStreamError as again:
                reason = f"publishing on {again.subject}: its stream has no leader"
                raise UnavailableError(reason) from None

    async def _ensure_stream(self, missing: NoStreamError) -> None:
        """Create the stream unless there is one, whose servers may be electing a leader."""
        from ccpipe.bus.nats.streams.jetstream import names_of
        from ccpipe.bus.nats.streams.stream import ensure_stream  # only if one is missing

        patterns = [missing.subject, *self.subjects.patterns(self.names)]
        try:
            async with self.bus.permissions.replying(self._api_of_streams):
                jetstream = self.bus.jetstream()
                if not await names_of(jetstream, missing.subject):
                    await ensure_stream(jetstream, self.config, self.subjects, patterns)
        except ForbiddenError:
            reason = f"{missing.reason}, and we may not make one: a bridge does when it starts"
            raise NoStreamError(missing.subject, reason) from None

    @property
    def _api_of_streams(self) -> str:
        return f"{self.bus.api_prefix}.STREAM.>"
