"""``run()`` where source, sink or the sink of dead letters fail, or where it is told to stop."""

import asyncio
import itertools
import math
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NoReturn

import pytest

from ccpipe.errors import DataError, DeniedError, RejectedError, TimedOutError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, decode
from ccpipe.message import Message
from ccpipe.pipeline import Batch, HoldingTranslator, Limits, run
from ccpipe.telemetry import Telemetry
from tests.pipeline.parts import (
    Delay,
    Diary,
    Failing,
    ListDeadLetterSink,
    ListSink,
    ListSource,
    clock,
    made,
    play,
    run_until,
    values,
    virtual,
)

AWAY = UnavailableError("away")


def test_an_unavailable_sink_is_tried_until_it_works() -> None:
    """However long it takes; pauses grow up to the back-off, and no two nodes pause alike."""
    source, sink = ListSource([made(1), made(2)]), ListSink(Failing(AWAY, 1000))
    play(run(source, sink, limits=Limits(backoff=30)))
    assert values(sink.written) == [1, 2]
    assert source.acked == [0, 1]
    pauses = [b - a for a, b in itertools.pairwise(sink.tries)]
    for attempt, pause in enumerate(pauses[:9]):
        assert 0 <= pause <= 0.1 * 2**attempt
    assert 1 < max(pauses[9:]) <= 30
    assert len(set(pauses[9:])) > 900


def test_a_pipe_that_is_told_to_stop_writes_what_is_in_hand() -> None:
    """The source is asked to end; what it has handed over is written, as long as writes succeed."""
    source = ListSource([made(n) for n in range(5)], stay=True)
    sink = ListSink(seconds=1.9)
    play(run_until(1, source, sink, limits=Limits(lines=1, grace=3)))
    assert values(sink.written) == [0, 1, 2, 3, 4]
    assert source.acked == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("has_upstream", [True, False])
@virtual
async def test_told_to_stop_a_write_that_hangs_is_given_up(has_upstream: bool) -> None:
    """After the grace: an upstream hands it over again, else it is kept as dead letters."""
    source = ListSource([made(1)], stay=True, upstream=has_upstream)
    sink, kept = ListSink(seconds=10**6), ListDeadLetterSink()
    limits = Limits(age=0, grace=3, timeout=60)
    with pytest.raises(UnavailableError, match="timed out"):
        await run_until(1, source, sink, limits=limits, dead_letter_sink=kept)
    assert clock() <= 10
    assert (kept.numbers, source.acked) == ([] if has_upstream else [1], [])


def test_a_write_that_cannot_be_given_up_is_waited_for() -> None:
    """A timeout of 0 is that of a disk in a thread."""
    source, sink = ListSource([made(1)], stay=True), ListSink(seconds=1000)
    play(run_until(1, source, sink, limits=Limits(age=0, timeout=0)))
    assert (values(sink.written), source.acked) == ([1], [0])


class SlowSink(ListSink):
    """Takes a second for each record."""

    async def write(self, records: Sequence[Message]) -> None:
        self.seconds = len(records)
        await super().write(records)


def test_what_takes_too_long_is_tried_with_half() -> None:
    """So a slow store advances; nothing is written twice, order stays, all is acknowledged.

    The second time in a row the limit is doubled too.
    """
    batches = [made(*range(start, start + 10)) for start in range(0, 100, 10)]
    sink = SlowSink()
    source = ListSource(batches)
    play(run(source, sink, limits=Limits(timeout=13, lines=100)))
    assert values(sink.written) == list(range(100))
    assert source.acked == list(range(10))
    assert max(sink.sizes) >= 25
    assert len(sink.tries) < 25  # it does not begin with everything again and again


def test_batches_are_acknowledged_as_they_are_written() -> None:
    """Not only when the last of those that were joined is."""
    diary: Diary = []
    batches = [made(*range(start, start + 10)) for start in range(0, 40, 10)]
    source, sink = ListSource(batches, diary=diary), SlowSink(diary=diary)
    play(run(source, sink, limits=Limits(timeout=15, lines=40)))
    events = [what for what, _ in diary if what in ("ack", "written")]
    assert events.index("ack") < len(events) - events[::-1].index("written") - 1


def test_a_single_record_that_takes_too_long_is_tried_until_it_works() -> None:
    """There is nothing left to halve."""
    sink = ListSink(Failing(TimedOutError("slow"), 5))
    source = ListSource([made(1)])
    play(run(source, sink))
    assert (values(sink.written), source.acked, len(sink.tries)) == ([1], [0], 6)


