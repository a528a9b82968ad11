"""Line protocol as the payload of messages."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from typing import Literal, NamedTuple

from ccpipe.bus.codecs import Codec, Packing
from ccpipe.bus.codecs.received import Received, ReceivedColumns
from ccpipe.bus.subjects import Subjects
from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import EncodedLines, Lines, Precision, decode, encode_rows
from ccpipe.formats.lineprotocol.decoder import join, rows_before
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.formats.lineprotocol.series import PerSeries, fields_of
from ccpipe.message import Kind, Message
from ccpipe.records import Provenance

AnyPrecision = Precision | Literal["auto"]

_EVENTS = frozenset({Kind.EVENT, Kind.LOG, Kind.CONTROL})

JOINED_BYTES = 5 * 2**19
"""Payloads are joined up to about this size before they are decoded.

With its columns this is about the size of a batch in ``Limits``, so that a write needs no further
joining.
"""

MAX_DESTINATIONS = 1 << 20
"""Series whose destinations are kept: shared objects, of which a million entries take 75 MB.

With fewer, the tags of a large cluster's series would be read again for each batch.
"""

MAX_REJECTED = 5000
"""Maximum number of unreadable lines of a message that are reported one by one."""


class LineCodec(Codec[Lines]):
    """Line protocol: any number of lines in a message."""

    records = Lines

    def __init__(
        self,
        *,
        precision: AnyPrecision = "auto",
        event_precision: AnyPrecision | None = None,
        lenient: bool = False,
    ) -> None:
        """Take the options.

        Parameters
        ----------
        precision
            The unit of timestamps, read and written; ``auto`` infers it from each value's magnitude
            and writes the coarsest exact unit.
        event_precision
            The same for events, logs and control messages, if it differs: cc-lib's receivers read
            nanoseconds, cc-metric-store reads seconds.
        lenient
            Accept known deviations from the grammar of line protocol.

        """
        self.precision: AnyPrecision = precision
        self.event_precision: AnyPrecision = event_precision or precision
        self.lenient = lenient
        self._metrics: tuple[Subjects, PerSeries[_Destination]] | None = None

    def decode(self, messages: Sequence[Received]) -> Iterator[tuple[Lines, int]]:
        """Decode messages; many small payloads are joined and decoded at once."""
        together = messages if isinstance(messages, ReceivedColumns) else ReceivedColumns(messages)
        for group in _groups(together, together.sizes):
            if (joined := self._joined(group)) is not None:
                yield joined, len(group)
                continue
            for part in _groups(group, [_weight(message.payload) for message in group]):
                if (joined := self._joined(part)) is not None:
                    yield joined, len(part)
                else:
                    for message in part:
                        yield self._single(message), 1

    def _single(self, message: Received) -> Lines:
        lines = decode(
            message.payload,
            precision=self.precision,
            lenient=self.lenient,
            max_rejected=MAX_REJECTED,
        )
        if _lacks_times(lines):
            lines.fill_missing_times(message.arrival)
        lines.provenance = Provenance.of_message(message.subject, len(lines))
        return lines

    def _joined(self, messages: ReceivedColumns[Received]) -> Lines | None:
        """Decode payloads together; None if they must be decoded one by one."""
        if len(messages) == 1:
            return None
        joined = messages.joined()
        if joined is None:
            return None
        payload, ends = joined
        lines = decode(payload, precision=self.precision, lenient=self.lenient, max_rejected=0)
        if lines.rejected or _lacks_times(lines):
            return None
        ends = rows_before(lines.starts, ends)
        lines.provenance = Provenance.of_messages(messages.subjects, ends)
        return lines

    def encode(
        self, records: Lines, subjects: Subjects, packing: Packing
    ) -> Iterator[tuple[str, bytes]]:
        destinations, of_events = self._destinations(records, subjects)
        rows_of = _rows_of_each(destinations)
        encoded = {
            precision: encode_rows(records, precision=precision)
            for precision in {destination.precision for destination in rows_of}
        }
        size = min(packing.size, packing.limit)
        for destination, own in rows_of.items():
            lines, rows = encoded[destination.precision], range(own[0], own[-1] + 1)
            if len(rows) > len(own):  # others are in between
                lines, rows = lines.take(own), range(len(own))
            parts = _job_parts(map(records.__getitem__, own)) if destination in of_events else ()
            for payload in pack(lines, rows, packing.lines, size, parts):
                if len(payload) > packing.limit:
                    raise RejectedError(
                        f"a line of {len(payload)} bytes exceeds the server's max_payload"
                    )
                yield destination.subject, payload

    def _destinations(
        self, records: Lines, subjects: Subjects
    ) -> "tuple[list[_Destination], set[_Destination]]":
        """Return the destination of each record, and the destinations of events."""
        found = self._of_metrics(subjects).of_rows(records)
        kinds = fields_of(records, Kind.of)
        if _EVENTS.isdisjoint(kinds.values()):
            return found, set()
        events = [row for row, field in enumerate(records.fields) if kinds[field] in _EVENTS]
        for row in events:
            found[row] = self._destination(records[row], subjects)
        return found, {found[row] for row in events}

    def _of_metrics(self, subjects: Subjects) -> "PerSeries[_Destination]":
        """They depend on name and tags only."""
        if self._metrics is None or self._metrics[0] is not subjects:

            def decide(name: str, tags: Mapping[str, str]) -> _Destination:
                return _interned(subjects.of_message(Message(name, tags, 0.0)), self.precision)

            self._metrics = subjects, PerSeries(decide, MAX_DESTINATIONS)
        return self._metrics[1]

    def _destination(self, record: Message, subjects: Subjects) -> "_Destination":
        if record.kind is Kind.CONTROL:
            raise RejectedError("a control request is not data; `ccpipe control` sends requests")
        precision = self.event_precision if record.kind in _EVENTS else self.precision
        return _interned(subjects.of_message(record), precision)


class _Destination(NamedTuple):
    """The subject of a record, and the unit of its timestamp there."""

    subject: str
    precision: AnyPrecision


_interned = lru_cache(maxsize=4096)(_Destination)
"""Equal destinations are mostly the same object, which makes comparisons fast."""


def _rows_of_each(destinations: Sequence[_Destination]) -> dict[_Destination, Sequence[int]]:
    if destinations and destinations.count(destinations[0]) == len(destinations):
        return {destinations[0]: range(len(destinations))}
    rows: dict[_Destination, list[int]] = {}
    first = 0
    for destination, together in groupby(destinations):  # a node's rows are neighbours
        last = first + len(list(together))
        rows.setdefault(destination, []).extend(range(first, last))
        first = last
    return dict(rows)


def _groups(
    messages: ReceivedColumns[Received], sizes: Sequence[int]
) -> Iterator[ReceivedColumns[Received]]:
    """Yield groups of messages of at most ``JOINED_BYTES``, or a single larger message."""
    if sizes and sum(sizes) <= JOINED_BYTES:
        yield messages
        return
    ends = list(accumulate(sizes))
    first = before = 0
    while first < len(messages):
        last = max(bisect_right(ends, before + JOINED_BYTES, first), first + 1)
        yield messages[first:last]
        first, before = last, ends[last - 1]


def _weight(payload: bytes) -> int:
    """Return the size of a payload, or a size that isolates it if it cannot be joined."""
    return JOINED_BYTES + 1 if join([payload]) is None else len(payload)


def _lacks_times(lines: Lines) -> bool:
    return lines.precision is None and NO_TIME in lines.times


JobPart = Literal["start", "stop"] | None
"""Role of a line: the first event of a job, the stop directly after its start, or neither."""


def pack(
    encoded: EncodedLines, rows: range, lines: int, size: int, parts: Iterable[JobPart] = ()
) -> Iterator[bytes]:
    """Divide consecutive rows into payloads of at most `lines` lines and `size` bytes.

    A line longer than `size` gets a payload of its own. So do the events of one job, start and
    stop together: cc-backend handles payloads in no particular order and would lose a stop that
    overtakes its start. With one job per payload, its message id is also always the same.

    `parts` gives the role of each row; by default no line is a job event.
    """
    ends, first = encoded.ends, rows.start
    before = ends[first - 1] if first else 0
    for count, is_job in _runs(list(parts), len(rows)):
        last = rows.start + count
        while first < last:
            end = bisect_right(ends, before + size, first, min(first + lines, last))
            end = last if is_job else max(end, first + 1)
            yield encoded.payload[before : ends[end - 1]]
            first, before = end, ends[end - 1]


def _runs(parts: Sequence[JobPart], total: int) -> Iterator[tuple[int, bool]]:
    """Yield the end of each run of lines, and whether the run is the events of one job."""
    for row, (one, other) in enumerate(pairwise(parts), 1):
        if other == "start" or (one is None) != (other is None):
            yield row, one is not None
    yield total, bool(parts) and parts[-1] is not None


def _job_parts(messages: Iterable[Message]) -> Iterator[JobPart]:
    from ccpipe.jobs import is_stop_of  # not needed for metrics

    before: Message | None = None
    for message in messages:
        if message.name != "job" or message.kind is not Kind.EVENT:
            yield None
        else:
            yield "stop" if before is not None and is_stop_of(before, message) else "start"
        before = message
