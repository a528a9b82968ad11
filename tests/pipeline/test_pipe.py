"""``run()`` while all goes well: order, batching, acknowledgement, translators, counting."""

import asyncio
import math
from collections.abc import Sequence
from typing import Self

import pytest

from ccpipe.errors import RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, decode
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.message import Message
from ccpipe.pipeline import Limits, Sink, Translator, run
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


def test_everything_arrives_in_order_in_one_write_at_the_end() -> None:
    """What is smaller than a batch is written when the source ends, without waiting for age."""
    source, sink = ListSource([made(1, 2), made(3), made(4, 5)]), ListSink()
    play(run(source, sink, limits=Limits(age=math.inf)))
    assert values(sink.written) == [1, 2, 3, 4, 5]
    assert sink.sizes == [5]
    assert source.acked == [0, 1, 2]


def test_writes_are_no_larger_than_the_limit() -> None:
    """Batches are gathered up to the limit on lines, and never cut."""
    source, sink = ListSource([made(n, n) for n in range(5)]), ListSink()
    play(run(source, sink, limits=Limits(lines=5)))
    assert sink.sizes == [4, 4, 2]


def test_a_slow_source_is_written_by_age() -> None:
    """Sequence[Message] are written when the oldest of them is as old as the limit."""
    source = ListSource([made(1), made(2), made(3)], delays=[0, 7, 7])
    sink = ListSink()
    play(run(source, sink, limits=Limits(age=10)))
    assert sink.tries == [10, 14]
    assert sink.sizes == [2, 1]


def test_columns_reach_the_sink_as_columns() -> None:
    """Payloads that were decoded are written as Lines, however many make one write."""
    kinds: list[type] = []
    source = ListSource([decode(b"a value=1 1\n"), decode(b"b value=2 2\n")])
    play(run(source, ListSink(lambda records: kinds.append(type(records)))))
    assert kinds == [Lines]


def test_nothing_is_acknowledged_before_its_write_returned() -> None:
    """Acknowledgements come once for each batch, after the write that holds it, in order."""
    diary: Diary = []
    source = ListSource([made(1), made(2), made(3), made(4)], diary=diary)
    sink = ListSink(Failing(UnavailableError("away"), 3), seconds=1, diary=diary)
    play(run(source, sink, limits=Limits(lines=2)))
    events = [(what, about) for what, about in diary if what in ("written", "ack")]
    assert events == [
        ("written", [1, 2]),
        ("ack", 0),
        ("ack", 1),
        ("written", [3, 4]),
        ("ack", 2),
        ("ack", 3),
    ]


def test_a_source_without_end_is_not_read_beyond_memory() -> None:
    """While the sink is stuck, what is held stays bounded; when it goes on, so does reading."""

    async def main() -> None:
        telemetry, go, stop = Telemetry(), asyncio.Event(), asyncio.Event()

        class Stuck(ListSink):
            async def write(self, records: Sequence[Message]) -> None:
                await go.wait()
                await super().write(records)

        source = ListSource(made(n) for n in range(10**9))
        sink = Stuck()
        limits = Limits(lines=4, memory=16 * 1024, timeout=0.0)  # one try, so no pause to wait for
        piping = asyncio.create_task(
            run(source, sink, limits=limits, telemetry=telemetry, stop=stop)
        )
        await asyncio.sleep(3600)
        assert source.handed == 16 + 1  # one in the reader's hand
        assert telemetry.registry.get_sample_value("ccpipe_queued_bytes") == 16 * 1024
        go.set()
        while source.handed < 1000:
            await asyncio.sleep(0)  # a timer would never come: virtual time stands while others run
        stop.set()
        await piping
        assert values(sink.written) == list(range(source.handed))
        assert source.acked == list(range(source.handed))

    play(main())


def test_a_source_that_never_waits_does_not_starve_the_writer() -> None:
    """A full batch is written before more is read, though the source never gives way."""
    handed: list[int] = []
    source = ListSource(made(n) for n in range(100))
    sink = ListSink(lambda _: handed.append(source.handed))
    play(run(source, sink, limits=Limits(lines=10)))
    assert handed[0] <= 10 + 1


def test_batches_without_records_are_acknowledged_and_not_written() -> None:
    """An empty payload needs no write."""
    source, sink = ListSource([[], Lines()]), ListSink()
    play(run(source, sink))
    assert source.acked == [0, 1]
    assert sink.tries == []


class Double(Translator):
    """Hands on every record twice."""

    takes = gives = Messages

    def feed(self, records: Sequence[Message]) -> Sequence[Message]:
        """See ``Translator.feed``."""
        return [record for record in records for _ in range(2)]

    def flush(self) -> Sequence[Message]:
        """See ``Translator.flush``."""
        return []


class Hold(Translator):
    """Holds what it gets until `window` records are there, then hands them on together."""

    takes = gives = Messages

    def __init__(self, window: int) -> None:
        self.window = window
        self.held: list[Message] = []

    def feed(self, records: Sequence[Message]) -> Sequence[Message]:
        """See ``Translator.feed``."""
        self.held += records
        return self.flush() if len(self.held) >= self.window else []

    def flush(self) -> Sequence[Message]:
        """See ``Translator.flush``."""
        ready, self.held = self.held, []
        return ready


