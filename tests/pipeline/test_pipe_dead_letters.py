"""``run()`` with rejected records or lines: each is kept, and others are unaffected."""

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError, EncodeError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, decode, to_lines
from ccpipe.message import Message
from ccpipe.pipeline import DeadLetter, Limits, run
from ccpipe.pipeline.delivery import AT_ONCE, Attempts, DeadLetterWriter
from ccpipe.telemetry import Telemetry
from tests.pipeline.parts import (
    EventLog,
    Failing,
    ListDeadLetterSink,
    ListSink,
    ListSource,
    clock,
    made,
    play,
    values,
)

Numbers = frozenset[int] | set[int]


class Picky:
    """An answer that refuses writes holding certain numbers, naming them or not."""

    def __init__(self, bad: Numbers, *, named: int = 0, encoding: bool = False) -> None:
        self.bad = bad
        self.named = named
        self.encoding = encoding

    def __call__(self, records: Sequence[Message]) -> None:
        found = [i for i, value in enumerate(values(records)) if value in self.bad]
        if found and self.encoding:
            raise EncodeError("cannot be written")
        if found:
            raise RejectedError("refused", found[: self.named] if self.named else None)


def lines(numbers: Sequence[int]) -> Sequence[Message]:
    """Decode one metric for each number, which is its value."""
    return decode(b"".join(b"m,hostname=n1,type=node value=%di %d\n" % (n, n) for n in numbers))


def batches(total: int, cuts: Sequence[int], *, columns: bool) -> list[Sequence[Message]]:
    bounds = sorted({0, total, *(cut % (total + 1) for cut in cuts)})
    pieces = [range(a, b) for a, b in itertools.pairwise(bounds)]
    return [lines(piece) if columns else made(*piece) for piece in pieces]


@given(data=st.data(), total=st.integers(0, 40), columns=st.booleans(), encoding=st.booleans())
def test_pipe_finds_bad_records_at_any_position(
    data: st.DataObject, total: int, columns: bool, encoding: bool
) -> None:
    """Of any number, in batches of any size, whether the store names all, some or none.

    The good ones are written once and in order, the bad ones are dead letters with the reason.
    """
    bad = data.draw(st.frozensets(st.integers(0, max(0, total - 1)), max_size=total))
    cuts = data.draw(st.lists(st.integers(0, 40), max_size=5))
    named = data.draw(st.sampled_from([0, 1, 2, 1000]))
    size = data.draw(st.integers(1, 50))
    telemetry = Telemetry()
    source = ListSource(batches(total, cuts, columns=columns))
    sink = ListSink(Picky(bad, named=named, encoding=encoding))
    kept = ListDeadLetterSink()
    limits = Limits(max_records=size)
    play(run(source, sink, dead_letter_sink=kept, limits=limits, telemetry=telemetry))
    assert values(sink.written) == [n for n in range(total) if n not in bad]
    assert sorted(kept.numbers) == [n for n in range(total) if n in bad]
    reason = "cannot be written" if encoding else "refused"
    assert {letter.reason for letter in kept.letters} <= {reason}
    assert source.acked == list(range(source.handed))
    assert telemetry.total(telemetry.written) == total - len(bad)
    assert telemetry.total(telemetry.dead) == len(bad)


def test_pipe_accepts_any_number_of_single_rejections() -> None:
    """Many rejections of one record each cause no recursion."""
    total = 1500
    sink = ListSink(Picky(set(range(total)), named=1))
    kept = ListDeadLetterSink()
    play(run(ListSource([made(*range(total))]), sink, dead_letter_sink=kept))
    assert sorted(kept.numbers) == list(range(total))


def test_halving_takes_logarithm_of_writes() -> None:
    """One bad record among a thousand takes some twenty writes, not a thousand."""
    sink = ListSink(Picky({617}))
    play(run(ListSource([made(*range(1024))]), sink, dead_letter_sink=ListDeadLetterSink()))
    assert len(sink.tries) == 1 + 2 * 10


@pytest.mark.parametrize("indices", [[-1], [2], [99, -5]])
def test_pipe_ignores_impossible_indices(indices: list[int]) -> None:
    """A store that names records which were not written counts as having named none."""

    def answer(records: Sequence[Message]) -> None:
        if 1 in values(records):
            raise RejectedError("refused", indices)

    sink, kept = ListSink(answer), ListDeadLetterSink()
    play(run(ListSource([made(0, 1)]), sink, dead_letter_sink=kept))
    assert values(sink.written) == [0]
    assert kept.numbers == [1]


@pytest.mark.parametrize("named", [0, 1])
def test_dead_letter_of_rejected_record_is_line_with_reason_and_origin(named: int) -> None:
    """It is line protocol again, with the record's time and the origin of its batch."""
    kept = ListDeadLetterSink()
    sink = ListSink(Picky({2}, named=named))
    play(run(ListSource([made(0, 1), made(2)]), sink, dead_letter_sink=kept))
    assert kept.letters == [DeadLetter(b"m,hostname=n1,type=node value=2i 2", "refused", "batch 1")]


def test_dead_letter_of_record_that_cannot_be_encoded_is_its_repr() -> None:
    """It is kept and readable."""
    kept = ListDeadLetterSink()
    record = Message("m", {"hostname": "n1"}, math.nan, 1)
    play(run(ListSource([to_lines([record])]), ListSink(), dead_letter_sink=kept))
    [letter] = kept.letters
    assert letter.original == repr(record).encode()
    assert letter.reason.endswith("nan is not a valid value in line protocol")


