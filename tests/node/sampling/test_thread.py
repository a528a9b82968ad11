"""A collector in a thread of its own."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from ccpipe.message import Message, metric
from ccpipe.node.sampling.thread import CollectorThread

DEADLINE = 20.0


class Waiting:
    """A collector that waits until it may go on, and then tells in which thread it is."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def collect(self, time: int) -> Iterator[Message]:
        """Wait and tell."""
        self.begun.set()
        assert self.go_on.wait(DEADLINE)
        yield metric("thread", threading.get_ident(), time=time, tags={"type": "node"})


async def test_every_question_is_answered_in_the_same_thread() -> None:
    """Not in the loop's, and the answer carries the slot it is of."""
    collector = Waiting()
    collector.go_on.set()
    thread = CollectorThread("waiting", collector)
    first, second = (await thread.ask(5))[0], (await thread.ask(6))[0]
    assert first.value == second.value != threading.get_ident()
    assert (first.time, second.time) == (5, 6)
    thread.end()


async def test_it_is_busy_until_it_answered() -> None:
    """Also where nobody waits for the answer any more: what hangs is not asked a second time."""
    collector = Waiting()
    thread = CollectorThread("waiting", collector)
    answer = thread.ask(5)
    answer.cancel()
    assert await asyncio.to_thread(collector.begun.wait, DEADLINE)
    states = [thread.is_busy]
    collector.go_on.set()
    async with asyncio.timeout(DEADLINE):
        while states[-1]:
            await asyncio.sleep(0.001)
            states.append(thread.is_busy)
        assert len(await thread.ask(6)) == 1
    assert states[0]
    thread.end()


async def test_what_it_raises_is_the_answer() -> None:
    """And the thread lives on."""

    class Failing:
        def collect(self, time: int) -> Iterator[Message]:
            if time == 5:
                raise ValueError("no luck")
            yield metric("m", 1, time=time, tags={"type": "node"})

    thread = CollectorThread("failing", Failing())
    with pytest.raises(ValueError, match="no luck"):
        await thread.ask(5)
    assert len(await thread.ask(6)) == 1
    thread.end()


async def test_a_reading_for_nobody_comes_first_and_holds_up_no_question() -> None:
    """What is asked while it lasts is answered next; what it raises is thrown away."""

    class Counting:
        def __init__(self) -> None:
            self.asked: list[int] = []

        def collect(self, time: int) -> Iterator[Message]:
            self.asked.append(time)
            if time == 5:
                raise ValueError("no luck")
            yield metric("m", 1, time=time, tags={"type": "node"})

    collector = Counting()
    thread = CollectorThread("counting", collector)
    thread.prime(5)
    assert not thread.is_busy
    assert len(await thread.ask(6)) == 1
    assert collector.asked == [5, 6]
    thread.end()
