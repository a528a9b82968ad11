"""Splits a NATS server's byte stream into frames: the pure Python fallback of ``_frames.pyx``.

Publishers choose the bytes of subjects, reply subjects and headers, and the server checks few of
them. So nothing in a message raises here: one that violates the protocol is delivered with its
`flaw`. Only bytes that no server sends raise, because the start of the next frame is then unknown.
JetStream's metadata of a message, such as redelivery, is in its reply subject.

Source: NATS documentation, *Client Protocol*; ADR-4, *NATS Message Headers*.
"""

import re
import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import NamedTuple, TypeAlias

from ccpipe.bus.codecs.received import ReceivedColumns
from ccpipe.errors import DataError

MAX_LINE = 2**20
"""Maximum length of a control line: INFO names all servers of a cluster, others are far shorter."""
MAX_MESSAGE = 2**27
"""Maximum size of a message with headers; the server's own limit is half of it."""

BAD_SUBJECT = "the subject is not valid UTF-8"
BAD_REPLY = "the reply subject is not valid UTF-8"
BAD_HEADER = "the header is not a NATS header"


class Delivery(NamedTuple):
    """One message received from the broker."""

    subject: str
    """Bytes that are not UTF-8 are written ``\xff``."""
    payload: bytes
    header: bytes = b""
    """The raw header, with its first line; empty if missing."""
    reply: str = ""
    flaw: str = ""
    """The protocol rule that the message violates; normally empty."""

    @property
    def headers(self) -> dict[str, str]:
        """The header's lines by name; malformed lines are left out."""
        found: dict[str, str] = {}
        for line in self.header.split(b"\r\n")[1:]:
            name, colon, value = line.partition(b":")
            if colon and name.isascii() and not _SPACE.search(name):
                found[name.decode()] = value.strip().decode(errors="replace")
        return found

    @property
    def status(self) -> tuple[str, str]:
        """The server's status code and text, such as 404 and No Messages; both empty for a message.

        Only status messages of the server have neither a reply subject nor a payload. A publisher
        may send a header ``Status``, or a status line like the server's.
        """
        line = self.header.partition(b"\r\n")[0].decode(errors="replace")
        if self.reply or self.payload or self.flaw or not line.startswith("NATS/1.0 "):
            return "", ""
        code, _, words = line.removeprefix("NATS/1.0 ").strip().partition(" ")
        return code, words

    @property
    def arrival(self) -> int:
        """When the stream stored it, in nanoseconds since the epoch; now if none did.

        As it is parsed from the reply subject, a line without a timestamp keeps its time when it
        is redelivered.
        """
        stored = stored_as(self.reply)
        return time.time_ns() if stored is None else stored[1]


def ack_tokens(reply: str) -> list[str]:
    """Return the seven tokens of a reply subject for an acknowledgement; none of any other.

    They are stream, consumer, deliveries (of this message, from 1), sequence, place, time (when it
    was stored, in nanoseconds) and pending (messages after it).
    Source: ADR-15, *JetStream Subject Mapping*.
    """
    tokens = reply.split(".")
    # $JS.ACK[.domain.account].stream.consumer.deliveries.sequence.place.time.pending[.token]
    if tokens[:2] != ["$JS", "ACK"] or len(tokens) not in _ACK_TOKENS:
        return []
    return tokens[2:] if len(tokens) == _ACK_TOKENS[0] else tokens[4:11]


def stored_as(reply: str) -> tuple[int, int] | None:
    """Return a message's stream sequence and when it was stored, in nanoseconds.

    Both are in the reply subject for its acknowledgement; None for any other.
    """
    tokens = ack_tokens(reply)
    if not tokens:
        return None
    _, _, _, number, _, stamp, _ = tokens
    for text in (number, stamp):
        if not (text.isascii() and text.isdigit() and len(text) <= _INT64_DIGITS):
            return None
    stored = int(number), int(stamp)
    return stored if max(stored) <= _INT64_MAX else None


def is_redelivered(reply: str) -> bool:
    tokens = ack_tokens(reply)
    return bool(tokens) and tokens[2] != "1"


