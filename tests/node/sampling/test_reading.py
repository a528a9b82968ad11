"""The threads in which collectors are read."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from ccpipe.message import Message, metric
from ccpipe.node.sampling.reading import CollectorReader, Reading, ReadingThreads
from tests.node.fake_sampling import DEADLINE


class Waiting:
    """A collector that waits until released, and reports its thread."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def collect(self, time: int) -> Iterator[Message]:
        self.begun.set()
        assert self.go_on.wait(DEADLINE)
        yield metric("thread", threading.get_ident(), time=time, tags={"type": "node"})


class Prompt(Waiting):
    """A collector that does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on.set()


class Computing(Waiting):
    """A collector that computes until released."""

    def collect(self, time: int) -> Iterator[Message]:
        self.begun.set()
        while not self.go_on.is_set():
            pass
        yield from super().collect(time)


async def thread_of(reading: Reading) -> object:
    async with asyncio.timeout(DEADLINE):
        [message] = await reading
    return message.value


async def test_threads_read_collectors_in_one_thread_of_their_own() -> None:
    """Not the loop's; results have the requested slot."""
    readers = [CollectorReader(name, Prompt()) for name in "abc"]
    reading = ReadingThreads()
    found = [
        message
        for slot in (5, 6)
        for records in await asyncio.gather(*reading.read(readers, slot))
        for message in records
    ]
    assert [message.time for message in found] == [5, 5, 5, 6, 6, 6]
    [thread] = {message.value for message in found}
    assert thread != threading.get_ident()
    reading.close()


async def test_threads_deliver_readings_of_slot_together() -> None:
    """The loop is woken once for all of them."""
    loop, woken = asyncio.get_running_loop(), 0
    wake = loop.call_soon_threadsafe

    def counted(*args: object) -> asyncio.Handle:
        nonlocal woken
        woken += 1
        return wake(*args)  # type: ignore[arg-type]

    first = Waiting()
    reading = ReadingThreads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "call_soon_threadsafe", counted)
        readers = [CollectorReader(str(number), Prompt()) for number in range(20)]
        pending = reading.read([CollectorReader("first", first), *readers], 5)
        first.go_on.set()
        await asyncio.gather(*pending)
    assert woken == 1


async def test_blocking_collector_keeps_thread_and_others_continue() -> None:
    """Also those of later slots; it is read in its own thread from then on."""
    blocking, prompt = Waiting(), Prompt()
    readers = [CollectorReader("blocking", blocking), CollectorReader("prompt", prompt)]
    reading = ReadingThreads()
    blocked, other = reading.read(readers, 5)
    await reading.wait([other], DEADLINE)
    new = await thread_of(other)
    assert not blocked.done()
    assert await thread_of(reading.read(readers[1:], 6)[0]) == new
    blocking.go_on.set()
    old = await thread_of(blocked)
    assert old != new
    again = [await thread_of(each) for each in reading.read(readers, 7)]
    assert again == [old, new]
    reading.close()
    readers[0].end()


async def test_collector_still_read_at_next_slot_blocks_others() -> None:
    """Also if none of them could be waited for, as all are busy."""
    blocking, prompt = Waiting(), Prompt()
    readers = [CollectorReader("blocking", blocking), CollectorReader("prompt", prompt)]
    reading = ReadingThreads()
    blocked, other = reading.read(readers, 5)
    assert await asyncio.to_thread(blocking.begun.wait, DEADLINE)
    assert reading.read([], 6) == []
    await thread_of(other)
    assert not blocked.done()
    blocking.go_on.set()
    await thread_of(blocked)


async def test_threads_deliver_finished_readings_before_blocked_one() -> None:
    """A collector before the one that blocks loses nothing."""
    blocking = Waiting()
    readers = [CollectorReader("prompt", Prompt()), CollectorReader("blocking", blocking)]
    reading = ReadingThreads()
    finished, blocked = reading.read(readers, 5)
    await reading.wait([finished], DEADLINE)
    await thread_of(finished)
    assert not blocked.done()
    blocking.go_on.set()
    await thread_of(blocked)


async def test_activity_names_reason_of_pending_reading() -> None:
    hanging, computing, waiting = Waiting(), Computing(), Waiting()
    of_hanging, of_computing = ReadingThreads(), ReadingThreads()
    first = CollectorReader("hanging", hanging)
    behind = CollectorReader("waiting", waiting)
    second = CollectorReader("computing", computing)
    readings = [*of_hanging.read([first, behind], 5), *of_computing.read([second], 5)]
    for collector in (hanging, computing):
        assert await asyncio.to_thread(collector.begun.wait, DEADLINE)
    expected = ["still hangs", "still runs", "has not started yet"]

    def found() -> list[str]:
        asked = [(of_hanging, first), (of_computing, second), (of_hanging, behind)]
        return [owner.activity(reader) for owner, reader in asked]

    async with asyncio.timeout(DEADLINE):
        while found() != expected:
            await asyncio.sleep(0.001)
        for collector in (hanging, computing, waiting):
            collector.go_on.set()
        await asyncio.gather(*readings)


async def test_reader_is_busy_until_collector_returns() -> None:
    """Also after the reading was cancelled: a hanging collector is not read twice."""
    collector = Waiting()
    reader, reading = CollectorReader("waiting", collector), ReadingThreads()
    [first] = reading.read([reader], 5)
    first.cancel()
    assert await asyncio.to_thread(collector.begun.wait, DEADLINE)
    states = [reader.is_busy]
    collector.go_on.set()
    async with asyncio.timeout(DEADLINE):
        while states[-1]:
            await asyncio.sleep(0.001)
            states.append(reader.is_busy)
        assert len(await reading.read([reader], 6)[0]) == 1
    assert states[0]


@pytest.mark.parametrize("blocks", [False, True])
async def test_reading_is_queued_behind_priming(*, blocks: bool) -> None:
    """An error of the priming is dropped. The two never run at the same time, also if it blocks."""

    class Priming(Waiting):
        def __init__(self) -> None:
            super().__init__()
            self.times: list[int] = []

        def collect(self, time: int) -> Iterator[Message]:
            self.times.append(time)
            yield from super().collect(time)
            self.times.append(time)
            if time == 5:
                raise ValueError("no luck")

    collector, other = Priming(), CollectorReader("other", Prompt())
    reader, reading = CollectorReader("priming", collector), ReadingThreads()
    reading.prime([reader], 5)
    assert await asyncio.to_thread(collector.begun.wait, DEADLINE)
    assert not reader.is_busy
    found, of_other = reading.read([reader, other], 6)
    if blocks:
        await reading.wait([of_other], DEADLINE)
        assert of_other.done()
    assert collector.times == [5]
    collector.go_on.set()
    async with asyncio.timeout(DEADLINE):
        assert len(await found) == 1
        await of_other
    assert collector.times == [5, 5, 6, 6]
