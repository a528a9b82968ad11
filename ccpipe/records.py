"""Records of one type in a pipe, with the rejected bytes.

``Lines`` of line protocol are columns, ``Envelopes`` of Sonar a list. A plug-in adds a type by a
class of this shape, such as a ``RecordList``, with its name and default subjects.

Records know their messages: ``Provenance`` is a column that is kept when records are selected. Dead
letters name the origin of a record by it, and a sink stores redelivered messages only once: a
broker redelivers a message whose acknowledgement was lost, perhaps with others in the batch. So
records are identified by their message, and messages by number and time within the consumer that
delivers them.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, compress, groupby, pairwise
from operator import sub
from typing import Any, ClassVar, NamedTuple, Protocol, Self, SupportsIndex, TypeVar, overload


class MessageRange(NamedTuple):
    """Messages of one consumer with consecutive numbers."""

    consumer: str
    first: int
    last: int
    since: int
    """Time of the earliest message, in nanoseconds since the epoch."""
    until: int
    """Time of the latest message."""

    def overlaps(self, other: "MessageRange") -> bool:
        """Return whether both ranges may share a message.

        Numbers alone do not suffice: they start over when a stream is restored or recreated.
        """
        return (
            self.consumer == other.consumer
            and self.first <= other.last
            and other.first <= self.last
            and self.since <= other.until
            and other.since <= self.until
        )


def merged_ranges(ranges: Iterable[MessageRange]) -> list[MessageRange]:
    """Merge ranges that overlap or follow each other, in order of consumer and number."""
    found: list[MessageRange] = []
    for each in sorted(ranges):
        before = found[-1] if found else None
        follows = before and (before.consumer, before.last + 1) == (each.consumer, each.first)
        if before and (follows or before.overlaps(each)):
            found[-1] = MessageRange(
                each.consumer,
                before.first,
                max(before.last, each.last),
                min(before.since, each.since),
                max(before.until, each.until),
            )
        else:
            found.append(each)
    return found


@dataclass(slots=True)
class Provenance:
    """The messages of some records as columns: one entry for each message, in order."""

    origins: list[str]
    """Subject, topic or file of each message; empty if it is unknown."""
    consumers: list[str]
    """Consumer of the numbers and times; empty for records that are never redelivered."""
    numbers: "array[int]"
    times: "array[int]"
    """When the broker stored each message, in nanoseconds since the epoch."""
    ends: "array[int]"
    """Number of records up to and including the last one of the message."""

    @classmethod
    def of_message(cls, origin: str, count: int) -> "Provenance":
        """Return the entry of one message without a number, with its number of records."""
        return cls.of_messages([origin], array("q", [count]))

    @classmethod
    def of_messages(cls, origins: list[str], ends: "array[int]") -> "Provenance":
        """Return the entries of messages without numbers."""
        nothing = array("q", bytes(8 * len(origins)))
        return cls(origins, [""] * len(origins), nothing, nothing, ends)

    @classmethod
    def concat(cls, parts: Iterable["tuple[Provenance | None, int]"]) -> "Provenance | None":
        """Concatenate what is known of records that are concatenated, each with their number."""
        whole = cls([], [], array("q"), array("q"), array("q"))
        is_known = False
        for known, count in parts:
            is_known = is_known or known is not None
            part = known or cls.of_message("", count)
            offset = whole.ends[-1] if whole.ends else 0
            whole.origins += part.origins
            whole.consumers += part.consumers
            whole.numbers += part.numbers
            whole.times += part.times
            whole.ends.extend(array("q", [offset + end for end in part.ends]))
        return whole if is_known else None

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def has_ids(self) -> bool:
        """Whether any message can be recognized when it is redelivered."""
        return any(self.consumers)

    def identified(self, consumer: str, numbers: "array[int]", times: "array[int]") -> "Provenance":
        """Return the same messages with their numbers and times in a consumer."""
        return Provenance(self.origins, [consumer] * len(self), numbers, times, self.ends)

    def origin(self, row: int) -> str:
        """Return the origin of one record."""
        return self.origins[bisect_right(self.ends, row)]

    def take(self, flags: bytes) -> "Provenance":
        """Return the messages of the records whose flags are 1; there is one flag per record."""
        bounds = pairwise([0, *self.ends])
        ends = array("q", accumulate(flags.count(1, begin, end) for begin, end in bounds))
        return replace(self, ends=ends)

    def part(self, rows: slice) -> "Provenance":
        """Return the messages of consecutive rows."""
        first, last, _ = rows.indices(self.ends[-1] if self.ends else 0)
        ends = array("q", [min(max(end, first), last) - first for end in self.ends])
        return replace(self, ends=ends)

    def extended(self, count: int) -> "Provenance":
        """Return the messages when records were added at the end: they belong to the last one."""
        return replace(self, ends=self.ends[:-1] + array("q", [count])) if self.ends else self

    def is_inside(self, row: int) -> bool:
        """Return whether a split at a row would divide a message."""
        return row not in self.ends

    def split_point(self, row: int) -> int:
        """Return the end of a message near a row, for a split; by default the row itself.

        A message is split only if it is the only one.
        """
        place = bisect_right(self.ends, row)
        before = self.ends[place - 1] if place else 0
        after = self.ends[place] if place < len(self.ends) else 0
        return before or (after if after < self.ends[-1] else row)

    def split(self, row: int) -> "tuple[Provenance, Provenance]":
        """Split at a row.

        A message with records on both sides has its number in the second part only: it counts as
        stored when all of its records are.
        """
        place = bisect_right(self.ends, row)
        first = self._slice(0, place, 0)
        if (before := first.ends[-1] if first.ends else 0) < row:
            divided = Provenance.of_message(self.origins[place], row - before)
            joined = Provenance.concat([(first, before), (divided, row - before)])
            assert joined is not None
            first = joined
        return first, self._slice(place, len(self), row)

    def large(self, size: int) -> "Iterator[tuple[int, tuple[str, int, int] | None]]":
        """Yield the end row and id of each known message with at least `size` records.

        Records of smaller or unknown messages between them have the id None.
        """
        begin = covered = 0
        for message, end in self._messages():
            if message.consumer and end - begin >= max(size, 1):
                if covered < begin:
                    yield begin, None
                yield end, (message.consumer, message.first, message.since)
                covered = end
            begin = end
        if covered < begin:
            yield begin, None

    def _slice(self, first: int, last: int, offset: int) -> "Provenance":
        ends = self.ends[first:last]
        return Provenance(
            self.origins[first:last],
            self.consumers[first:last],
            self.numbers[first:last],
            self.times[first:last],
            array("q", [end - offset for end in ends]) if offset else ends,
        )

    def runs(self) -> list[MessageRange]:
        """Return the known messages as runs of consecutive numbers."""
        pieces = sorted(self._pieces())
        neighbours = (pair for pair in pairwise(pieces) if pair[0].consumer == pair[1].consumer)
        if any(after.first <= one.last for one, after in neighbours):
            # Duplicates, or numbers that started over.
            pieces = sorted({message for message, _ in self._messages() if message.consumer})
        return list(_joined(pieces))

    def _pieces(self) -> Iterator[MessageRange]:
        """Yield the known messages as runs of consecutive numbers, in their order.

        Messages of a consumer are nearly always in order, so that no work is needed for each.
        """
        first = 0
        for consumer, group in groupby(self.consumers):
            last = first + len(list(group))
            if consumer:
                numbers = self.numbers[first:last]
                steps = list(map(sub, numbers[1:], numbers))
                breaks = (at for at, step in enumerate(steps, first + 1) if step != 1)
                ends = [*(breaks if steps.count(1) < len(steps) else ()), last]
                for begin, end in zip([first, *ends], ends, strict=False):
                    times = self.times[begin:end]
                    yield MessageRange(
                        consumer, self.numbers[begin], self.numbers[end - 1], min(times), max(times)
                    )
            first = last

    def _messages(self) -> Iterator[tuple[MessageRange, int]]:
        """Yield each message, also unknown ones, with the end of its rows."""
        columns = zip(self.consumers, self.numbers, self.times, self.ends, strict=True)
        for consumer, number, time, end in columns:
            yield MessageRange(consumer, number, number, time, time), end

    def unstored(
        self, stored: Iterable[MessageRange]
    ) -> tuple[bytearray | None, list[MessageRange]]:
        """Compare with stored messages, and find duplicates among these.

        Returns 1 for each record to store and 0 for each stored one, or None if all are to be
        stored; and the messages that will be stored with them.
        """
        runs = self.runs()
        stored = [old for old in stored if any(map(old.overlaps, runs))]
        known = len(self) - self.consumers.count("")
        has_copies = known > sum(run.last - run.first + 1 for run in runs)
        if not stored and not has_copies:
            return None, runs
        keep = bytearray(self.ends[-1] if self.ends else 0)
        left: set[MessageRange] = set()
        begin = 0
        for message, end in self._messages():
            is_known = bool(message.consumer)
            if not (is_known and (message in left or any(map(message.overlaps, stored)))):
                keep[begin:end] = b"\1" * (end - begin)
                if is_known:
                    left.add(message)
            begin = end
        return (None if all(keep) else keep), list(_joined(sorted(left)))


def _joined(runs: Iterable[MessageRange]) -> Iterator[MessageRange]:
    """Merge sorted runs that continue each other."""
    held: MessageRange | None = None
    for run in runs:
        if held and (held.consumer, held.last + 1) == (run.consumer, run.first):
            since, until = min(held.since, run.since), max(held.until, run.until)
            held = MessageRange(run.consumer, held.first, run.last, since, until)
        else:
            if held:
                yield held
            held = run
    if held:
        yield held


class Rejected(Protocol):
    """A piece of a payload that could not be read, or a record that a translator rejects."""

    @property
    def original(self) -> bytes:
        """Its original bytes."""

    @property
    def reason(self) -> str:
        """Why it was rejected."""

    @property
    def line(self) -> int:
        """Line number in the payload, from 1; 0 if unknown."""

    @property
    def offset(self) -> int:
        """Byte offset in the payload, from 0."""


class RejectedRecord(NamedTuple):
    """The plain form of ``Rejected``."""

    original: bytes
    reason: str
    line: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Input or a record that nothing downstream accepts, with the reason."""

    original: bytes
    reason: str
    origin: str = ""
    """Its subject or file."""
    line: int = 0
    """Line number in the payload, from 1; 0 for a record rejected by a store."""
    offset: int = 0
    lines: int = 1
    """Number of rejected lines or records in it."""

    def __str__(self) -> str:
        return f"dead letter from {self.description}"

    @property
    def description(self) -> str:
        """Its origin, the reason and the beginning of its text."""
        where = f" line {self.line}, offset {self.offset}" if self.line else ""
        original = excerpt(self.original, 0)
        return f"{self.origin or '?'}{where}: {self.reason}: {original}"


