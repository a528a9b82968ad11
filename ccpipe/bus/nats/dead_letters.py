"""Dead letters on the bus, and those that a stream stores of them."""

from collections.abc import AsyncIterator, Sequence

import nats.errors
import nats.js.errors
from nats.js import api

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.errors import explain
from ccpipe.bus.nats.publisher import HEADER_ROOM, Outgoing, Publisher, digest
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.formats.dead_letters import StoredDeadLetter
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


NO_MESSAGE = 10057
"""JetStream's error code for a message that does not exist."""


class DeadLetterStream:
    """The dead letters of a cluster, over a connection opened and closed by the caller."""

    def __init__(self, bus: Connection, subjects: Subjects) -> None:
        self.jetstream = bus.jetstream()
        self.subject = subjects.dead()
        self._stream = ""

    async def read(self) -> AsyncIterator[StoredDeadLetter]:
        """Yield the oldest first, also those that arrive meanwhile.

        Raises UnavailableError or DeniedError.
        """
        sequence = 1
        try:
            self._stream = await self.jetstream.find_stream_name_by_subject(self.subject)
            while True:
                message = await self.jetstream.get_msg(
                    self._stream, seq=sequence, subject=self.subject, next=True
                )
                sequence = (message.seq or sequence) + 1
                yield _dead_letter(message)
        except nats.js.errors.NotFoundError:
            return  # no stream, or no further dead letter
        except (nats.errors.Error, TimeoutError) as error:
            raise explain(error, "reading dead letters") from None

    async def remove(self, letters: Sequence[StoredDeadLetter]) -> None:
        for letter in letters:
            try:
                await self.jetstream.delete_msg(self._stream, int(letter.id))
            except (nats.errors.Error, TimeoutError) as error:
                if getattr(error, "err_code", None) != NO_MESSAGE:  # already removed
                    raise explain(error, "removing dead letters") from None


def _dead_letter(message: api.RawStreamMsg) -> StoredDeadLetter:
    headers = message.headers or {}
    return StoredDeadLetter(
        id=str(message.seq),
        time=int(message.time.timestamp() * 1e6) * 1000 if message.time else 0,
        reason=headers.get("Ccpipe-Reason", ""),
        original=message.data or b"",
        origin=headers.get("Ccpipe-Origin", ""),
        line=_number(headers.get("Ccpipe-Line")),
        offset=_number(headers.get("Ccpipe-Offset")),
        cut_from=_number(headers.get("Ccpipe-Cut-From")),
    )


def _number(text: str | None) -> int:
    """Parse a header written by our own sink; anyone may publish on the subject."""
    return int(text) if text and text.isdecimal() and len(text) <= _DIGITS else 0


_DIGITS = 18
