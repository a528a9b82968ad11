"""``run()`` if source, sink or dead-letter sink fail, or if it is stopped."""

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
    EventLog,
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

UNAVAILABLE = UnavailableError("unavailable")


def test_pipe_retries_unavailable_sink_until_it_works() -> None:
    """However long it takes; pauses grow up to the limit, with jitter between nodes."""
    source, sink = ListSource([made(1), made(2)]), ListSink(Failing(UNAVAILABLE, 1000))
    play(run(source, sink, limits=Limits(max_backoff=30)))
    assert values(sink.written) == [1, 2]
    assert source.acked == [0, 1]
    pauses = [b - a for a, b in itertools.pairwise(sink.tries)]
    for attempt, pause in enumerate(pauses[:9]):
        assert 0 <= pause <= 0.1 * 2**attempt
    assert 1 < max(pauses[9:]) <= 30
    assert len(set(pauses[9:])) > 900


def test_stopped_pipe_writes_remaining_batches() -> None:
    """The source is stopped; batches handed over are written, as long as writes succeed."""
    source = ListSource([made(n) for n in range(5)], stay=True)
    sink = ListSink(seconds=1.9)
    play(run_until(1, source, sink, limits=Limits(max_records=1, stop_timeout=3)))
    assert values(sink.written) == [0, 1, 2, 3, 4]
    assert source.acked == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("has_upstream", [True, False])
@virtual
async def test_stopped_pipe_abandons_hanging_write(has_upstream: bool) -> None:
    """After the grace period: upstream redelivers the batch, else it becomes dead letters."""
    source = ListSource([made(1)], stay=True, upstream=has_upstream)
    sink, kept = ListSink(seconds=10**6), ListDeadLetterSink()
    limits = Limits(max_wait=0, stop_timeout=3, write_timeout=60)
    with pytest.raises(UnavailableError, match="timed out"):
        await run_until(1, source, sink, limits=limits, dead_letter_sink=kept)
    assert clock() <= 10
    assert (kept.numbers, source.acked) == ([] if has_upstream else [1], [])


def test_pipe_waits_for_write_that_cannot_be_abandoned() -> None:
    """A timeout of 0 belongs to a disk in a thread."""
    source, sink = ListSource([made(1)], stay=True), ListSink(seconds=1000)
    play(run_until(1, source, sink, limits=Limits(max_wait=0, write_timeout=0)))
    assert (values(sink.written), source.acked) == ([1], [0])


class SlowSink(ListSink):
    """Takes a second for each record."""

    async def write(self, records: Sequence[Message]) -> None:
        self.seconds = len(records)
        await super().write(records)


def test_timed_out_write_is_retried_in_halves() -> None:
    """So a slow store advances; nothing is written twice, order stays, all is acknowledged.

    After a second timeout in a row the limit is doubled too.
    """
    batches = [made(*range(start, start + 10)) for start in range(0, 100, 10)]
    sink = SlowSink()
    source = ListSource(batches)
    play(run(source, sink, limits=Limits(write_timeout=13, max_records=100)))
    assert values(sink.written) == list(range(100))
    assert source.acked == list(range(10))
    assert max(sink.sizes) >= 25
    assert len(sink.tries) < 25  # it does not begin with everything again and again


def test_batches_are_acknowledged_as_they_are_written() -> None:
    """Not only after the last of those joined."""
    event_log: EventLog = []
    batches = [made(*range(start, start + 10)) for start in range(0, 40, 10)]
    source, sink = ListSource(batches, event_log=event_log), SlowSink(event_log=event_log)
    play(run(source, sink, limits=Limits(write_timeout=15, max_records=40)))
    events = [what for what, _ in event_log if what in ("ack", "written")]
    assert events.index("ack") < len(events) - events[::-1].index("written") - 1


def test_timed_out_single_record_is_retried_until_it_works() -> None:
    """It cannot be halved."""
    sink = ListSink(Failing(TimedOutError("slow"), 5))
    source = ListSource([made(1)])
    play(run(source, sink))
    assert (values(sink.written), source.acked, len(sink.tries)) == ([1], [0], 6)