def excerpt(original: bytes, position: int) -> str:
    start = max(0, position - 30)
    piece = original[start : start + 60].decode(errors="backslashreplace")
    return ("…" if start else "") + "".join(c if c.isprintable() else repr(c)[1:-1] for c in piece)


class Records(Protocol):
    """Some records of one type, as columns or as a sequence; without arguments, none."""

    name: ClassVar[str]
    """Name of the type in error messages."""
    subjects: ClassVar[Sequence[str]]
    """Names of the subjects that such records are read from by default; see ``bus.subjects``."""

    provenance: Provenance | None
    """Their messages; None if unknown."""

    @property
    def size(self) -> int:
        """Approximate size in memory, in bytes."""

    @property
    def rejected(self) -> Sequence[Rejected]:
        """Pieces of the input that are not among the records, with reasons."""

    @classmethod
    def concat(cls, parts: Sequence[Self], /) -> Self:
        """Concatenate records in order."""

    def __len__(self) -> int:
        """Return the number of records."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the records."""

    def __getitem__(self, rows: slice, /) -> Self:
        """Return the records of some consecutive rows, with their provenance."""

    def take(self, keep: Sequence[int], /) -> Self:
        """Return the records for which `keep` is true, with their provenance."""

    def original(self, index: int, /) -> bytes:
        """Return the bytes of one record for a dead letter."""


