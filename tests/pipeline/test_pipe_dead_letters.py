"""``run()`` where records or lines are refused: each costs only itself, and is kept."""

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
    Diary,
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
def test_bad_records_are_found_wherever_they_are(
    data: st.DataObject, total: int, columns: bool, encoding: bool
) -> None:
    """Any of them may be bad, in batches of any size, whether the store names all, some or none.

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
    limits = Limits(lines=size)
    play(run(source, sink, dead_letter_sink=kept, limits=limits, telemetry=telemetry))
    assert values(sink.written) == [n for n in range(total) if n not in bad]
    assert sorted(kept.numbers) == [n for n in range(total) if n in bad]
    reason = "cannot be written" if encoding else "refused"
    assert {letter.reason for letter in kept.letters} <= {reason}
    assert source.acked == list(range(source.handed))
    assert telemetry.total(telemetry.written) == total - len(bad)
    assert telemetry.total(telemetry.dead) == len(bad)


def test_a_store_that_names_one_bad_record_at_a_time_may_do_so_for_ever() -> None:
    """Many refusals, each of one record, are no deeper than one."""
    total = 1500
    sink = ListSink(Picky(set(range(total)), named=1))
    kept = ListDeadLetterSink()
    play(run(ListSource([made(*range(total))]), sink, dead_letter_sink=kept))
    assert sorted(kept.numbers) == list(range(total))


def test_halving_takes_a_logarithm_of_writes() -> None:
    """One bad record among a thousand costs some twenty writes, not a thousand."""
    sink = ListSink(Picky({617}))
    play(run(ListSource([made(*range(1024))]), sink, dead_letter_sink=ListDeadLetterSink()))
    assert len(sink.tries) == 1 + 2 * 10


@pytest.mark.parametrize("indices", [[-1], [2], [99, -5]])
def test_indices_that_cannot_be_are_not_believed(indices: list[int]) -> None:
    """A store that names records which were not written is taken to have named none."""

    def answer(records: Sequence[Message]) -> None:
        if 1 in values(records):
            raise RejectedError("refused", indices)

    sink, kept = ListSink(answer), ListDeadLetterSink()
    play(run(ListSource([made(0, 1)]), sink, dead_letter_sink=kept))
    assert values(sink.written) == [0]
    assert kept.numbers == [1]


@pytest.mark.parametrize("named", [0, 1])
def test_a_letter_for_a_refused_record_is_a_line_with_reason_and_origin(named: int) -> None:
    """The letter reads as line protocol again, with its own time and the batch it came with."""
    kept = ListDeadLetterSink()
    sink = ListSink(Picky({2}, named=named))
    play(run(ListSource([made(0, 1), made(2)]), sink, dead_letter_sink=kept))
    assert kept.letters == [DeadLetter(b"m,hostname=n1,type=node value=2i 2", "refused", "batch 1")]


def test_a_record_that_no_line_can_hold_is_a_dead_letter_as_python_writes_it() -> None:
    """What cannot be encoded is still kept, readable for whoever looks."""
    kept = ListDeadLetterSink()
    record = Message("m", {"hostname": "n1"}, math.nan, 1)
    play(run(ListSource([to_lines([record])]), ListSink(), dead_letter_sink=kept))
    [letter] = kept.letters
    assert letter.original == repr(record).encode()
    assert letter.reason.endswith("nan cannot be a value in line protocol")


def test_lines_that_could_not_be_read_are_dead_letters_with_their_place() -> None:
    """Everything else of the payload is written; acknowledgement waits for both."""
    diary: Diary = []
    lines = decode(b"a value=1 1\nbroken\nb value=2 2\nc value= 3\n")
    expected = [
        DeadLetter(bad.original, str(bad.rule), "batch 0", bad.line, bad.offset)
        for bad in lines.rejected
    ]
    assert [(bad.original, bad.line) for bad in expected] == [(b"broken", 2), (b"c value= 3", 4)]
    source = ListSource([lines], diary=diary)
    sink, kept = ListSink(diary=diary), ListDeadLetterSink(diary=diary)
    play(run(source, sink, dead_letter_sink=kept))
    assert values(sink.written) == [1, 2]
    assert kept.letters == expected
    ends = [what for what, _ in diary if what in ("written", "dead", "ack")]
    assert ends == ["written", "dead", "ack"]


def test_a_payload_of_nothing_but_bad_lines_is_acknowledged() -> None:
    """There is nothing to write, and no reason to get it again."""
    source, sink, kept = ListSource([decode(b"broken\n")]), ListSink(), ListDeadLetterSink()
    play(run(source, sink, dead_letter_sink=kept))
    assert [letter.original for letter in kept.letters] == [b"broken"]
    assert source.acked == [0]
    assert sink.tries == []


def test_translators_do_not_lose_the_bad_lines() -> None:
    """A translator hands on other records: what could not be read before it is a dead letter."""

    def nothing(_: Lines) -> Lines:
        return Lines()

    kept = ListDeadLetterSink()
    source = ListSource([decode(b"a value=1 1\nbroken\n")])
    play(run(source, ListSink(), translators=[nothing], dead_letter_sink=kept))
    assert [letter.original for letter in kept.letters] == [b"broken"]


def test_a_dead_letter_sink_that_is_away_holds_up_the_acknowledgement() -> None:
    """It is tried until it works; letters are written once, and then the batch is acknowledged."""
    diary: Diary = []
    telemetry = Telemetry()
    source = ListSource([decode(b"a value=1 1\nbroken\n")], diary=diary)
    kept = ListDeadLetterSink(Failing(UnavailableError("full"), 5), diary=diary)
    play(run(source, ListSink(), dead_letter_sink=kept, telemetry=telemetry))
    assert [what for what, _ in diary if what in ("dead", "ack")] == ["dead", "ack"]
    assert telemetry.total(telemetry.retries) == 5
    assert telemetry.total(telemetry.dead) == 1


def test_a_letter_that_the_sink_refuses_does_not_end_the_pipe(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The others are written; that one is at least named in the log."""

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


def test_without_a_dead_letter_sink_letters_are_logged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log is not flooded: ten of them are shown, the rest is a number."""
    telemetry = Telemetry()
    source = ListSource([decode(b"broken\n" * 1000)])
    play(run(source, ListSink(), telemetry=telemetry))
    assert telemetry.total(telemetry.dead) == 1000
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 11
    assert texts[0].startswith("dead letter from batch 0 line 1, ")
    assert "990 more" in texts[-1]


def test_refusals_are_logged_together_too(caplog: pytest.LogCaptureFixture) -> None:
    """A store that refuses everything, record by record, does not flood the log either."""
    kept = ListDeadLetterSink()
    source = ListSource([made(*range(500))])
    play(run(source, ListSink(Picky(set(range(500)))), dead_letter_sink=kept))
    assert len(kept.letters) == 500
    assert len(caplog.records) == 11


def test_a_refused_write_is_not_tried_again_as_it_was() -> None:
    """Rejection is for good: no pause, no second try of the same records."""
    sink = ListSink(Picky({0}))

    async def main() -> float:
        await run(ListSource([made(0)]), sink)
        return clock()

    assert play(main()) == 0
    assert len(sink.tries) == 1


def test_a_payload_of_bad_lines_makes_a_bounded_number_of_letters() -> None:
    """Nothing of it is lost: the last letter holds the lines that have none of their own."""
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


def test_letters_are_written_some_at_a_time() -> None:
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
