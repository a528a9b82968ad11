"""Records onto the bus, and dead letters beside them."""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, Self

import nats.errors
from nats.js.errors import NoStreamResponseError

from ccpipe.bus.nats.connection import Connection, check
from ccpipe.bus.nats.stream import KEPT, ensure_stream, explain
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site, Size
from ccpipe.errors import EncodeError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Precision, encode_each
from ccpipe.message import Message
from ccpipe.pipeline import DeadLetter, Limits
from ccpipe.telemetry import Telemetry

HEADER_ROOM = 1024
"""Bytes of the server's ``max_payload`` that are left for headers."""
STORE_SECONDS = 5.0
"""How long the broker may take to store a message."""
IN_FLIGHT = 32
"""Messages that wait for their acknowledgement at once."""
MESSAGE_ID = "Nats-Msg-Id"


class NatsSink:
    """Publishes records on the subjects of their kind, each message a few hundred lines.

    With JetStream a write returns when the broker has stored every message. Its id is a hash of
    what it says and where, so that what is published again within the broker's window for
    duplicates is stored once. Without JetStream it returns when the server has seen everything.
    """

    limits: ClassVar[Limits] = Limits(age=0.0)

    def __init__(
        self,
        *,
        site: Site,
        telemetry: Telemetry,
        lines: int = 500,
        bytes: Size = Size(64 * 2**10),  # noqa: A002 - the recipe's word
        precision: Precision | Literal["auto"] = "auto",
    ) -> None:
        """Bound each message by `lines` and `bytes`; `precision` as in ``encode``."""
        self.site = site
        self.telemetry = telemetry
        self.subjects = Subjects.of(site)
        self.lines = lines
        self.bytes = bytes
        self.precision: Precision | Literal["auto"] = precision
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
        """Ask whether the broker lets us in; see ``check``."""
        await check(self.site.bus, self.telemetry)

    async def write(self, records: Any) -> None:
        """Publish records; see ``Sink.write`` for what it raises."""
        self.bus.require_connected()  # credentials that were refused end the pipe here
        messages = list(self.messages(records))
        for start in range(0, len(messages), IN_FLIGHT):
            await self._publish_window(messages[start : start + IN_FLIGHT])
        if not self.site.bus.jetstream:
            await self.bus.flush()
        self._stored.clear()

    async def _publish_window(self, window: list[tuple[str, bytes]]) -> None:
        """Publish messages side by side; the broker still gets them in order."""
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
        """Store what is not stored yet; return what a subject lacks a stream for, if one does."""
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

    def messages(self, records: Any) -> Iterator[tuple[str, bytes]]:
        """Sort records by subject and pack each subject's lines into payloads."""
        by_subject: dict[str, list[Message]] = {}
        for record in records:
            by_subject.setdefault(self.subjects.of_message(record), []).append(record)
        room = min(self.bytes, self.bus.max_payload - HEADER_ROOM)
        for subject, group in by_subject.items():
            encoded = encode_each(group, precision=self.precision)
            for payload in pack(encoded, self.lines, room):
                if len(payload) > self.bus.max_payload - HEADER_ROOM:
                    raise RejectedError(
                        f"a line of {len(payload)} bytes is beyond the server's max_payload"
                    )
                yield subject, payload


class NatsDeadLetterSink:
    """Keeps dead letters on ``<cluster>.dead``: the original bytes, the reason in headers.

    Headers are ``Ccpipe-Reason``, ``Ccpipe-Origin`` and, for a line that could not be read,
    ``Ccpipe-Line`` (from 1) and ``Ccpipe-Offset`` (in its payload, from 0).
    """

    def __init__(self, bus: Connection, site: Site) -> None:
        """Bury through a connection that somebody else opens and closes."""
        self.bus = bus
        self.site = site
        self.subject = Subjects.of(site).dead()

    async def write(self, letters: Sequence[DeadLetter]) -> None:
        """Publish the letters; see ``DeadLetterSink.write``."""
        for letter in letters:
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


class NoStreamError(UnavailableError):
    """No stream seems to keep a subject; making one may help."""

    def __init__(self, subject: str, reason: str) -> None:
        """Name the subject and what the broker said."""
        super().__init__(f"publishing on {subject}: {reason}")
        self.subject = subject


async def store(bus: Connection, subject: str, payload: bytes, headers: dict[str, str]) -> None:
    """Publish a message and wait until a stream has it.

    Raises
    ------
    NoStreamError
        where nobody says that a stream has it.
    UnavailableError, RejectedError, EncodeError
        as ``Sink.write`` does.

    """
    try:
        await bus.jetstream(STORE_SECONDS).publish(subject, payload, headers=headers)
    except NoStreamResponseError:
        raise NoStreamError(subject, "no stream keeps it") from None
    except (nats.errors.TimeoutError, TimeoutError):
        # So it is too where no stream keeps a subject to which somebody listens.
        raise NoStreamError(subject, "the server did not answer in time") from None
    except nats.errors.MaxPayloadError as error:
        raise RejectedError(str(error)) from None
    except (nats.errors.BadSubjectError, ValueError) as error:
        raise EncodeError(f"subject {subject!r}: {error}") from None
    except (nats.errors.Error, OSError) as error:
        raise explain(error, f"publishing on {subject}") from None


def pack(encoded: Iterable[bytes], lines: int, size: int) -> Iterator[bytes]:
    """Join encoded lines into payloads of at most `lines` lines and `size` bytes.

    A line that is longer than `size` alone makes a payload of its own.
    """
    held: list[bytes] = []
    held_size = 0
    for line in encoded:
        if held and (len(held) >= lines or held_size + len(line) > size):
            yield b"".join(held)
            held, held_size = [], 0
        held.append(line)
        held_size += len(line)
    if held:
        yield b"".join(held)


def digest(*parts: str | bytes) -> str:
    """Return a message id that the same content always gets."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(part.encode() if isinstance(part, str) else part)
        state.update(b"\0")
    return state.hexdigest()


def _header(text: str) -> str:
    """Make text safe in a header: one line of printable ASCII, bounded."""
    one_line = " ".join(text.split())[:400]
    return one_line.encode("ascii", "backslashreplace").decode()