class Drop(Translator):
    """Hands on nothing."""

    takes = gives = Messages

    def feed(self, records: Sequence[Message]) -> Sequence[Message]:
        """See ``Translator.feed``."""
        return []

    def flush(self) -> Sequence[Message]:
        """See ``Translator.flush``."""
        return []


@pytest.mark.parametrize(
    ("translators", "expected"),
    [
        ([Double(), Double()], [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]),
        ([Hold(2), Double()], [1, 1, 2, 2, 3, 3]),
        ([Double(), Hold(100)], [1, 1, 2, 2, 3, 3]),
        ([Hold(100), Double(), Hold(100), Double()], [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]),
        ([Double(), Drop()], []),
    ],
)
def test_translators_chain_and_flush(
    translators: Sequence[Translator], expected: list[int]
) -> None:
    """Each gets what the one before hands on, at the end too; what is dropped is acknowledged."""
    source, sink = ListSource([made(1), made(2), made(3)]), ListSink()
    play(run(source, sink, translators=translators))
    assert values(sink.written) == expected
    assert source.acked == [0, 1, 2]


class Plain(Sink):
    """A sink that is nothing but ``write``."""

    takes = Messages

    async def write(self, records: Sequence[Message]) -> None:
        """See ``Sink.write``."""


def test_parts_are_entered_downstream_first_and_left_upstream_first() -> None:
    """A source finds its sink ready, and both find the sink of dead letters ready."""
    diary: Diary = []
    source = ListSource([made(1)], diary=diary)
    play(run(source, ListSink(diary=diary), dead_letter_sink=ListDeadLetterSink(diary=diary)))
    assert diary == [
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


def test_a_part_need_not_be_a_context_manager() -> None:
    """Three lines make a sink."""
    source = ListSource([made(1)])
    play(run(source, Plain()))
    assert source.acked == [0]


def test_the_counters_say_what_happened() -> None:
    """Read, written, writes, tries again and dead letters, each with the part it belongs to."""
    telemetry = Telemetry()
    source = ListSource([decode(b"a value=1 1\nbroken\n"), made(2, 3), made(4)])
    sink = ListSink(Failing(UnavailableError("away"), 2), seconds=10)
    play(run(source, sink, limits=Limits(lines=3, age=1), telemetry=telemetry))

    def count(name: str, part: str) -> float | None:
        return telemetry.registry.get_sample_value(f"ccpipe_{name}_total", {"part": part})

    assert count("read_records", "ListSource") == 4
    assert count("written_records", "ListSink") == 4
    assert count("written_batches", "ListSink") == 2
    assert count("retries", "ListSink") == 2
    assert count("dead_letters", "ListSource") == 1
    assert telemetry.registry.get_sample_value("ccpipe_queued_bytes") == 0


def test_ready_means_running_and_writing() -> None:
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

        def away_until_eight(_: Sequence[Message]) -> None:
            if clock() < 8:
                raise UnavailableError("away")

        watching = asyncio.create_task(watch())
        source = Slow([made(1), made(2)], delays=[2, 10])
        sink = ListSink(away_until_eight)
        await run(source, sink, limits=Limits(age=0, backoff=0.4), telemetry=telemetry)
        watching.cancel()
        await asyncio.wait({watching})
        assert ready == [2.5, 3.5, 8.5, 9.5, 10.5, 11.5, 12.5, 13.5]
        assert not telemetry.ready

    play(main())


def test_a_refusal_is_an_answer() -> None:
    """A sink that was away and then refuses a record for good is there: the pipe is ready."""
    telemetry = Telemetry()
    answers = iter([UnavailableError("away"), RejectedError("too old")])
    was_ready: list[bool] = []

    def answer(records: Sequence[Message]) -> None:
        was_ready.append(telemetry.ready)
        if error := next(answers, None):
            raise error

    source = ListSource([made(1), made(2)], delays=[0, 60])
    play(run(source, ListSink(answer), telemetry=telemetry))
    assert was_ready == [True, False, True]


class Counting(Translator):
    """A translator whose result depends on what came before."""

    takes = gives = Messages
    is_stateful = True

    def feed(self, records: Sequence[Message]) -> Sequence[Message]:
        """Pass them on."""
        return records


@pytest.mark.parametrize(
    ("is_stateful", "is_per_node", "shares_by_node", "expected"),
    [
        (False, False, False, (False, False)),
        (True, False, False, (True, True)),
        (True, True, False, (True, True)),
        (True, False, True, (True, True)),
        (True, True, True, (False, True)),  # each process has all of a node, and keeps it
    ],
)
def test_a_stateful_translator_does_not_share_its_work(
    *, is_stateful: bool, is_per_node: bool, shares_by_node: bool, expected: tuple[bool, bool]
) -> None:
    """Unless it needs no more than its nodes' records and the source gives it all of these."""
    source, translator = ListSource([made(1)]), Counting()
    translator.is_stateful, translator.is_per_node = is_stateful, is_per_node
    source.shares_by_node = shares_by_node
    play(run(source, ListSink(), translators=[translator]))
    assert (source.exclusive, source.keeps_nodes) == expected
