"""Dead letters on the bus."""

from collections.abc import Sequence

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.outgoing import HEADER_ROOM, Outgoing, digest
from ccpipe.bus.nats.publisher import Publisher
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.pipeline import DeadLetter, DeadLetterSink


class NatsDeadLetterSink(DeadLetterSink):
    """Publishes dead letters on ``<cluster>.dead``: the original bytes, the reason in headers.

    Headers are ``Ccpipe-Reason``, ``Ccpipe-Origin`` and, for a line that could not be read,
    ``Ccpipe-Line`` (from 1) and ``Ccpipe-Offset`` (in its payload, from 0).
    """

    def __init__(self, bus: Connection, site: Site) -> None:
        self.bus = bus
        subjects = Subjects.of(site)
        self.subject = subjects.dead()
        self._publisher = Publisher(bus, site.bus, subjects, names=())

    async def write(self, letters: Sequence[DeadLetter]) -> None:
        await self._publisher.publish([self._encode(letter) for letter in letters])

    def _encode(self, letter: DeadLetter) -> Outgoing:
        headers = {"Ccpipe-Reason": _header(letter.reason)}
        if letter.origin:
            headers["Ccpipe-Origin"] = _header(letter.origin)
        if letter.line:
            headers |= {"Ccpipe-Line": f"{letter.line}", "Ccpipe-Offset": f"{letter.offset}"}
        room = self.bus.max_payload - HEADER_ROOM
        if len(letter.original) > room:
            headers["Ccpipe-Cut-From"] = f"{len(letter.original)}"
        original = letter.original[:room]
        message_id = digest(self.subject, original, repr(headers).encode())
        return Outgoing(self.subject, original, message_id, headers)


def _header(text: str) -> str:
    """Make text safe for a header: one line of printable ASCII, bounded."""
    one_line = " ".join(text.split())[:400]
    return one_line.encode("ascii", "backslashreplace").decode()
