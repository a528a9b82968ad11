"""``run()`` where all goes well, and under any mixture of what may go wrong."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import CcpipeError, DataError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, decode, to_lines
from ccpipe.message import Message
from ccpipe.pipeline import Batch, Limits, Scope, SharedSource, Translator, run
from ccpipe.pipeline.stages import Item
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
    values,
    virtual,
)


def test_pipe_writes_everything_in_order_at_end_of_source() -> None:
    """A partial batch is written when the source ends, without waiting for its age."""
    source, sink = ListSource([made(1, 2), made(3), made(4, 5)]), ListSink()
    play(run(source, sink, limits=Limits(max_wait=math.inf)))
    assert values(sink.written) == [1, 2, 3, 4, 5]
    assert sink.sizes == [5]
    assert source.acked == [0, 1, 2]


def test_writes_are_no_larger_than_limit() -> None:
    """Batches are gathered up to the limit on lines, and never cut."""
    source, sink = ListSource([made(n, n) for n in range(5)]), ListSink()
    play(run(source, sink, limits=Limits(max_records=5)))
    assert sink.sizes == [4, 4, 2]


def test_pipe_writes_records_of_slow_source_by_age() -> None:
    """Records are written when the oldest of them reaches the age limit."""
    source = ListSource([made(1), made(2), made(3)], delays=[0, 7, 7])
    sink = ListSink()
    play(run(source, sink, limits=Limits(max_wait=10)))
    assert sink.tries == [10, 14]
    assert sink.sizes == [2, 1]


def test_pipe_acknowledges_batches_after_their_write() -> None:
    """Acknowledgements follow once for each batch, after the write that contains it, in order."""
    event_log: EventLog = []
    source = ListSource([made(1), made(2), made(3), made(4)], event_log=event_log)
    sink = ListSink(Failing(UnavailableError("unavailable"), 3), seconds=1, event_log=event_log)
    play(run(source, sink, limits=Limits(max_records=2)))
    events = [(what, about) for what, about in event_log if what in ("written", "ack")]
    assert events == [
        ("written", [1, 2]),
        ("ack", 0),
        ("ack", 1),
        ("written", [3, 4]),
        ("ack", 2),
        ("ack", 3),
    ]


@virtual
async def test_pipe_reads_endless_source_within_memory_limit() -> None:
    """While the sink is stuck, memory is bounded; when it continues, so does reading."""
    telemetry, go, stop = Telemetry(), asyncio.Event(), asyncio.Event()

    class Stuck(ListSink):
        async def write(self, records: Sequence[Message]) -> None:
            await go.wait()
            await super().write(records)

    source = ListSource(made(n) for n in range(10**9))
    sink = Stuck()
    limits = Limits(
        max_records=4, max_memory=16 * 1024, write_timeout=0.0
    )  # one try, so no pause to wait for
    piping = asyncio.create_task(run(source, sink, limits=limits, telemetry=telemetry, stop=stop))
    await asyncio.sleep(3600)
    one = Item(made(10)).size
    assert (source.handed - 3) * one < 16 * 1024  # one in the reader's hand
    queued = telemetry.registry.get_sample_value("ccpipe_queued_bytes")
    assert queued is not None
    assert 16 * 1024 <= queued < 16 * 1024 + one
    go.set()
    while source.handed < 1000:
        await asyncio.sleep(0)  # a timer would never fire: virtual time stops while others run
    stop.set()
    await piping
    assert values(sink.written) == list(range(source.handed))
    assert source.acked == list(range(source.handed))


def test_pipe_writes_although_source_never_waits() -> None:
    """A full batch is written before more is read, though the source never yields control."""
    handed: list[int] = []
    source = ListSource(made(n) for n in range(100))
    sink = ListSink(lambda _: handed.append(source.handed))
    play(run(source, sink, limits=Limits(max_records=10)))
    assert handed[0] <= 10 + 1


def test_batches_without_records_are_acknowledged_and_not_written() -> None:
    """An empty payload needs no write."""
    source, sink = ListSource([Lines(), Lines()]), ListSink()
    play(run(source, sink))
    assert source.acked == [0, 1]
    assert sink.tries == []


def double(records: Lines) -> Lines:
    return to_lines(record for record in records for _ in range(2))


def drop(_: Lines) -> Lines:
    return Lines()


@pytest.mark.parametrize(
    ("translators", "expected"),
    [
        ([double, double], [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]),
        ([Delay(1), double], [1, 1, 2, 2, 3, 3]),
        ([double, Delay(100)], [1, 1, 2, 2, 3, 3]),
        ([Delay(100), double, Delay(100), double], [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]),
        ([double, drop], []),
    ],
)
def test_translators_chain_and_flush(translators: Sequence[Any], expected: list[int]) -> None:
    """Each gets the output of the previous one, also at the end; dropped ones are acknowledged."""
    source, sink = ListSource([made(1), made(2), made(3)]), ListSink()
    play(run(source, sink, translators=translators))
    assert values(sink.written) == expected
    assert source.acked == [0, 1, 2]


def test_parts_are_entered_downstream_first_and_left_upstream_first() -> None:
    """A source finds its sink ready, and both find the dead-letter sink ready."""
    event_log: EventLog = []
    source = ListSource([made(1)], event_log=event_log)
    play(
        run(
            source,
            ListSink(event_log=event_log),
            dead_letter_sink=ListDeadLetterSink(event_log=event_log),
        )
    )
    assert event_log == [
        ("enter", "ListDeadLetterSink"),
        ("enter", "ListSink"),
        ("enter", "ListSource"),
        ("closed", "ListSource"),
        ("try", [1]),
        ("written", [1]),
        ("ack", 0),
        ("leave", "ListSource"),
        ("leave", "ListSink"),
        ("leave", "ListDeadLetterSink"),
    ]


def test_counters_report_reads_writes_retries_and_dead_letters() -> None:
    """Each with its part."""
    telemetry = Telemetry()
    source = ListSource([decode(b"a value=1 1\nbroken\n"), made(2, 3), made(4)])
    sink = ListSink(Failing(UnavailableError("unavailable"), 2), seconds=10)
    play(run(source, sink, limits=Limits(max_records=3, max_wait=1), telemetry=telemetry))

    def count(name: str, part: str) -> float | None:
        return telemetry.registry.get_sample_value(f"ccpipe_{name}_total", {"component": part})

    assert count("read_records", "ListSource") == 4
    assert count("written_records", "ListSink") == 4
    assert count("written_batches", "ListSink") == 2
    assert count("write_seconds", "ListSink") == pytest.approx(20)
    assert count("retries", "ListSink") == 2
    assert count("dead_letters", "ListSource") == 1
    assert telemetry.registry.get_sample_value("ccpipe_queued_bytes") == 0


def test_pipe_is_ready_while_running_and_writing() -> None:
    """Ready once the parts are entered, not while writes fail, and not after the end."""

    async def main() -> None:
        telemetry = Telemetry()
        ready: list[float] = []

        async def watch() -> None:
            await asyncio.sleep(0.5)
            while True:
                ready.extend([clock()] * telemetry.ready)
                await asyncio.sleep(1)

        class Slow(ListSource):
            async def __aenter__(self) -> Self:
                await asyncio.sleep(2)
                return self

        def unavailable_until_eight(_: Sequence[Message]) -> None:
            if clock() < 8:
                raise UnavailableError("unavailable")

        watching = asyncio.create_task(watch())
        source = Slow([made(1), made(2)], delays=[2, 10])
        sink = ListSink(unavailable_until_eight)
        await run(source, sink, limits=Limits(max_wait=0, max_backoff=0.4), telemetry=telemetry)
        watching.cancel()
        await asyncio.wait({watching})
        assert ready == [2.5, 3.5, 8.5, 9.5, 10.5, 11.5, 12.5, 13.5]
        assert not telemetry.ready

    play(main())


def test_pipe_is_ready_after_rejection() -> None:
    """A sink that was unavailable and then rejects a record is available."""
    telemetry = Telemetry()
    answers = iter([UnavailableError("unavailable"), RejectedError("too old")])
    was_ready: list[bool] = []

    def answer(records: Sequence[Message]) -> None:
        was_ready.append(telemetry.ready)
        if error := next(answers, None):
            raise error

    source = ListSource([made(1), made(2)], delays=[0, 60])
    play(run(source, ListSink(answer), telemetry=telemetry))
    assert was_ready == [True, False, True]


class Scoped(Translator[Lines, Lines]):
    """A translator whose result depends on earlier records."""

    takes = gives = Lines

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def feed(self, records: Lines) -> Lines:
        return records


class Shared(ListSource, SharedSource[Lines]):
    """Notes what a process must see all records of."""

    scope = Scope.RECORD

    def batches(self, scope: Scope = Scope.RECORD) -> AsyncIterator[Batch[Any]]:
        self.scope = scope
        return super().batches()


@pytest.mark.parametrize("scopes", [[], [0], [0, 1], [1, 2], [2, 0, 1]])
def test_source_is_opened_with_largest_scope_of_translators(scopes: list[int]) -> None:
    """It then shares the work by node, or not at all."""
    source = Shared([made(1)])
    translators = [Scoped(Scope(scope)) for scope in scopes]
    play(run(source, ListSink(), translators=translators))
    assert source.scope == max(scopes, default=0)


def test_source_can_be_used_again() -> None:
    """A pipe leaves nothing in its parts."""
    source = Shared([made(1)])
    play(run(source, ListSink(), translators=[Scoped(Scope.CLUSTER)]))
    sink = ListSink()
    play(run(source, sink))
    assert (source.scope, values(sink.written)) == (Scope.RECORD, [1])


def test_part_that_returns_undeclared_type_ends_pipe() -> None:
    """The error names it, what it returned and what was expected."""
    source = ListSource([made(1)])
    with pytest.raises(TypeError, match="list returned list; expected Lines"):
        play(run(source, ListSink(), translators=[cast("Any", list)]))
    assert source.acked == []


UNAVAILABLE = UnavailableError("unavailable")


class UnreliableSink(ListSink):
    """Responds to each write by a list: takes a while, is unavailable, rejects odd numbers."""

    def __init__(self, outcomes: Sequence[str], ever_after: str) -> None:
        super().__init__()
        self.outcomes = iter(outcomes)
        self.ever_after = ever_after

    async def write(self, records: Sequence[Message]) -> None:
        outcome = next(self.outcomes, self.ever_after)
        await asyncio.sleep({"slow": 1, "unavailable slowly": 1}.get(outcome, 0))
        if outcome.startswith("unavailable"):
            raise UNAVAILABLE
        if outcome == "rejects" and any(value % 2 for value in values(records)):
            raise RejectedError("odd")
        self.written.extend(records)


OUTCOMES = st.sampled_from(["well", "slow", "unavailable", "unavailable slowly", "rejects"])


@given(
    sizes=st.lists(st.integers(0, 3), max_size=12),
    delays=st.lists(st.sampled_from([0, 0, 0.5, 1]), max_size=12),
    outcomes=st.lists(OUTCOMES, max_size=20),
    # A sink that stays unavailable needs a stop to end the pipe, and a working dead-letter sink.
    ever_after=st.sampled_from([("well", 0), ("well", 3), ("unavailable", 0)]),
    seconds=st.sampled_from([0, 0.5, 1, 2, 5]),
    memory=st.sampled_from([1, 2048, 2**20]),
    lines=st.integers(1, 6),
    age=st.sampled_from([0, 0.5, 1]),
    upstream=st.booleans(),
    fails=st.booleans(),
)
def test_pipe_loses_nothing(
    sizes: list[int],
    delays: list[float],
    outcomes: list[str],
    ever_after: tuple[str, int],
    seconds: float,
    memory: int,
    lines: int,
    age: float,
    upstream: bool,
    fails: bool,
) -> None:
    """Whatever fails, whenever it stops: each record is written, a dead letter or redelivered.

    It is never both written and a dead letter, order is kept, and nothing is acknowledged that is
    not safe.
    """
    payloads: list[Sequence[Message]] = [
        made(*range(10 * n, 10 * n + k)) for n, k in enumerate(sizes)
    ]
    error = DataError("broken") if fails else None
    source = ListSource(payloads, upstream=upstream, delays=delays, fails=error)
    outcome, dead = ever_after
    kept = ListDeadLetterSink(
        Failing(UNAVAILABLE, 0 if {"unavailable", "unavailable slowly"} & set(outcomes) else dead)
    )
    sink = UnreliableSink(outcomes, outcome)
    limits = Limits(
        max_records=lines, max_memory=memory, max_wait=age, stop_timeout=2, max_backoff=0.5
    )
    telemetry = Telemetry()

    async def main() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, stop.set)
        with contextlib.suppress(CcpipeError):
            await run(
                source, sink, dead_letter_sink=kept, limits=limits, telemetry=telemetry, stop=stop
            )

    play(main())
    written, to_dead_letter = values(sink.written), kept.numbers
    assert written == sorted(set(written))
    assert len(to_dead_letter) == len(set(to_dead_letter))
    assert not set(written) & set(to_dead_letter)
    safe = set(written) | set(to_dead_letter)
    for number, records in enumerate(payloads[: source.handed]):
        comes_again = upstream and number not in source.acked
        assert comes_again or safe.issuperset(values(records))
    assert source.acked == sorted(set(source.acked))
    assert telemetry.registry.get_sample_value("ccpipe_queued_bytes") == 0 or upstream