def test_after_a_slow_time_writes_grow_again() -> None:
    """The bound doubles with each write that succeeds at it."""
    sink = ListSink(Failing(TimedOutError("slow"), 3))
    source = ListSource([made(*range(n * 64, n * 64 + 64)) for n in range(10)])
    play(run(source, sink, limits=Limits(lines=64, age=0)))
    assert sink.sizes[0] == 8
    assert sink.sizes[-1] == 64
    assert len(sink.written) == 640


@virtual
async def test_a_pipe_may_be_told_to_stop_before_it_starts() -> None:
    """Then nothing is read."""
    source, sink, stop = ListSource([made(1)], stay=True), ListSink(), asyncio.Event()
    stop.set()
    await run(source, sink, stop=stop)
    assert source.handed == 0
    assert sink.tries == []


@virtual
async def test_a_sink_that_fails_after_the_stop_is_tried_for_the_grace() -> None:
    """Then the error comes out; a batch with an upstream is neither acknowledged nor a letter."""
    source, kept = ListSource([made(1), made(2)], stay=True), ListDeadLetterSink()
    sink = ListSink(Failing(AWAY, math.inf))
    with pytest.raises(UnavailableError, match="away"):
        await run_until(50, source, sink, dead_letter_sink=kept, limits=Limits(grace=3))
    assert 53 <= clock() <= 53.2
    assert [at for at in sink.tries if at < 50]
    assert [at for at in sink.tries if at > 50]
    assert source.acked == []
    assert kept.letters == []


@virtual
async def test_the_stop_cuts_a_long_pause_short() -> None:
    """A sink that is there again when the pipe is stopped gets everything at once."""

    def away_until_stopped(_: Sequence[Message]) -> None:
        if not source.stopped.is_set():
            raise AWAY

    source, sink = ListSource([made(1)], stay=True), ListSink(away_until_stopped)
    await run_until(1000, source, sink, limits=Limits(backoff=600))
    assert clock() == 1000
    assert source.acked == [0]


@virtual
async def test_the_stop_and_a_failure_at_the_same_moment_leave_the_grace() -> None:
    """A write that fails in the very step in which the pipe is stopped is tried again."""
    stop = asyncio.Event()

    def stop_and_fail(_: Sequence[Message]) -> None:
        if not stop.is_set():
            stop.set()
            raise AWAY

    sink = ListSink(stop_and_fail)
    await run(ListSource([made(1)]), sink, stop=stop)
    assert values(sink.written) == [1]


@virtual
async def test_what_nobody_would_hand_over_again_is_a_dead_letter() -> None:
    """Wherever it is: in the sink's hands, in the queue, before it, in a translator's window."""
    payloads: list[Sequence[Message]] = [made(n) for n in range(20)]
    source = ListSource(payloads, upstream=False, stay=True)
    sink, kept, telemetry = ListSink(Failing(AWAY, math.inf)), ListDeadLetterSink(), Telemetry()
    ways: dict[str, Any] = {"translators": [Delay(1)], "telemetry": telemetry}
    limits = Limits(lines=2, memory=8 * 1024)
    with pytest.raises(UnavailableError):
        await run_until(60, source, sink, dead_letter_sink=kept, limits=limits, **ways)
    assert 8 < source.handed < 20  # the source was held up by then, and asked to end
    assert kept.numbers == list(range(source.handed))
    assert {letter.reason for letter in kept.letters} == {"not delivered: away"}
    assert telemetry.total(telemetry.dead) == source.handed


@pytest.mark.parametrize("upstream", [True, False])
def test_bad_lines_that_nobody_would_hand_over_again_are_dead_letters_too(upstream: bool) -> None:
    """They are kept beside the good ones that were not delivered; otherwise both come again."""
    kept = ListDeadLetterSink()
    source = ListSource([decode(b"a value=1 1\nbroken\n")], upstream=upstream)
    sink = ListSink(Failing(AWAY, math.inf))
    with pytest.raises(UnavailableError):
        play(run_until(60, source, sink, dead_letter_sink=kept))
    expected = [] if upstream else [b"a value=1.0 1", b"broken"]
    assert sorted(letter.original for letter in kept.letters) == expected