def test_undecodable_lines_are_dead_letters_with_their_position() -> None:
    """The rest of the payload is written; acknowledgement waits for both."""
    event_log: EventLog = []
    lines = decode(b"a value=1 1\nbroken\nb value=2 2\nc value= 3\n")
    expected = [
        DeadLetter(bad.original, str(bad.rule), "batch 0", bad.line, bad.offset)
        for bad in lines.rejected
    ]
    assert [(bad.original, bad.line) for bad in expected] == [(b"broken", 2), (b"c value= 3", 4)]
    source = ListSource([lines], event_log=event_log)
    sink, kept = ListSink(event_log=event_log), ListDeadLetterSink(event_log=event_log)
    play(run(source, sink, dead_letter_sink=kept))
    assert values(sink.written) == [1, 2]
    assert kept.letters == expected
    ends = [what for what, _ in event_log if what in ("written", "dead", "ack")]
    assert ends == ["written", "dead", "ack"]


def test_payload_of_bad_lines_only_is_acknowledged() -> None:
    """Nothing is left to write, and redelivery is useless."""
    source, sink, kept = ListSource([decode(b"broken\n")]), ListSink(), ListDeadLetterSink()
    play(run(source, sink, dead_letter_sink=kept))
    assert [letter.original for letter in kept.letters] == [b"broken"]
    assert source.acked == [0]
    assert sink.tries == []


def test_translators_do_not_lose_bad_lines() -> None:
    """A translator returns new records; lines rejected before it are dead letters."""

    def nothing(_: Lines) -> Lines:
        return Lines()

    kept = ListDeadLetterSink()
    source = ListSource([decode(b"a value=1 1\nbroken\n")])
    play(run(source, ListSink(), translators=[nothing], dead_letter_sink=kept))
    assert [letter.original for letter in kept.letters] == [b"broken"]


def test_unavailable_dead_letter_sink_delays_acknowledgement() -> None:
    """It is retried until it works; each is written once, and then the batch is acknowledged."""
    event_log: EventLog = []
    telemetry = Telemetry()
    source = ListSource([decode(b"a value=1 1\nbroken\n")], event_log=event_log)
    kept = ListDeadLetterSink(Failing(UnavailableError("full"), 5), event_log=event_log)
    play(run(source, ListSink(), dead_letter_sink=kept, telemetry=telemetry))
    assert [what for what, _ in event_log if what in ("dead", "ack")] == ["dead", "ack"]
    assert telemetry.total(telemetry.retries) == 5
    assert telemetry.total(telemetry.dead) == 1


def test_dead_letter_refused_by_its_sink_does_not_end_pipe(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The others are written; that one is logged."""

    def answer(letters: Sequence[DeadLetter]) -> None:
        if any(letter.original == b"poison" for letter in letters):
            raise DataError("too large")

    source = ListSource([decode(b"one\npoison\ntwo\nm value=1 1\n")])
    sink, kept = ListSink(), ListDeadLetterSink(answer)
    play(run(source, sink, dead_letter_sink=kept))
    assert [letter.original for letter in kept.letters] == [b"one", b"two"]
    assert values(sink.written) == [1]
    assert source.acked == [0]
    [lost] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "poison" in lost
    assert "too large" in lost


def test_dead_letters_are_logged_and_counted_without_sink(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log is not flooded: it has ten of them, and the number of the others."""
    telemetry = Telemetry()
    source = ListSource([decode(b"broken\n" * 1000)])
    play(run(source, ListSink(), telemetry=telemetry))
    assert telemetry.total(telemetry.dead) == 1000
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 11
    assert texts[0].startswith("dead letter from batch 0 line 1, ")
    assert "990 more" in texts[-1]


def test_rejections_are_logged_together(caplog: pytest.LogCaptureFixture) -> None:
    """A store that rejects everything, record by record, does not flood the log."""
    kept = ListDeadLetterSink()
    source = ListSource([made(*range(500))])
    play(run(source, ListSink(Picky(set(range(500)))), dead_letter_sink=kept))
    assert len(kept.letters) == 500
    assert len(caplog.records) == 11


def test_pipe_does_not_retry_rejected_write() -> None:
    """Rejection is permanent: no pause, no second attempt with the same records."""
    sink = ListSink(Picky({0}))

    async def main() -> float:
        await run(ListSource([made(0)]), sink)
        return clock()

    assert play(main()) == 0
    assert len(sink.tries) == 1


def test_payload_of_bad_lines_makes_bounded_number_of_dead_letters() -> None:
    """Nothing of it is lost: the last one contains the remaining lines."""
    telemetry = Telemetry()
    payload = b"".join(b"bad%d\n" % n for n in range(5000))
    source, kept = ListSource([decode(payload)]), ListDeadLetterSink()
    play(run(source, ListSink(), dead_letter_sink=kept, telemetry=telemetry))
    assert len(kept.letters) == 101
    assert b"\n".join(letter.original for letter in kept.letters) + b"\n" == payload
    last = kept.letters[-1]
    assert (last.line, last.lines) == (101, 4900)
    assert "4900 more lines that could not be read, the first: " in last.reason
    assert telemetry.total(telemetry.dead) == 5000
    assert source.acked == [0]


def test_dead_letters_are_written_in_bounded_portions() -> None:
    """Each once, in their order."""
    sizes: list[int] = []
    kept = ListDeadLetterSink(lambda letters: sizes.append(len(letters)))
    letters = [DeadLetter(b"%d" % n, "no") for n in range(2 * AT_ONCE + 1)]
    telemetry = Telemetry()

    async def main() -> None:
        await DeadLetterWriter(kept, "s", Attempts(Limits(), telemetry), telemetry).write(letters)

    play(main())
    assert sizes == [AT_ONCE, AT_ONCE, 1]
    assert kept.letters == letters
