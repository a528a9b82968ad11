"""Dead letters on the bus."""

import asyncio
from collections.abc import Sequence

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.publisher import IN_FLIGHT
from ccpipe.bus.nats.store import HEADER_ROOM, MESSAGE_ID, NoStreamError, digest, store
from ccpipe.bus.nats.stream import ensure_stream
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.pipeline import DeadLetter, DeadLetterSink


class NatsDeadLetterSink(DeadLetterSink):
    """Keeps dead letters on ``<cluster>.dead``: the original bytes, the reason in headers.

    Headers are ``Ccpipe-Reason``, ``Ccpipe-Origin`` and, for a line that could not be read,
    ``Ccpipe-Line`` (from 1) and ``Ccpipe-Offset`` (in its payload, from 0).
    """

    def __init__(self, bus: Connection, site: Site) -> None:
        """Publish over a connection that somebody else opens and closes."""
        self.bus = bus
        self.site = site
        self.subject = Subjects.of(site).dead()

    async def write(self, letters: Sequence[DeadLetter]) -> None:
        """Publish the letters, some at a time; see ``DeadLetterSink.write``."""
        for start in range(0, len(letters), IN_FLIGHT):
            await asyncio.gather(*map(self._write_one, letters[start : start + IN_FLIGHT]))

    async def _write_one(self, letter: DeadLetter) -> None:
        headers = {"Ccpipe-Reason": _header(letter.reason)}
        if letter.origin:
            headers["Ccpipe-Origin"] = _header(letter.origin)
        if letter.line:
            headers |= {"Ccpipe-Line": f"{letter.line}", "Ccpipe-Offset": f"{letter.offset}"}
        room = self.bus.max_payload - HEADER_ROOM
        if len(letter.original) > room:
            headers["Ccpipe-Cut-From"] = f"{len(letter.original)}"
        original = letter.original[:room]
        if self.site.bus.jetstream:
            headers[MESSAGE_ID] = digest(self.subject, original, repr(headers).encode())
            await self._store(original, headers)
        else:
            await self.bus.publish(self.subject, original, headers=headers)

    async def _store(self, original: bytes, headers: dict[str, str]) -> None:
        try:
            await store(self.bus, self.subject, original, headers)
        except NoStreamError:
            subjects = Subjects.of(self.site)
            await ensure_stream(self.bus.jetstream(), self.site.bus, subjects, [self.subject])
            await store(self.bus, self.subject, original, headers)


def _header(text: str) -> str:
    """Make text safe in a header: one line of printable ASCII, bounded."""
    one_line = " ".join(text.split())[:400]
    return one_line.encode("ascii", "backslashreplace").decode()
