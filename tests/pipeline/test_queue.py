"""The queue between reader and writer."""

import asyncio
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import Lines, decode, to_lines
from ccpipe.formats.lineprotocol.lines import COLUMNS
from ccpipe.message import event
from ccpipe.pipeline import Limits
from ccpipe.pipeline.stages import Item
from ccpipe.pipeline.writing import Queue
from ccpipe.telemetry import Telemetry
from tests.pipeline.parts import clock, made, play, values, virtual

ONE = Item(made(1)).size
"""Memory counted for an item with one metric."""


def queue(**limits: float) -> Queue:
    unlimited = {
        "max_records": 10**9,
        "max_bytes": 10**12,
        "max_wait": math.inf,
        "max_memory": 10**12,
    }
    return Queue(Limits(**{**unlimited, **limits}), Telemetry())  # type: ignore[arg-type]


async def put(queue: Queue, *numbers: int) -> None:
    for number in numbers:
        await queue.put(Item(made(number)))


def taken(items: Sequence[Item]) -> list[float]:
    return [value for item in items for value in values(item.records)]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "limit", [{"max_records": 3}, {"max_bytes": 3 * ONE}, {"max_memory": 3 * ONE}]
)
@virtual
async def test_queue_hands_out_full_batch_at_once(
    limit: dict[str, float],
) -> None:
    """Lines, bytes and memory each make a batch full; nothing else ends the wait."""
    waiting = queue(**limit)
    taking = asyncio.create_task(waiting.take())
    await put(waiting, 1, 2)
    await settle()
    assert not taking.done()
    await put(waiting, 3)
    assert taken(await taking) == [1, 2, 3]
    assert clock() == 0


@virtual
async def test_queue_hands_out_old_batch_of_any_size() -> None:
    """The oldest record waits for the age limit and no longer, whatever follows it."""
    waiting = queue(max_wait=5)
    taking = asyncio.create_task(waiting.take())
    await asyncio.sleep(2)
    await put(waiting, 1)
    await asyncio.sleep(4)
    await put(waiting, 2)
    assert taken(await taking) == [1, 2]
    assert clock() == 7


@virtual
async def test_flushed_queue_does_not_wait_for_full_batch() -> None:
    """Once flushed, it hands out whatever it has, and waits only while empty."""
    waiting = queue()
    waiting.flush_now = True
    taking = asyncio.create_task(waiting.take())
    await settle()
    await put(waiting, 1)
    assert taken(await taking) == [1]


@virtual
async def test_queue_hands_out_oversized_batch_alone() -> None:
    """A batch is the unit: it is neither cut nor delayed for its size."""
    waiting = queue(max_records=2, max_bytes=ONE, max_memory=0)
    await waiting.put(Item(made(1, 2, 3)))
    putting = asyncio.create_task(put(waiting, 4))
    items = await waiting.take()
    assert taken(items) == [1, 2, 3]
    waiting.release(items)
    assert taken(await waiting.take()) == [4]
    await putting


@virtual
async def test_queue_blocks_reader_until_space_suffices() -> None:
    """A release that frees too little does not wake it."""
    waiting = queue(max_bytes=ONE, max_memory=2 * ONE)
    await put(waiting, 1)
    await waiting.put(Item(made(*range(2, 10))))  # larger than two
    putting = asyncio.create_task(put(waiting, 5))
    waiting.release(await waiting.take())
    await settle()
    assert len(waiting.items) == 1
    waiting.release(await waiting.take())
    await putting


@virtual
async def test_queue_counts_memory_of_empty_batches() -> None:
    """Batches whose records were all dropped cannot exceed the memory limit either."""

    async def put_empty(waiting: Queue) -> None:
        for _ in range(1000):
            await waiting.put(Item(Lines()))

    waiting = queue(max_memory=100 * ONE)
    putting = asyncio.create_task(put_empty(waiting))
    await settle()
    assert not putting.done()
    putting.cancel()
    await asyncio.wait({putting})