def test_writes_grow_again_after_slow_period() -> None:
    """The bound doubles with each write that succeeds at it."""
    sink = ListSink(Failing(TimedOutError("slow"), 3))
    source = ListSource([made(*range(n * 64, n * 64 + 64)) for n in range(10)])
    play(run(source, sink, limits=Limits(max_records=64, max_wait=0)))
    assert sink.sizes[0] == 8
    assert sink.sizes[-1] == 64
    assert len(sink.written) == 640


@virtual
async def test_pipe_stopped_before_it_starts_reads_nothing() -> None:
    source, sink, stop = ListSource([made(1)], stay=True), ListSink(), asyncio.Event()
    stop.set()
    await run(source, sink, stop=stop)
    assert source.handed == 0
    assert sink.tries == []


@virtual
async def test_failing_sink_is_retried_for_grace_period_after_stop() -> None:
    """Then the error is raised; a batch with an upstream is not acknowledged nor a dead letter."""
    source, kept = ListSource([made(1), made(2)], stay=True), ListDeadLetterSink()
    sink = ListSink(Failing(UNAVAILABLE, math.inf))
    with pytest.raises(UnavailableError, match="unavailable"):
        await run_until(50, source, sink, dead_letter_sink=kept, limits=Limits(stop_timeout=3))
    assert 53 <= clock() <= 53.2
    assert [at for at in sink.tries if at < 50]
    assert [at for at in sink.tries if at > 50]
    assert source.acked == []
    assert kept.letters == []


@virtual
async def test_stop_ends_long_pause() -> None:
    """A sink that is available again when the pipe is stopped gets everything at once."""

    def unavailable_until_stopped(_: Sequence[Message]) -> None:
        if not source.stopped.is_set():
            raise UNAVAILABLE

    source, sink = ListSource([made(1)], stay=True), ListSink(unavailable_until_stopped)
    await run_until(1000, source, sink, limits=Limits(max_backoff=600))
    assert clock() == 1000
    assert source.acked == [0]


@virtual
async def test_grace_period_applies_if_stop_and_failure_coincide() -> None:
    """A write that fails in the very step in which the pipe is stopped is retried."""
    stop = asyncio.Event()

    def stop_and_fail(_: Sequence[Message]) -> None:
        if not stop.is_set():
            stop.set()
            raise UNAVAILABLE

    sink = ListSink(stop_and_fail)
    await run(ListSource([made(1)]), sink, stop=stop)
    assert values(sink.written) == [1]


@virtual
async def test_undelivered_records_without_upstream_are_dead_letters() -> None:
    """Wherever they are: in the sink, in the queue, before it, in a translator's window."""
    payloads: list[Sequence[Message]] = [made(n) for n in range(20)]
    source = ListSource(payloads, upstream=False, stay=True)
    sink, kept, telemetry = (
        ListSink(Failing(UNAVAILABLE, math.inf)),
        ListDeadLetterSink(),
        Telemetry(),
    )
    ways: dict[str, Any] = {"translators": [Delay(1)], "telemetry": telemetry}
    limits = Limits(max_records=2, max_memory=8 * 1024)
    with pytest.raises(UnavailableError):
        await run_until(60, source, sink, dead_letter_sink=kept, limits=limits, **ways)
    assert 8 < source.handed < 20  # the source was blocked by then, and stopped
    assert kept.numbers == list(range(source.handed))
    assert {letter.reason for letter in kept.letters} == {"not delivered: unavailable"}
    assert telemetry.total(telemetry.dead) == source.handed


@pytest.mark.parametrize("upstream", [True, False])
def test_undelivered_bad_lines_without_upstream_are_dead_letters(upstream: bool) -> None:
    """They are kept with the undelivered good ones; with an upstream both are redelivered."""
    kept = ListDeadLetterSink()
    source = ListSource([decode(b"a value=1 1\nbroken\n")], upstream=upstream)
    sink = ListSink(Failing(UNAVAILABLE, math.inf))
    with pytest.raises(UnavailableError):
        play(run_until(60, source, sink, dead_letter_sink=kept))
    expected = [] if upstream else [b"a value=1.0 1", b"broken"]
    assert sorted(letter.original for letter in kept.letters) == expected


