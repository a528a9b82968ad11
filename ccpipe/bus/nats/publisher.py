"""Encoded messages onto the bus, in order, each with the id by which the broker knows it again."""

from collections.abc import Sequence

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.outgoing import Outgoing
from ccpipe.bus.nats.permissions import ForbiddenError
from ccpipe.bus.nats.store import NoStreamError, store
from ccpipe.bus.subjects import KEPT, Subjects
from ccpipe.config import Bus
from ccpipe.errors import DeniedError, UnavailableError

FIND_SECONDS = 1.0
"""How long the broker may take to say whether there is a stream."""


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
            if the server does not permit it; what it permits of them was published.
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
            await self._find_stream(messages[0].subject)
            # Alone: where its stream must be made first, plain subscribers hear only this twice.
            await self._store_in_stream(messages[:1])
            self._has_stored = True
        await self._store_in_stream(messages)

    async def _find_stream(self, subject: str) -> None:
        """Make the stream where we may see that there is none: what is published goes out once."""
        from ccpipe.bus.nats.streams.jetstream import names_of  # not without JetStream: it is 1 MB

        try:
            async with self.bus.permissions.replying(self._api_of_streams, asks=True):
                is_stored = bool(await names_of(self.bus.jetstream(FIND_SECONDS), subject))
        except (ForbiddenError, UnavailableError, DeniedError):
            return  # that there is none shows when nobody acknowledges the first message
        if not is_stored:
            await self._ensure_stream(NoStreamError(subject, "no stream stores it"))

    async def _store_in_stream(self, messages: Sequence[Outgoing]) -> None:
        try:
            await store(self.bus, messages, self._stored)
        except NoStreamError as missing:
            await self._ensure_stream(missing)
            await store(self.bus, messages, self._stored)

    async def _ensure_stream(self, missing: NoStreamError) -> None:
        from ccpipe.bus.nats.streams.stream import ensure_stream  # where one is missing only

        patterns = [missing.subject, *self.subjects.patterns(self.names)]
        try:
            async with self.bus.permissions.replying(self._api_of_streams):
                await ensure_stream(self.bus.jetstream(), self.config, self.subjects, patterns)
        except ForbiddenError:
            reason = f"{missing.reason}, and we may not make one: a bridge does when it starts"
            raise NoStreamError(missing.subject, reason) from None

    @property
    def _api_of_streams(self) -> str:
        return f"{self.bus.api_prefix}.STREAM.>"
