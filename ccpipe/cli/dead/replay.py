"""Publishing dead letters again."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from ccpipe.bus.codecs import Codec, Packing
from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.publisher import HEADER_ROOM, IN_FLIGHT, Outgoing, Publisher, digest
from ccpipe.bus.nats.streams.jetstream import names_of
from ccpipe.bus.subjects import KEPT, Subjects, matches
from ccpipe.cli.dead.dead_letters import DeadLetterStore
from ccpipe.config import Site
from ccpipe.errors import DataError, UnavailableError, UsageError
from ccpipe.formats.dead_letters import StoredDeadLetter
from ccpipe.terminal import Progress, note, plural, printable


class _Received(NamedTuple):
    """A dead letter as the original message."""

    subject: str
    payload: bytes
    arrival: int


class DeadLetterReplay:
    """Publishes dead letters, and removes from their store those that the broker has stored."""

    def __init__(
        self, bus: Connection, site: Site, *, lenient: bool, rate: int, to: str = ""
    ) -> None:
        """Publish at most `rate` dead letters per second; 0 for no limit.

        With `to` all are published on this subject, which a stream must store.
        """
        self.bus = bus
        self.to = to
        self.subjects = Subjects.of(site)
        self.publisher = Publisher(bus, site.bus, self.subjects)
        self.patterns = self.subjects.patterns(KEPT)
        self.lenient = lenient
        self.rate = rate
        self.replayed = self.invalid = 0
        self._progress = Progress()
        if to and (not all(to.split(".")) or re.search(r"[\s*>]", to)):
            raise UsageError(f"--to {to!r}: not a subject")
        if any(matches(pattern, to) for pattern in self.subjects.patterns(["control"], "*")):
            raise UsageError(f"--to {to}: `ccpipe control` sends control requests")

    async def run(self, letters: AsyncIterator[StoredDeadLetter], store: DeadLetterStore) -> None:
        """Replay dead letters; one that is still invalid is reported and kept.

        After an error of the broker or of the record, those replayed until then are removed.
        """
        if self.to and not await names_of(self.bus.jetstream(), self.to):
            raise UnavailableError(f"--to {self.to}: no stream stores this subject")
        window: list[tuple[StoredDeadLetter, list[Outgoing]]] = []
        async for letter in letters:
            try:
                window.append((letter, self.messages(letter)))
            except DataError as error:
                self.invalid += 1
                self._progress.clear()
                note(f"{letter.id}: {printable(str(error))}", "red")
            if len(window) == IN_FLIGHT:
                await self._publish(window, store)
                window = []
        await self._publish(window, store)
        self._progress.clear()

    async def _publish(
        self, window: Sequence[tuple[StoredDeadLetter, list[Outgoing]]], store: DeadLetterStore
    ) -> None:
        if not window:
            return
        await self.publisher.publish([each for _, messages in window for each in messages])
        await store.remove([letter for letter, _ in window])
        self.replayed += len(window)
        self._progress.show(f"{plural(self.replayed, 'dead letter')} replayed")
        if self.rate:
            await asyncio.sleep(len(window) / self.rate)

    def messages(self, letter: StoredDeadLetter) -> list[Outgoing]:
        """Return a dead letter's messages: on its original subject, else on those of its records.

        Both only if they are data subjects of the cluster: anyone may write an origin into a file.

        A line without a timestamp gets the time at which it was stored. The message ids differ
        from those of the original messages, which the broker may still know.
        """
        if letter.cut_from:
            raise DataError(f"only {len(letter.original)} of {letter.cut_from} bytes were kept")
        is_envelope = letter.original.lstrip()[:1] == b"{"
        codec: Codec[Any] = SonarCodec() if is_envelope else LineCodec(lenient=self.lenient)
        received = _Received(letter.origin, letter.original, letter.time)
        found: list[Outgoing] = []
        packing = Packing(500, 64 * 2**10, self.bus.max_payload - HEADER_ROOM)
        for records, _ in codec.decode([received]):
            for bad in records.rejected:
                raise DataError(bad.reason)
            for subject, payload in codec.encode(records, self.subjects, packing):
                to = self.to or (letter.origin if self._is_ours(letter.origin) else subject)
                if not self.to and not self._is_ours(to):
                    raise DataError(
                        f"belongs on {to}, which is not a data subject of {self.subjects.cluster}; "
                        "--to SUBJECT publishes it"
                    )
                message_id = digest("replay", letter.id, str(letter.time), to, payload)
                found.append(Outgoing(to, payload, message_id))
        if not found:
            raise DataError("it contains no records")
        return found

    def _is_ours(self, origin: str) -> bool:
        return any(matches(pattern, origin) for pattern in self.patterns)