@virtual
async def test_queue_counts_memory_of_long_texts() -> None:
    """An event of a megabyte does not count as half a kilobyte, decoded or not."""
    text = "x" * 2**20
    message = event("job", "start_job", text, time=1, tags={})
    assert Item(to_lines([message])).size > 2**20
    lines = decode(b'job event="' + text.encode() + b'" 1\n')
    assert Item(lines).size > 2**20
    unreadable = decode(b"x" * 2**20)
    assert not len(unreadable)
    assert Item(unreadable).size > 2**20


delays = st.lists(st.sampled_from([0, 0, 0, 0.5, 1, 1, 2]), max_size=30)


@given(
    puts=delays,
    pauses=delays,
    sizes=st.lists(st.integers(0, 3), min_size=30, max_size=30),
    lines=st.integers(1, 4),
    memory=st.integers(1, 5),
    age=st.sampled_from([0, 0.5, 1, 3]),
)
@virtual
async def test_queue_loses_no_wake_up_in_any_schedule(
    puts: list[float], pauses: list[float], sizes: list[int], lines: int, memory: int, age: float
) -> None:
    """Whatever the timing of reader and writer: everything arrives, once, in order.

    In virtual time a lost wake-up is a deadlock, which fails at once; or it is a record that waits
    longer than its age although the writer is free.
    """
    payloads = [made(*range(10 * n, 10 * n + sizes[n])) for n in range(len(puts))]
    waiting = queue(max_records=lines, max_memory=memory * ONE, max_wait=age)

    async def read() -> None:
        for delay, payload in zip(puts, payloads, strict=True):
            await asyncio.sleep(delay)
            await waiting.put(Item(payload))
            assert waiting.held < memory * ONE + 512 * 4
        waiting.end()

    reading = asyncio.create_task(read())
    got: list[float] = []
    free = clock()
    for pause in [*pauses, *[0.0] * 100]:
        if not (items := await waiting.take()):
            break
        assert clock() <= max(items[0].born + age, free)
        got += taken(items)
        await asyncio.sleep(pause)
        waiting.release(items)
        free = clock()
    await reading
    assert got == [value for payload in payloads for value in values(payload)]
    assert (waiting.held, waiting.lines, waiting.size) == (0, 0, 0)


@given(when=st.sampled_from([0, 0.5, 1, 1.5]), age=st.sampled_from([0.5, 1]), late=st.booleans())
@virtual
async def test_queue_propagates_cancellation_of_writer(when: float, age: float, late: bool) -> None:
    """Also if a batch becomes due at the same time."""
    waiting = queue(max_wait=age)
    taking = asyncio.create_task(waiting.take())
    loop = asyncio.get_running_loop()
    if late:
        loop.call_later(when, taking.cancel)
    putting = asyncio.create_task(put(waiting, 1))
    if not late:
        loop.call_later(when, taking.cancel)
    await asyncio.wait({taking, putting})
    if taking.cancelled():
        assert taken(list(waiting.items)) == [1]
    else:
        assert taken(taking.result()) == [1]
        assert when >= age


def test_queue_work_per_batch_does_not_grow_with_their_number() -> None:
    """Counted, not timed: a batch's length is read a bounded number of times."""

    class Counted(Lines):
        looks = 0

        def __len__(self) -> int:
            Counted.looks += 1
            return super().__len__()

    async def looks(total: int) -> float:
        Counted.looks = 0
        waiting = queue(max_records=total)
        for _ in range(total):
            counted = Counted()
            counted.extend(dict(zip(COLUMNS, made(1).columns, strict=True)))
            await waiting.put(Item(counted))  # type: ignore[arg-type] # of slices and joins
        assert len(await waiting.take()) == total
        return Counted.looks / total

    assert play(looks(4000)) == play(looks(40))


@virtual
async def test_take_returns_at_given_time_without_reporting_end() -> None:
    """A writer with other work is not blocked by an empty queue, nor by its end."""
    waiting = queue()
    assert await waiting.take(until=5) == []
    assert clock() == 5
    await put(waiting, 1)
    waiting.end()
    assert taken(await waiting.take(until=9)) == [1]
    assert clock() == 5
    assert await waiting.take(until=9) == []
    assert clock() == 9
    assert await waiting.take(until=3) == []
    assert await waiting.take() == []
    assert clock() == 9
