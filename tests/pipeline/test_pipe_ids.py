"""A pipe hands a sink the ids of messages, however batches are joined, halved and thinned out."""

from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from ccpipe.errors import RejectedError, TimedOutError
from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.pipeline import Limits, Sink, TimedSink, run
from ccpipe.records import Provenance
from tests.deliveries import delivered, provenance_of
from tests.pipeline.parts import ListDeadLetterSink, ListSource, play, virtual
from tests.sinks.conftest import metric


def numbered(*numbers: int) -> ListSource:
    """Make messages of two records each; the number of the message is their value."""
    return ListSource([of_message(number, [float(number)] * 2) for number in numbers])


def of_message(number: int, values: Sequence[float]) -> Lines:
    lines = to_lines([metric(value) for value in values])
    column = array("q", [number])
    return delivered(lines, provenance_of(["c"], column, column, array("q", [len(lines)])))


class Picky(Sink[Lines]):
    """Rejects writes with a bad record; records the message ids of the others."""

    takes = Lines

    def __init__(self, *, names_bad: bool) -> None:
        self.names_bad = names_bad
        self.stored: list[tuple[int, str]] = []

    async def write(self, records: Lines) -> None:
        """Take records with their messages, of which some are known."""
        assert records.provenance is not None
        self.take(records, records.provenance)

    def take(self, records: Lines, ids: Provenance) -> None:
        bad = [row for row, record in enumerate(records) if record.value == 3.0]
        if bad:
            raise RejectedError("three", bad if self.names_bad else None)
        begin = 0
        for consumer, number, end in zip(ids.consumers, ids.numbers, ids.ends, strict=True):
            assert not consumer or {record.value for record in records[begin:end]} <= {number}
            self.stored += [(int(record.value), consumer) for record in records[begin:end]]
            begin = end
        assert begin == len(records)


@pytest.mark.parametrize("names_bad", [True, False])
@virtual
async def test_sink_receives_records_with_their_message_ids(names_bad: bool) -> None:
    """Whether the sink names the bad records or they are found by halving."""
    sink, letters = Picky(names_bad=names_bad), ListDeadLetterSink()
    limits = Limits(max_wait=0.05)
    await run(numbered(1, 2, 3, 4, 5), sink, dead_letter_sink=letters, limits=limits)
    assert sorted(sink.stored) == [(n, "c") for n in (1, 1, 2, 2, 4, 4, 5, 5)]
    assert len(letters.letters) == 2


@virtual
async def test_message_ids_are_kept_by_stateless_translator() -> None:
    sink = Picky(names_bad=True)

    def first(records: Any) -> Any:
        return records[:1]

    await run(numbered(1, 2), sink, translators=[first], limits=Limits(max_wait=0.05))
    assert sink.stored == [(1, "c"), (2, "c")]


@virtual
async def test_dead_letters_are_written_before_their_message_is_stored() -> None:
    """A pipe killed in between would lose them: the message counts as stored."""
    letters = ListDeadLetterSink()
    rejected = 0

    class Remembers(Sink[Any]):
        """Rejects a record without naming it."""

        takes = Lines

        async def write(self, records: Lines) -> None:
            nonlocal rejected
            if any(record.value == 3.0 for record in records):
                rejected += len(records) == 1
                raise RejectedError("three")
            if records.provenance and records.provenance.has_ids:
                assert len(letters.letters) == rejected

    messages = [of_message(n, (1.0, 3.0, 2.0, 3.0, 4.0, 5.0, 6.0)) for n in (1, 2, 3)]
    source = ListSource(messages)
    limits = Limits(max_wait=0.05)
    await run(source, Remembers(), dead_letter_sink=letters, limits=limits)
    assert rejected == len(letters.letters) == 6


class Slow(Picky, TimedSink[Lines]):
    """Times out on each write as long as its time limit is short."""

    def __init__(self, seconds: float) -> None:
        super().__init__(names_bad=True)
        self.seconds, self.time_limit = seconds, 10.0

    def take(self, records: Lines, ids: Provenance) -> None:
        if self.time_limit < self.seconds * len(records):
            raise TimedOutError("no answer in time")
        super().take(records, ids)


@pytest.mark.parametrize(("seconds", "consumers"), [(60.0, ["c", "c"]), (200.0, ["", "c"])])
def test_message_is_split_for_slow_store_only_at_maximum_time_limit(
    seconds: float, consumers: list[str]
) -> None:
    """Only its last part has the id: a bridge killed in between would repeat the first."""
    sink = Slow(seconds)
    play(run(numbered(1, 2), sink, limits=Limits(max_wait=0.05)))
    assert sorted(sink.stored) == sorted((number, each) for number in (1, 2) for each in consumers)