@virtual
async def test_what_was_written_before_the_sink_went_away_is_no_dead_letter() -> None:
    """Half of a rejected write is safe when the other half cannot be delivered any more."""

    def answer(records: Sequence[Message]) -> None:
        if 2 in values(records) and len(records) > 1:
            raise RejectedError("refused")
        if 2 in values(records):
            raise AWAY

    source = ListSource([made(0, 1, 2, 3)], upstream=False)
    sink, kept = ListSink(answer), ListDeadLetterSink()
    with pytest.raises(UnavailableError):
        await run_until(60, source, sink, dead_letter_sink=kept)
    assert values(sink.written) == [0, 1]
    assert kept.numbers == [2, 3]


def test_a_dead_letter_sink_that_fails_at_the_end_does_not_hide_why_it_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The sink's error comes out, and the log says how much is lost."""
    source = ListSource([made(1, 2)], upstream=False, stay=True)
    sink = ListSink(Failing(AWAY, math.inf))
    kept = ListDeadLetterSink(Failing(UnavailableError("disk full"), math.inf))
    with pytest.raises(UnavailableError, match="away"):
        play(run_until(60, source, sink, dead_letter_sink=kept))
    assert "2 dead letters are lost: disk full" in caplog.text


@pytest.mark.parametrize("upstream", [True, False])
@pytest.mark.parametrize("error", [DeniedError("wrong password"), ValueError("a bug")])
@virtual
async def test_a_sink_that_cannot_work_at_all_ends_the_pipe(
    error: Exception, upstream: bool
) -> None:
    """At once and with its own error, no group of them; what has no upstream is kept."""

    def answer(_: Sequence[Message]) -> None:
        raise error

    source = ListSource([made(1), made(2)], upstream=upstream, stay=True)
    sink, kept = ListSink(answer), ListDeadLetterSink()
    with pytest.raises(type(error), match=str(error)):
        await run(source, sink, dead_letter_sink=kept, limits=Limits(age=1))
    assert clock() == 1
    assert len(sink.tries) == 1
    assert source.acked == []
    assert kept.numbers == ([] if upstream else [1, 2])


@virtual
async def test_a_source_that_does_not_end_when_it_is_asked_is_left_after_the_grace() -> None:
    """A sink that fails for good ends the pipe even so; what comes until then is kept."""

    class Deaf(ListSource):
        def stop(self) -> None:
            pass

    source = Deaf([made(1), made(2)], upstream=False, stay=True, delays=[0, 62])
    sink, kept = ListSink(Failing(DeniedError("no"), 1)), ListDeadLetterSink()
    with pytest.raises(DeniedError):
        await run(source, sink, dead_letter_sink=kept, limits=Limits(age=60, grace=3))
    assert clock() == 60 + 3
    assert kept.numbers == [1, 2]


@pytest.mark.parametrize("error", [DataError("no Parquet file"), AWAY, ValueError("a bug")])
def test_a_source_that_fails_ends_the_pipe_after_what_it_handed_over(error: Exception) -> None:
    """Its own error comes out, no group; what it had read is written and acknowledged first."""
    source, sink = ListSource([made(1), made(2)], fails=error), ListSink()
    with pytest.raises(type(error), match=str(error)):
        play(run(source, sink))
    assert values(sink.written) == [1, 2]
    assert source.acked == [0, 1]


@virtual
async def test_a_source_and_a_sink_that_both_fail_end_the_pipe_in_the_grace() -> None:
    """A dead source does not leave the pipe trying a dead sink forever."""
    source = ListSource([made(1)], upstream=False, fails=DataError("no Parquet file"))
    sink, kept = ListSink(Failing(AWAY, math.inf)), ListDeadLetterSink()
    with pytest.raises(UnavailableError, match="away"):
        await run(source, sink, dead_letter_sink=kept, limits=Limits(grace=3))
    assert 3 <= clock() <= 3.2
    assert kept.numbers == [1]


class Broken(HoldingTranslator[Lines, Lines]):
    """A translator with a bug, in ``feed`` or in ``flush``."""

    takes = gives = Lines

    def __init__(self, where: str) -> None:
        self.where = where

    def feed(self, records: Lines) -> Lines:
        return records if self.where == "flush" else self.fail()

    def oldest_held(self) -> int | None:
        return None

    def flush(self) -> Lines:
        return Lines() if self.where == "feed" else self.fail()

    def fail(self) -> NoReturn:
        raise ZeroDivisionError(self.where)


