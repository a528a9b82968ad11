"""The threads in which collectors are read."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from ccpipe.message import Message, metric
from ccpipe.node.sampling.thread import SLOW_SECONDS, Collector, CollectorReader, ReaderThreads
from tests.node.fake_sampling import Counting

DEADLINE = 20.0


class Waiting:
    """A collector that waits until it may go on, and then tells in which thread it is."""

    def __init__(self, *, go_on: bool = False) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        if go_on:
            self.go_on.set()

    def collect(self, time: int) -> Iterator[Message]:
        """Wait and tell."""
        self.begun.set()
        assert self.go_on.wait(DEADLINE)
        yield metric("thread", threading.get_ident(), time=time, tags={"type": "node"})


@pytest.fixture
async def threads() -> AsyncIterator[ReaderThreads]:
    """Return threads that end with the test."""
    threads = ReaderThreads(DEADLINE)
    yield threads
    threads.end()


async def one(threads: ReaderThreads, reader: CollectorReader, time: int) -> list[Message]:
    """Return what one collector measures."""
    [answer] = threads.ask([reader], time)
    async with asyncio.timeout(DEADLINE):
        return await answer


async def test_all_that_are_asked_at_once_are_read_in_one_thread(threads: ReaderThreads) -> None:
    """Not in the loop's, again and again, and the answers carry the slot they are of."""
    readers = [CollectorReader(name, Waiting(go_on=True)) for name in ("first", "second")]
    found = [await answer for slot in (5, 6) for answer in threads.ask(readers, slot)]
    assert [message.time for [message] in found] == [5, 5, 6, 6]
    [thread] = {message.value for [message] in found}
    assert thread != threading.get_ident()


async def test_what_waits_behind_one_that_hangs_goes_on_elsewhere(threads: ReaderThreads) -> None:
    """However many hang, the others answer; what hangs answers as soon as it can."""
    hanging = [Waiting(), Waiting()]
    collectors: list[Collector] = [hanging[0], Counting(), hanging[1], Counting()]
    readers = [
        CollectorReader(f"{number}", collector) for number, collector in enumerate(collectors)
    ]
    answers = threads.ask(readers, 5)
    async with asyncio.timeout(DEADLINE):
        assert [(await answers[number])[0].value for number in (1, 3)] == [1, 1]
        assert [answer.done() for answer in answers] == [False, True, False, True]
        for collector in hanging:
            collector.go_on.set()
        assert [len(await answer) for answer in answers] == [1] * 4


async def test_reading_that_waits_for_its_thread_is_not_running(threads: ReaderThreads) -> None:
    """So that the log says which collector hangs, and which one only waits behind it."""
    hanging, counting = Waiting(), Counting()
    first, second = CollectorReader("first", hanging), CollectorReader("second", counting)
    answers = threads.ask([first, second], 5)
    assert hanging.begun.wait(DEADLINE)  # the loop, which would start another thread, waits too
    assert second.is_busy
    assert not second.is_running
    assert first.is_busy
    assert first.is_running
    hanging.go_on.set()
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*answers)
    assert not any(reader.is_running for reader in (first, second))


async def test_one_that_was_slow_begins_in_a_thread_of_its_own(threads: ReaderThreads) -> None:
    """The others do not wait for it then; once it is fast it is read with them again."""
    slow, fast = Waiting(), Waiting(go_on=True)
    readers = [CollectorReader("slow", slow), CollectorReader("fast", fast)]
    first = threads.ask(readers, 5)
    await first[1]
    await asyncio.sleep(SLOW_SECONDS)
    slow.go_on.set()
    await first[0]
    assert readers[0].is_slow

    slow.go_on.clear()
    slow.begun.clear()
    second = threads.ask(readers, 6)
    await second[1]
    assert not second[0].done()
    assert await asyncio.to_thread(slow.begun.wait, DEADLINE)
    slow.go_on.set()
    await second[0]

    readers[0].is_slow = False
    together = [(await answer)[0].value for answer in threads.ask(readers, 7)]
    assert together[0] == together[1]


async def test_it_is_busy_until_it_answered(threads: ReaderThreads) -> None:
    """Also where nobody waits for the answer any more: what hangs is not asked a second time."""
    collector = Waiting()
    reader = CollectorReader("waiting", collector)
    [answer] = threads.ask([reader], 5)
    answer.cancel()
    assert await asyncio.to_thread(collector.begun.wait, DEADLINE)
    states = [reader.is_busy]
    collector.go_on.set()
    async with asyncio.timeout(DEADLINE):
        while states[-1]:
            await asyncio.sleep(0.001)
            states.append(reader.is_busy)
    assert len(await one(threads, reader, 6)) == 1
    assert states[0]


async def test_what_it_raises_is_the_answer(threads: ReaderThreads) -> None:
    """And the thread lives on."""

    class Failing:
        def collect(self, time: int) -> Iterator[Message]:
            if time == 5:
                raise ValueError("no luck")
            yield metric("m", 1, time=time, tags={"type": "node"})

    reader = CollectorReader("failing", Failing())
    with pytest.raises(ValueError, match="no luck"):
        await one(threads, reader, 5)
    assert len(await one(threads, reader, 6)) == 1


async def test_a_reading_for_nobody_comes_first_and_holds_up_no_question(
    threads: ReaderThreads,
) -> None:
    """What is asked while it lasts is answered next; what it raises is thrown away.

    The two never run at once, also where the thread that the second began in is another one.
    """

    class Priming(Waiting):
        def __init__(self) -> None:
            super().__init__()
            self.asked: list[int] = []

        def collect(self, time: int) -> Iterator[Message]:
            self.asked.append(time)
            yield from super().collect(time)
            self.asked.append(time)
            if time == 5:
                raise ValueError("no luck")

    collector = Priming()
    reader = CollectorReader("priming", collector)
    threads.prime([reader], 5)
    assert await asyncio.to_thread(collector.begun.wait, DEADLINE)
    assert not reader.is_busy
    answers = threads.ask([reader, CollectorReader("other", Counting())], 6)
    await answers[1]
    assert collector.asked == [5]
    collector.go_on.set()
    assert len(await answers[0]) == 1
    assert collector.asked == [5, 5, 6, 6]
