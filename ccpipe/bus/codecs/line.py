"""Line protocol as the payload of messages."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, repeat
from typing import Any, Literal

from ccpipe.bus.codecs import Codec, Packing, Received
from ccpipe.bus.subjects import Subjects
from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import Lines, Precision, decode, encode_each
from ccpipe.formats.lineprotocol.join import join, rows_before
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.jobs import is_stop_of
from ccpipe.message import Kind, Message
from ccpipe.pipeline import Batch

AnyPrecision = Precision | Literal["auto"]

_EVENTS = frozenset({Kind.EVENT, Kind.LOG, Kind.CONTROL})

JOINED_BYTES = 5 * 2**19
"""Payloads are joined up to about this size before they are decoded.

With its columns that is about what ``Limits`` gather, so that a write has nothing to join.
"""

MAX_REJECTED = 5000
"""Lines of a message that cannot be read and are looked at one by one."""


class LineCodec(Codec):
    """Line protocol: any number of lines in a message."""

    records = Messages

    def __init__(
        self,
        *,
        precision: AnyPrecision = "auto",
        event_precision: AnyPrecision | None = None,
        lenient: bool = False,
    ) -> None:
        """Take the options of ``lineprotocol.decode``; `precision` is that of ``encode`` too.

        `event_precision` is the one in which events, logs and control messages are written, where
        it differs: cc-lib's receivers read nanoseconds, cc-metric-store reads seconds.
        """
        self.precision: AnyPrecision = precision
        self.event_precision: AnyPrecision = event_precision or precision
        self.lenient = lenient

    def decode(self, messages: Sequence[Any]) -> Iterator[tuple[Batch, int]]:
        """Decode messages; many small payloads are joined and decoded at once."""
        for group in _groups(messages, [len(message.payload) for message in messages]):
            if (joined := self._joined(group)) is not None:
                yield joined, len(group)
                continue
            for part in _groups(group, [_weight(message.payload) for message in group]):
                if (joined := self._joined(part)) is not None:
                    yield joined, len(part)
                else:
                    for message in part:
                        yield self._single(message), 1

    def _single(self, message: Received) -> Batch:
        lines = decode(
            message.payload,
            precision=self.precision,
            lenient=self.lenient,
            max_rejected=MAX_REJECTED,
        )
        if _misses_times(lines):
            lines.fill_missing_times(message.arrival)
        return Batch(lines, origin=message.subject)

    def _joined(self, messages: Sequence[Any]) -> Batch | None:
        """Decode payloads together; None where one of them must be seen for itself."""
        if len(messages) == 1:
            return None
        joined = join([message.payload for message in messages])
        if joined is None:
            return None
        payload, ends = joined
        lines = decode(payload, precision=self.precision, lenient=self.lenient, max_rejected=1)
        if lines.rejected or _misses_times(lines):
            return None
        batch = Batch(lines, origin=messages[0].subject)
        batch.ends_of = partial(_ends_of, payload, ends)
        if [message.subject for message in messages].count(batch.origin) < len(messages):
            batch.origin_of = partial(_origin_of, lines, ends, messages)
        return batch

    def encode(
        self, records: Iterable[Message], subjects: Subjects, packing: Packing
    ) -> Iterator[tuple[str, bytes]]:
        """Sort messages by subject and pack the lines of each subject into payloads."""
        groups: dict[tuple[str, AnyPrecision], list[Message]] = {}
        for record in records:
            precision = self.event_precision if record.kind in _EVENTS else self.precision
            groups.setdefault((subjects.of_message(record), precision), []).append(record)
        for (subject, precision), group in groups.items():
            encoded = encode_each(group, precision=precision)
            size = min(packing.size, packing.limit)
            for payload in pack(encoded, packing.lines, size, _job_parts(group)):
                if len(payload) > packing.limit:
                    raise RejectedError(
                        f"a line of {len(payload)} bytes exceeds the server's max_payload"
                    )
                yield subject, payload


def _groups(messages: Sequence[Any], sizes: Iterable[int]) -> Iterator[Sequence[Any]]:
    """Yield messages whose sizes are together within the bound, or one that alone is not."""
    ends = list(accumulate(sizes))
    first = before = 0
    while first < len(messages):
        last = max(bisect_right(ends, before + JOINED_BYTES, first), first + 1)
        yield messages[first:last] if last - first < len(messages) else messages
        first, before = last, ends[last - 1]


def _weight(payload: bytes) -> int:
    """Return the size of a payload, or one that leaves it alone where it is not for ``join``."""
    return JOINED_BYTES + 1 if join([payload]) is None else len(payload)


def _misses_times(lines: Lines) -> bool:
    return lines.precision is None and NO_TIME in lines.times


def _origin_of(lines: Lines, ends: Sequence[int], messages: Sequence[Any], row: int) -> str:
    """Return the subject of the message in whose payload a row stands."""
    return str(messages[bisect_right(ends, lines.starts[row])].subject)


def _ends_of(payload: bytes, ends: "array[int]", records: Any) -> "array[int] | None":
    """Return how many of the records come before the end of each payload that was joined.

    Rules keep the rows of a payload in their order, whatever they take away.
    """
    if not isinstance(records, Lines) or records.payload is not payload:
        return None
    return rows_before(records.starts, ends)


JobPart = Literal["start", "stop"] | None
"""Of a line: the first of a job's events, the stop that follows its start, or neither."""


def pack(
    encoded: Iterable[bytes], lines: int, size: int, parts: Iterable[JobPart] | None = None
) -> Iterator[bytes]:
    """Join encoded lines into payloads of at most `lines` lines and `size` bytes.

    A line that is longer than `size` alone makes its own payload. So do the events of one job,
    start and stop together: cc-backend handles payloads in no order and would lose a stop that
    overtakes its start, and with one job to a payload its message id is always the same.
    """
    held: list[bytes] = []
    held_size = 0
    is_job = False
    for line, part in zip(encoded, parts or repeat(None), strict=False):
        is_full = len(held) >= lines or held_size + len(line) > size
        if held and part != "stop" and (is_full or is_job or part == "start"):
            yield b"".join(held)
            held, held_size = [], 0
        held.append(line)
        held_size += len(line)
        is_job = part is not None
    if held:
        yield b"".join(held)


def _job_parts(messages: Sequence[Message]) -> Iterator[JobPart]:
    """Yield which part of a job's events each message is."""
    before: Message | None = None
    for message in messages:
        if message.name != "job" or message.kind is not Kind.EVENT:
            yield None
        else:
            yield "stop" if before is not None and is_stop_of(before, message) else "start"
        before = message
