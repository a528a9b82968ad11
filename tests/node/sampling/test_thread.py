"""The threads in which collectors are read."""

import asyncio
import threading
from collections.abc import Iterator

from ccpipe.message import Message, metric
from ccpipe.node.sampling.thread import CollectorReader

DEADLINE = 20.0


class Waiting:
    """A collector that waits until it may go on, and then tells in which thread it is."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def collect(self, time: int) -> Iterator[Message]:
        self.begun.set()
        assert self.go_on.wait(DEADLINE)
        yield metric("thread", threading.get_ident(), time=time, tags={"type": "node"})


async def one(reader: CollectorReader, slot: int) -> list[Message]:
    async with asyncio.timeout(DEADLINE):
        return await reader.ask(slot)


async def test_reader_reads_in_thread_of_its_own() -> None:
    """Always the same one, not the loop's; the answers carry the slot they are of."""
    collector = Waiting()
    collector.go_on.set()
    reader = CollectorReader("c", collector)
    found = [await one(reader, slot) for slot in (5, 6)]
    assert [message.time for [message] in found] == [5, 6]
    [thread] = {message.value for [message] in found}
    assert thread != threading.get_ident()
    reader.end()


class Computing(Waiting):
    """A collector that computes until it may go on."""

    def collect(self, time: int) -> Iterator[Message]:
        self.begun.set()
        while not self.go_on.is_set():
            pass
        yield from super().collect(time)


class WithoutProcessor(CollectorReader):
    """A reader whose thread has started and gets no processor until it may go on."""

    def __init__(self, collector: Waiting) -> None:
        super().__init__("c", collector)
        self._waiting = collector

    def _work(self) -> None:
        self._waiting.go_on.wait(DEADLINE)
        super()._work()


async def test_activity_names_what_keeps_collector_from_answering() -> None:
    hanging, computing, waiting = Waiting(), Computing(), Waiting()
    readers = [
        CollectorReader("hanging", hanging),
        CollectorReader("computing", computing),
        WithoutProcessor(waiting),
    ]
    answers = [reader.ask(5) for reader in readers]
    for collector in (hanging, computing):
        assert await asyncio.to_thread(collector.begun.wait, DEADLINE)
    expected = ["still hangs", "still runs", "still waits to be read"]
    async with asyncio.timeout(DEADLINE):
        while [reader.activity() for reader in readers] != expected:
            await asyncio.sleep(0.001)
        for collector in (hanging, computing, waiting):
            collector.go_on.set()
        await asyncio.gather(*answers)


async def test_it_is_busy_until_it_answered() -> None:
    """Also where nobody waits for the answer any more: what hangs is not asked a second time."""
    collector = Waiting()
    reader = CollectorReader("waiting", collector)
    answer = reader.ask(5)
    answer.cancel()
    assert await asyncio.to_thread(collector.begun.wait, DEADLINE)
    states = [reader.is_busy]
    collector.go_on.set()
    async with asyncio.timeout(DEADLINE):
        while states[-1]:
            await asyncio.sleep(0.001)
            states.append(reader.is_busy)
    assert len(await one(reader, 6)) == 1
    assert states[0]


async def test_a_reading_for_nobody_comes_first_and_holds_up_no_question() -> None:
    """What is asked while it lasts is answered next; what it raises is thrown away.

    The two never run at once.
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
    reader.prime(5)
    assert await asyncio.to_thread(collector.begun.wait, DEADLINE)
    assert not reader.is_busy
    answer = reader.ask(6)
    assert collector.asked == [5]
    collector.go_on.set()
    assert len(await answer) == 1
    assert collector.asked == [5, 5, 6, 6]