def first_delivery(reply: str) -> str:
    """Return how reply subjects begin of what the same consumer delivers for the first time.

    Empty if `reply` is not a subject for an acknowledgement.
    """
    tokens = ack_tokens(reply)
    consumer = f".{tokens[0]}.{tokens[1]}." if tokens else ""
    return reply.partition(consumer)[0] + consumer + "1." if tokens else ""


class Deliveries(ReceivedColumns[Delivery]):
    """Messages received together: the pure Python fallback of the class in ``_frames.pyx``."""

    @property
    def flawed(self) -> list[int]:
        """The places of messages that violate the protocol."""
        return [place for place, delivery in enumerate(self) if delivery.flaw]

    @property
    def replies(self) -> bytes:
        """The reply subjects, with a space between two."""
        return b" ".join(delivery.reply.encode() for delivery in self)

    @property
    def are_first(self) -> bool:
        """Whether a consumer of a stream delivers all of these for the first time.

        As a rule it does: so that is found out without taking each reply subject apart. False may
        also mean that not all are messages of one consumer, or that one has a flaw.
        """
        begin = first_delivery(self[0].reply) if self else ""
        return bool(begin) and not any(
            each.flaw or not each.reply.startswith(begin) for each in self
        )

    def by_reply(self) -> "tuple[Deliveries, list[Delivery]]":
        """Return the messages with a reply subject, and those without: the server's status."""
        replied = Deliveries([each for each in self if each.reply])
        return replied, [each for each in self if not each.reply]

    def without_prefix(self, prefix: str) -> "Deliveries":
        """Return the messages with subjects that lack a prefix."""
        return Deliveries(
            [each._replace(subject=each.subject.removeprefix(prefix)) for each in self]
        )


def concatenated_in_python(parts: Iterable[Deliveries]) -> Deliveries:
    """Return the messages of all parts."""
    return Deliveries(list(chain.from_iterable(parts)))


def stored_in_python(replies: bytes) -> "tuple[array[int], array[int]] | None":
    """Return each message's stream sequence and time of storage; see ``stored_as``.

    None if one of the subjects was chosen by a publisher. They have a space between two.
    """
    numbers, times = array("q"), array("q")
    for reply in replies.split(b" "):
        found = stored_as(reply.decode(errors="replace"))
        if found is None:
            return None
        numbers.append(found[0])
        times.append(found[1])
    return numbers, times


Stored = tuple[int, int]
"""The number of a message in its stream, and when it was stored, in nanoseconds."""


def all_stored(replies: Iterable[bytes]) -> set[Stored]:
    """Return what ``stored_as`` returns for each; several may be one text."""
    each = b" ".join(replies).decode(errors="replace").split(" ")
    return {stored for reply in each if (stored := stored_as(reply))}