T = TypeVar("T")


class RecordList(list[T]):
    """Records as a list."""

    name: ClassVar[str]
    subjects: ClassVar[Sequence[str]] = ()

    def __init__(
        self,
        records: Iterable[T] = (),
        *,
        rejected: Sequence[Rejected] = (),
        provenance: Provenance | None = None,
        size: int | None = None,
    ) -> None:
        """Take the records, and what was rejected with them.

        `size` is the size in bytes before decoding; by default it is estimated.
        """
        super().__init__(records)
        self.rejected: list[Any] = list(rejected)
        self.provenance = provenance
        self.size = sum(map(self.size_of, self)) if size is None else size

    @staticmethod
    def size_of(record: T) -> int:  # noqa: ARG004 - subclasses use it
        """Return the approximate size of a record in memory, in bytes."""
        return 512

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T | Self:
        """Return one record, or the records of consecutive rows."""
        if not isinstance(index, slice):
            return super().__getitem__(index)
        provenance = self.provenance and self.provenance.part(index)
        return type(self)(super().__getitem__(index), provenance=provenance)

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate records in order."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            (record for part in parts for record in part),
            rejected=[bad for part in parts for bad in part.rejected],
            provenance=Provenance.concat([(part.provenance, len(part)) for part in parts]),
            size=sum(part.size for part in parts),
        )

    def take(self, keep: Sequence[int]) -> Self:
        """Return the records for which `keep` is true, with all that was rejected."""
        flags = bytes(map(bool, keep))
        provenance = self.provenance and self.provenance.take(flags)
        return type(self)(compress(self, flags), rejected=self.rejected, provenance=provenance)

    def original(self, index: int) -> bytes:
        """Return the bytes of a record in a dead letter."""
        return repr(self[index]).encode(errors="backslashreplace")