@pytest.mark.parametrize("where", ["feed", "flush", "both"])
def test_a_translator_with_a_bug_ends_the_pipe(where: str) -> None:
    """The bug comes out, and what it broke is not acknowledged."""
    source, sink = ListSource([made(1)], stay=where == "feed"), ListSink()
    with pytest.raises(ZeroDivisionError):
        play(run(source, sink, translators=[Broken(where)]))
    assert source.acked == ([0] if where == "flush" else [])


def test_an_acknowledgement_that_does_not_get_through_costs_nothing_but_a_repetition() -> None:
    """The records are safe; upstream will hand them over again. The pipe goes on."""

    class Forgetful(ListSource):
        def batch(self, number: int, records: Sequence[Message]) -> Batch[Any]:
            whole = super().batch(number, records)

            async def ack() -> None:
                if number == 0:
                    raise UnavailableError("the bus is away")
                assert whole.ack
                await whole.ack()

            return Batch(records, ack)

    source, sink = Forgetful([made(1), made(2)]), ListSink()
    play(run(source, sink))
    assert values(sink.written) == [1, 2]
    assert source.acked == [1]


@pytest.mark.parametrize("seconds", [0, 0.5, 1, 1.5, 2, 30, 3600])
@virtual
async def test_cancelling_leaves_nothing_behind(seconds: float) -> None:
    """Wherever the pipe is, it ends at once; the source is closed before its parts are left."""
    diary: Diary = []
    source = ListSource([made(n) for n in range(100)], delays=[1] * 2, diary=diary)
    sink = ListSink(Failing(AWAY, 5), seconds=1, diary=diary)
    kept, limits = ListDeadLetterSink(diary=diary), Limits(lines=2, memory=8 * 1024)
    piping = asyncio.create_task(run(source, sink, dead_letter_sink=kept, limits=limits))
    await asyncio.wait({piping}, timeout=seconds)
    done = piping.done()
    piping.cancel()
    await asyncio.wait({piping})
    assert piping.cancelled() is not done
    assert clock() <= seconds
    entered = [name for what, name in diary if what == "enter"]
    ends = [(what, name) for what, name in diary if what in ("closed", "leave")]
    assert ends[-len(entered) :] == [("leave", name) for name in reversed(entered)]
    if seconds:
        assert entered == ["ListDeadLetterSink", "ListSink", "ListSource"]
        assert ends[: -len(entered)] == [("closed", "ListSource")]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("ListDeadLetterSink", []),
        ("ListSink", ["ListDeadLetterSink"]),
        ("ListSource", ["ListSink", "ListDeadLetterSink"]),
    ],
)
def test_a_part_that_cannot_start_ends_the_pipe(part: str, expected: list[str]) -> None:
    """Its error comes out before anything is read; those that were entered are left again."""
    diary: Diary = []

    def failing(cls: Callable[..., Any], *given: Any) -> Any:
        class Fails(cls):  # type: ignore[valid-type,misc]
            async def __aenter__(self) -> object:
                raise DeniedError("wrong password")

        made_of = Fails if cls.__name__ == part else cls
        return made_of(*given, diary=diary)

    source = failing(ListSource, [made(1)])
    with pytest.raises(DeniedError):
        play(run(source, failing(ListSink), dead_letter_sink=failing(ListDeadLetterSink)))
    assert [name for what, name in diary if what == "leave"] == expected
    assert source.handed == 0


def test_parts_are_left_after_an_error_too() -> None:
    """In the same order as always, with nothing still running."""
    diary: Diary = []
    source = ListSource([made(1)], fails=DataError("bad"), diary=diary)
    with pytest.raises(DataError):
        play(run(source, ListSink(diary=diary), dead_letter_sink=ListDeadLetterSink(diary=diary)))
    left = [name for what, name in diary if what == "leave"]
    assert left == ["ListSource", "ListSink", "ListDeadLetterSink"]


async def test_it_is_the_same_on_a_real_clock() -> None:
    """Nothing of the above depends on the clock of these tests."""

    class Counting(ListSource):
        async def batches(self) -> AsyncIterator[Batch[Any]]:
            number = 0
            while not self.stopped.is_set():
                await asyncio.sleep(0.001)
                yield self.batch(number, made(number))
                number += 1

    stop = asyncio.Event()
    source = Counting([])
    sink = ListSink(Failing(AWAY, 3))
    piping = asyncio.create_task(run(source, sink, limits=Limits(age=0.01), stop=stop))
    while len(sink.written) < 20:
        await asyncio.sleep(0.005)
    stop.set()
    await piping
    assert values(sink.written) == list(range(len(source.acked)))