class Redelivery:
    """Recognizes messages that were received before, also on an earlier connection.

    A killed nats-server starts again from the consumer's position on its disk, which it writes at
    most ten times a second. It delivers what follows once more, and ignores acknowledgements of
    messages that it has not yet delivered again (``ackMsg`` in nats-server's ``consumer.go``). It
    also does so when a process that was suspended, or too busy, has not extended ``ack_wait``.
    """

    def __init__(self, known: Callable[[], Iterable[bytes]]) -> None:
        """Start without any; `known` returns the reply subjects of those that it looks for.

        Here and in ``expect`` several reply subjects may be one text, with a space between two.
        """
        self._known = known
        self._received: set[Stored] = set()
        self._last = 0

    def expect(self, replies: Iterable[bytes]) -> None:
        """Recognize the messages with these reply subjects from now on."""
        self._received |= all_stored(replies)
        self._last = max((number for number, _ in self._received), default=0)

    @property
    def is_expecting(self) -> bool:
        """Whether it looks for messages that ``expect`` named."""
        return bool(self._received)

    def clear(self) -> None:
        """Recognize none: the consumer is another one, which has other messages."""
        self._received.clear()

    def split(self, deliveries: Iterable[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """Return the messages that are new, and those that were received before.

        The first message behind all expected ones ends the expectation: the broker delivers in the
        order of the stream.
        """
        deliveries = list(deliveries)
        again = any(is_redelivered(delivery.reply) for delivery in deliveries)
        if not (self.is_expecting or again):
            return deliveries, []
        known = all_stored(self._known()) if again else set()
        new: list[Delivery] = []
        repeated: list[Delivery] = []
        for delivery in deliveries:
            stored = stored_as(delivery.reply)
            (repeated if stored in self._received or stored in known else new).append(delivery)
            if stored and stored[0] > self._last:
                self._received.clear()
        return new, repeated


_ACK_TOKENS = (9, 11, 12)
"""Number of tokens of such a subject: old servers, newer ones, and with a trailing token."""
_INT64_MAX = 2**63 - 1
_INT64_DIGITS = 19


def write_header(headers: Mapping[str, str]) -> bytes:
    """Return a header as the server sends it; empty without fields."""
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    return "".join(["NATS/1.0\r\n", *lines, "\r\n"]).encode() if lines else b""


_SPACE = re.compile(rb"\s")

Receive = Callable[[Deliveries], None]
"""Called with messages in the order in which they arrived."""

Frame: TypeAlias = tuple[int, "Deliveries | bytes"]
"""Subscription id and its messages; or 0 and a control line without its line end."""


class BrokenFrame(DataError):  # noqa: N818 - named for what happened
    """The server sent bytes that violate the protocol."""


class MalformedMessageError(DataError):
    """A message was dropped because it violates the protocol."""

    def __init__(self, message: Delivery) -> None:
        super().__init__(f"a message on {ascii(message.subject)[:200]} was dropped: {message.flaw}")


def deliver(subject: bytes, payload: bytes, header: bytes, reply: bytes) -> Delivery:
    """Build a delivery from the parts of a frame; no bytes raise."""
    flaw = ""
    texts = []
    for raw, problem in ((reply, BAD_REPLY), (subject, BAD_SUBJECT)):
        try:
            texts.append(raw.decode())
        except UnicodeDecodeError:
            texts.append(raw.decode(errors="backslashreplace"))
            flaw = problem
    if header and not (
        header.startswith((b"NATS/1.0\r\n", b"NATS/1.0 ")) and header.endswith(b"\r\n\r\n")
    ):
        flaw = flaw or BAD_HEADER
    return Delivery(texts[1], payload, header, texts[0], flaw)


def split_in_python(store: bytearray, start: int, end: int) -> tuple[list[Frame], int, int]:
    """Split ``store[start:end]``; raises BrokenFrame.

    Returns the frames, where the first unfinished one begins, and how many bytes it has at least.
    """
    data = bytes(memoryview(store)[start:end])
    frames: list[Frame] = []
    run: list[Delivery] = []
    of, at = 0, 0
    while True:
        stop = data.find(b"\r\n", at)
        if stop < 0:
            if len(data) - at > MAX_LINE:
                raise BrokenFrame(f"a control line of more than {MAX_LINE} bytes")
            return frames, start + at, 1
        line = data[at:stop]
        if not line.startswith((b"MSG ", b"HMSG ")):
            frames.append((0, line))
            of, at = 0, stop + 2
            continue
        subject, sid, reply, header_size, size = message_line(line)
        body = stop + 2
        last = body + size
        if last + 2 > len(data):
            return frames, start + at, last + 2 - at
        if data[last : last + 2] != b"\r\n":
            raise BrokenFrame("a message does not end where its length says")
        delivery = deliver(
            subject, data[body + header_size : last], data[body : body + header_size], reply
        )
        if sid != of:
            of, run = sid, []
            frames.append((sid, Deliveries(run)))
        run.append(delivery)
        at = last + 2


def message_line(line: bytes) -> tuple[bytes, int, bytes, int, int]:
    """Return subject, subscription id, reply subject, header size and total size."""
    kind, *words = line.split(b" ")  # only there: a subject may contain any other byte
    numbers = 2 if kind == b"HMSG" else 1
    fewest = 2 + numbers
    if len(words) in (fewest, fewest + 1) and words[0]:
        counts = [words[1], *words[-numbers:]]
        if all(count.isdigit() and len(count) <= _DIGITS for count in counts):
            sid, *sizes = map(int, counts)
            header_size, size = sizes if kind == b"HMSG" else (0, *sizes)
            if sid and header_size <= size <= MAX_MESSAGE:
                return words[0], sid, words[2] if len(words) > fewest else b"", header_size, size
    raise BrokenFrame(f"not the line of a message: {line!r:.120}")


_DIGITS = 18
