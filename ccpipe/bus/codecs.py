"""Codecs: what the payload of a broker's message is, whatever the broker.

A source or a sink of a broker has its codec as an option: ``codec = "sonar"``, or a table where the
codec has options. Third parties add theirs by the entry point ``ccpipe.codecs``.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Literal, NamedTuple, Protocol, cast, get_args

from ccpipe.bus.subjects import Subjects, escape
from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import Lines, Precision, decode, encode_each
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.formats.sonar import Dialect, Envelope, Profile
from ccpipe.formats.sonar import decode as decode_envelopes
from ccpipe.formats.sonar import encode as encode_envelope
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.message import Message
from ccpipe.pipeline import Batch, RecordType

JOINED_BYTES = 2**20
"""Payloads are joined up to about this size before they are decoded."""


class Received(Protocol):
    """A message that came from a broker."""

    @property
    def subject(self) -> str:
        """Where it was published."""

    @property
    def payload(self) -> bytes:
        """Its bytes."""

    @property
    def arrival(self) -> int:
        """When the broker took it, in nanoseconds since the epoch."""


class Packing(NamedTuple):
    """How large the messages are that a sink publishes."""

    lines: int
    """Lines in a message at most."""
    size: int
    """Bytes in a message at most, but for a single line that is longer."""
    limit: int
    """Bytes that the broker takes at most."""


class Codec(Protocol):
    """Payloads to records and back."""

    records: RecordType

    def decode(self, messages: Sequence[Any]) -> Iterator[tuple[Batch, int]]:
        """Decode messages, which meet ``Received``.

        Yields batches without ``ack``, each with the number of messages that it came from: those
        after the ones of the batch before.
        """
        ...

    def encode(
        self, records: Any, subjects: Subjects, packing: Packing
    ) -> Iterator[tuple[str, bytes]]:
        """Yield subjects and payloads, in the order of the records of each subject.

        Raises
        ------
        EncodeError, RejectedError
            where a record cannot be written or is beyond the broker's limit.

        """
        ...


class LineCodec(Codec):
    """Line protocol: any number of lines in a message."""

    records = Messages

    def __init__(
        self, *, precision: Precision | Literal["auto"] = "auto", lenient: bool = False
    ) -> None:
        """Take the options of ``lineprotocol.decode``; `precision` is that of ``encode`` too."""
        self.precision: Precision | Literal["auto"] = precision
        self.lenient = lenient

    def decode(self, messages: Sequence[Any]) -> Iterator[tuple[Batch, int]]:
        """Decode messages; many small payloads are joined and decoded at once."""
        for group in _groups(messages):
            joined = self._joined(group) if len(group) > 1 else None
            if joined is not None:
                yield joined, len(group)
            else:
                for message in group:
                    yield self._single(message), 1

    def _single(self, message: Received) -> Batch:
        lines = decode(message.payload, precision=self.precision, lenient=self.lenient)
        if _misses_times(lines):
            lines.fill_missing_times(message.arrival)
        return Batch(lines, origin=message.subject)

    def _joined(self, messages: Sequence[Any]) -> Batch | None:
        """Decode payloads together; None where one of them must be seen for itself."""
        parts = [
            payload if payload.endswith(b"\n") else payload + b"\n"
            for payload in (message.payload for message in messages)
        ]
        lines = decode(b"".join(parts), precision=self.precision, lenient=self.lenient)
        if lines.rejected or _misses_times(lines):
            return None
        batch = Batch(lines, origin=messages[0].subject)
        if any(message.subject != batch.origin for message in messages):
            ends = list(accumulate(map(len, parts)))
            batch.origin_of = partial(_origin_of, lines, ends, messages)
        return batch

    def encode(
        self, records: Iterable[Message], subjects: Subjects, packing: Packing
    ) -> Iterator[tuple[str, bytes]]:
        """Sort messages by subject and pack the lines of each subject into payloads."""
        by_subject: dict[str, list[Message]] = {}
        for record in records:
            by_subject.setdefault(subjects.of_message(record), []).append(record)
        for subject, group in by_subject.items():
            encoded = encode_each(group, precision=self.precision)
            for payload in pack(encoded, packing.lines, min(packing.size, packing.limit)):
                if len(payload) > packing.limit:
                    raise RejectedError(
                        f"a line of {len(payload)} bytes exceeds the server's max_payload"
                    )
                yield subject, payload


class SonarCodec(Codec):
    """Sonar's JSON: one envelope in a message, though more than one can be read."""

    records = Envelopes

    def __init__(self, *, profile: Dialect | Profile = "spec", strict: bool = False) -> None:
        """Take the options of ``sonar.decode`` and of ``sonar.encode``.

        A profile for one direction only, such as ``jobanalyzer`` for writing, leaves the other
        one at its default.
        """
        self.reads = cast("Dialect", profile if profile in get_args(Dialect) else "spec")
        self.writes = cast("Profile", profile if profile in get_args(Profile) else "spec")
        self.strict = strict

    def decode(self, messages: Sequence[Any]) -> Iterator[tuple[Batch, int]]:
        """Decode messages one by one."""
        for message in messages:
            found, rejected = decode_envelopes(
                message.payload, strict=self.strict, profile=self.reads
            )
            envelopes = Envelopes(found, rejected=rejected, payload=len(message.payload))
            yield Batch(envelopes, origin=message.subject), 1

    def encode(
        self, records: Iterable[Envelope], subjects: Subjects, packing: Packing
    ) -> Iterator[tuple[str, bytes]]:
        """Encode each envelope, to the subject of its cluster and type."""
        for index, envelope in enumerate(records):
            payload = encode_envelope(envelope, profile=self.writes)
            if len(payload) > packing.limit:
                reason = f"an envelope of {len(payload)} bytes exceeds the server's max_payload"
                raise RejectedError(reason, [index])
            yield _subject(envelope, subjects), payload


def _groups(messages: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield messages that can be decoded together.

    A string may hold line ends, and an open one would swallow the messages that follow; so a
    payload with a quotation mark stays alone, as does one that ends in an open escape.
    """
    group: list[Any] = []
    size = 0
    for message in messages:
        payload = message.payload
        is_alone = b'"' in payload or payload.endswith(b"\\")
        if group and (is_alone or size + len(payload) > JOINED_BYTES):
            yield group
            group, size = [], 0
        group.append(message)
        size += JOINED_BYTES if is_alone else len(payload)
    if group:
        yield group


def _misses_times(lines: Lines) -> bool:
    return lines.precision is None and NO_TIME in lines.times


def _origin_of(lines: Lines, ends: Sequence[int], messages: Sequence[Any], row: int) -> str:
    """Return the subject of the message in whose payload a row stands."""
    return str(messages[bisect_right(ends, lines.starts[row])].subject)


def _subject(envelope: Envelope, subjects: Subjects) -> str:
    data = envelope.data
    cluster = envelope.errors[0].cluster if data is None else data.attributes.cluster
    node = envelope.errors[0].node if data is None else getattr(data.attributes, "node", "")
    return subjects.templates["sonar"].format(
        cluster=escape(cluster or subjects.cluster),
        hostname=escape(node or subjects.hostname),
        name="error" if data is None else data.type,
        method="",
    )


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