@virtual
async def test_records_written_before_sink_failed_are_not_dead_letters() -> None:
    """Half of a rejected write is safe when the other half can no longer be delivered."""

    def answer(records: Sequence[Message]) -> None:
        if 2 in values(records) and len(records) > 1:
            raise RejectedError("refused")
        if 2 in values(records):
            raise UNAVAILABLE

    source = ListSource([made(0, 1, 2, 3)], upstream=False)
    sink, kept = ListSink(answer), ListDeadLetterSink()
    with pytest.raises(UnavailableError):
        await run_until(60, source, sink, dead_letter_sink=kept)
    assert values(sink.written) == [0, 1]
    assert kept.numbers == [2, 3]


def test_failing_dead_letter_sink_does_not_hide_sinks_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The sink's error is raised, and the log shows how much is lost."""
    source = ListSource([made(1, 2)], upstream=False, stay=True)
    sink = ListSink(Failing(UNAVAILABLE, math.inf))
    kept = ListDeadLetterSink(Failing(UnavailableError("disk full"), math.inf))
    with pytest.raises(UnavailableError, match="unavailable"):
        play(run_until(60, source, sink, dead_letter_sink=kept))
    assert "2 dead letters are lost: disk full" in caplog.text


@pytest.mark.parametrize("upstream", [True, False])
@pytest.mark.parametrize("error", [DeniedError("wrong password"), ValueError("a bug")])
@virtual
async def test_permanently_failing_sink_ends_pipe(error: Exception, upstream: bool) -> None:
    """At once and with its own error, not a group; records without an upstream are kept."""

    def answer(_: Sequence[Message]) -> None:
        raise error

    source = ListSource([made(1), made(2)], upstream=upstream, stay=True)
    sink, kept = ListSink(answer), ListDeadLetterSink()
    with pytest.raises(type(error), match=str(error)):
        await run(source, sink, dead_letter_sink=kept, limits=Limits(max_wait=1))
    assert clock() == 1
    assert len(sink.tries) == 1
    assert source.acked == []
    assert kept.numbers == ([] if upstream else [1, 2])


@virtual
async def test_source_that_ignores_stop_is_closed_after_grace_period() -> None:
    """A permanently failing sink still ends the pipe; records until then are kept."""

    class Deaf(ListSource):
        def stop(self) -> None:
            pass

    source = Deaf([made(1), made(2)], upstream=False, stay=True, delays=[0, 62])
    sink, kept = ListSink(Failing(DeniedError("no"), 1)), ListDeadLetterSink()
    with pytest.raises(DeniedError):
        await run(source, sink, dead_letter_sink=kept, limits=Limits(max_wait=60, stop_timeout=3))
    assert clock() == 60 + 3
    assert kept.numbers == [1, 2]


@pytest.mark.parametrize("error", [DataError("no Parquet file"), UNAVAILABLE, ValueError("a bug")])
def test_failing_source_ends_pipe_after_its_batches(error: Exception) -> None:
    """Its own error is raised, not a group; its batches are written and acknowledged first."""
    source, sink = ListSource([made(1), made(2)], fails=error), ListSink()
    with pytest.raises(type(error), match=str(error)):
        play(run(source, sink))
    assert values(sink.written) == [1, 2]
    assert source.acked == [0, 1]


@virtual
async def test_failing_source_and_sink_end_pipe_in_grace_period() -> None:
    """With a failed source the pipe does not retry a failed sink forever."""
    source = ListSource([made(1)], upstream=False, fails=DataError("no Parquet file"))
    sink, kept = ListSink(Failing(UNAVAILABLE, math.inf)), ListDeadLetterSink()
    with pytest.raises(UnavailableError, match="unavailable"):
        await run(source, sink, dead_letter_sink=kept, limits=Limits(stop_timeout=3))
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
def test_translator_with_bug_ends_pipe(where: str) -> None:
    """Its exception is raised, and the affected batch is not acknowledged."""
    source, sink = ListSource([made(1)], stay=where == "feed"), ListSink()
    with pytest.raises(ZeroDivisionError):
        play(run(source, sink, translators=[Broken(where)]))
    assert source.acked == ([0] if where == "flush" else [])


def test_failed_acknowledgement_causes_only_redelivery() -> None:
    """The records are safe; upstream will redeliver them. The pipe continues."""

    class Forgetful(ListSource):
        def batch(self, number: int, records: Sequence[Message]) -> Batch[Any]:
            whole = super().batch(number, records)

            async def ack() -> None:
                if number == 0:
                    raise UnavailableError("the bus is unavailable")
                assert whole.ack
                await whole.ack()

            return Batch(records, ack)

    source, sink = Forgetful([made(1), made(2)]), ListSink()
    play(run(source, sink))
    assert values(sink.written) == [1, 2]
    assert source.acked == [1]


@pytest.mark.parametrize("seconds", [0, 0.5, 1, 1.5, 2, 30, 3600])
@virtual
async def test_cancelled_pipe_leaves_nothing_running(seconds: float) -> None:
    """In any state it ends at once; the source is closed before its parts are left."""
    event_log: EventLog = []
    source = ListSource([made(n) for n in range(100)], delays=[1] * 2, event_log=event_log)
    sink = ListSink(Failing(UNAVAILABLE, 5), seconds=1, event_log=event_log)
    kept, limits = (
        ListDeadLetterSink(event_log=event_log),
        Limits(max_records=2, max_memory=8 * 1024),
    )
    piping = asyncio.create_task(run(source, sink, dead_letter_sink=kept, limits=limits))
    await asyncio.wait({piping}, timeout=seconds)
    done = piping.done()
    piping.cancel()
    await asyncio.wait({piping})
    assert piping.cancelled() is not done
    assert clock() <= seconds
    entered = [name for what, name in event_log if what == "enter"]
    ends = [(what, name) for what, name in event_log if what in ("closed", "leave")]
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
def test_part_that_cannot_start_ends_pipe(part: str, expected: list[str]) -> None:
    """Its error is raised before anything is read; parts already entered are left again."""
    event_log: EventLog = []

    def failing(cls: Callable[..., Any], *given: Any) -> Any:
        class Fails(cls):  # type: ignore[valid-type,misc]
            async def __aenter__(self) -> object:
                raise DeniedError("wrong password")

        made_of = Fails if cls.__name__ == part else cls
        return made_of(*given, event_log=event_log)

    source = failing(ListSource, [made(1)])
    with pytest.raises(DeniedError):
        play(run(source, failing(ListSink), dead_letter_sink=failing(ListDeadLetterSink)))
    assert [name for what, name in event_log if what == "leave"] == expected
    assert source.handed == 0


def test_parts_are_left_after_error() -> None:
    """In the usual order, with nothing still running."""
    event_log: EventLog = []
    source = ListSource([made(1)], fails=DataError("bad"), event_log=event_log)
    with pytest.raises(DataError):
        play(
            run(
                source,
                ListSink(event_log=event_log),
                dead_letter_sink=ListDeadLetterSink(event_log=event_log),
            )
        )
    left = [name for what, name in event_log if what == "leave"]
    assert left == ["ListSource", "ListSink", "ListDeadLetterSink"]


async def test_pipe_behaves_same_on_real_clock() -> None:
    """None of the above depends on the virtual clock of these tests."""

    class Counting(ListSource):
        async def batches(self) -> AsyncIterator[Batch[Any]]:
            number = 0
            while not self.stopped.is_set():
                await asyncio.sleep(0.001)
                yield self.batch(number, made(number))
                number += 1

    stop = asyncio.Event()
    source = Counting([])
    sink = ListSink(Failing(UNAVAILABLE, 3))
    piping = asyncio.create_task(run(source, sink, limits=Limits(max_wait=0.01), stop=stop))
    while len(sink.written) < 20:
        await asyncio.sleep(0.005)
    stop.set()
    await piping
    assert values(sink.written) == list(range(len(source.acked)))
