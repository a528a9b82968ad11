"""Slots, the loop that samples in them, and clocks that stand still, jump and run slow."""

import asyncio
import math
import threading
import time
from collections.abc import Iterable, Iterator

import pytest

from ccpipe.errors import ConfigError
from ccpipe.message import Message, metric
from ccpipe.node.collectors.cpu import Cpu
from ccpipe.node.collectors.network import Network
from ccpipe.node.sampling.collector import Collector
from ccpipe.node.sampling.sampler import Sampler, SamplerSettings
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.node.fake_sampling import (
    DEADLINE,
    INTERVAL,
    SECOND,
    SITE,
    SLOT,
    START,
    Clocks,
    Counting,
    OnTheseClocks,
    slot_of,
    take,
    waiting_sampler,
)


async def test_every_message_carries_its_slot_exactly() -> None:
    """Slots are multiples of the interval since the epoch; each is sampled once, after it began."""
    begins: list[int] = []

    class Noting(Counting):
        def collect(self, time: int) -> Iterator[Message]:
            begins.append(now())
            yield from super().collect(time)

    now = time.time_ns
    one, two = Noting(), Counting()
    batches = await take(waiting_sampler({"one": one, "two": two}, jitter=0.01), 4)
    slots = [slot_of(batch) for batch in batches]
    assert one.asked == two.asked == slots
    assert all(slot % SLOT == 0 for slot in slots)
    assert slots == sorted(set(slots))
    assert all(begin >= slot for begin, slot in zip(begins, slots, strict=True))
    assert [len(batch.records) for batch in batches] == [2, 2, 2, 2]
    assert {batch.origin for batch in batches} == {"sampler"}


async def test_tags_are_added_and_a_collectors_own_win() -> None:
    """Every message carries the site's tags; where both say something the collector is right."""

    class Thread:
        def collect(self, time: int) -> Iterable[Message]:
            return [metric("m", 1, time=time, tags={"type": "hwthread", "type-id": "3"})]

    [batch] = await take(waiting_sampler({"thread": Thread()}), 1)
    [message] = batch.records
    assert message.tags == {**SITE, "type": "hwthread", "type-id": "3"}
    assert message.problems() == []


async def test_units_become_a_tag_on_request() -> None:
    """A metric without unit carries none, and a collector's own tag wins."""

    class Measured:
        def collect(self, time: int) -> Iterable[Message]:
            for name in ("power", "load", "volume"):
                own = {"unit": "l"} if name == "volume" else {}
                yield metric(name, 1, time=time, tags={"type": "node", **own})

    units = {"power": "W", "volume": "m3"}
    [batch] = await take(waiting_sampler({"m": Measured()}, units=units), 1)
    assert [message.tags.get("unit") for message in batch.records] == ["W", None, "l"]


async def test_stop_wakes_the_sleep() -> None:
    """A sampler that waits for a slot of tomorrow ends at once, with nothing handed over."""
    sampler = Sampler(SamplerSettings({"c": Counting()}, interval=86400, tags=SITE))
    waiting = asyncio.create_task(take(sampler, 1))
    await asyncio.sleep(0)
    sampler.stop()
    assert await waiting == []


async def test_a_collector_that_blocks_stops_neither_the_loop_nor_is_it_cut_off() -> None:
    """Collecting happens in a thread; what is in hand when the end is asked for is handed over."""
    begun, go_on = threading.Event(), threading.Event()

    class Blocking(Counting):
        def collect(self, time: int) -> Iterator[Message]:
            begun.set()
            assert go_on.wait(DEADLINE)
            yield from super().collect(time)

    sampler = waiting_sampler({"c": Blocking()})
    taking = asyncio.create_task(take(sampler, 100))
    await eventually(begun.is_set)
    sampler.stop()
    go_on.set()
    assert len(await taking) == 1


async def test_slots_that_pass_while_the_consumer_is_slow_are_counted_and_skipped() -> None:
    """They are never made up for: the next sample is that of a slot yet to begin."""
    telemetry = Telemetry()
    sampler = waiting_sampler({"c": Counting()}, telemetry)
    slots: list[int] = []
    async with asyncio.timeout(DEADLINE):
        async for batch in sampler.batches():
            slots.append(slot_of(batch))
            if len(slots) == 1:
                while time.time_ns() < slots[0] + 3.5 * SLOT:
                    await asyncio.sleep(0.001)
            if len(slots) == 3:
                sampler.stop()
    assert slots[1] >= slots[0] + 4 * SLOT
    passed = (slots[2] - slots[0]) // SLOT - 2
    assert telemetry.total(telemetry.missed) == passed >= 3


async def test_once_gives_one_batch_with_rates() -> None:
    """Rates need two readings, so both are taken; only the second one's messages come."""
    counting = Counting()
    collectors: dict[str, Collector] = {
        "counting": counting,
        "cpu": Cpu(),
        "network": Network(exclude=[]),
    }
    sampler = Sampler(SamplerSettings(collectors, interval=INTERVAL, tags=SITE), once=True)
    [batch] = [batch async for batch in sampler.batches()]
    values = {message.name: message.value for message in batch.records}
    assert values["asked"] == 2
    assert {"cpu_user", "cpu_used", "net_bytes_in_bw"} <= set(values)
    assert slot_of(batch) % SLOT == 0
    assert slot_of(batch) <= time.time_ns()


@pytest.mark.parametrize(
    ("interval", "jitter", "reason"),
    [
        (0, 0, "interval is 0 s"),
        (-1, 0, "interval is -1 s"),
        (float("nan"), 0, "interval is nan s"),
        (float("inf"), 0, "interval is inf s"),
        (10, 10, "jitter is 10 s"),
        (10, -0.1, "jitter is -0.1 s"),
        (10, float("nan"), "jitter is nan s"),
    ],
)
def test_a_wrong_interval_is_named(interval: float, jitter: float, reason: str) -> None:
    """An interval of nothing and a jitter beyond it are configuration errors."""
    with pytest.raises(ConfigError, match=reason):
        Sampler(SamplerSettings({}, interval=interval, jitter=jitter, tags=SITE))


def test_a_wrong_interval_of_a_collector_is_named() -> None:
    """It is checked as the common one is, and the jitter must be below it too."""
    collectors: dict[str, Collector] = {"c": Counting()}
    with pytest.raises(ConfigError, match="interval of collector c is 0 s"):
        Sampler(SamplerSettings(collectors, interval=10, intervals={"c": 0}, tags=SITE))
    with pytest.raises(ConfigError, match="jitter is 2 s: it must be from 0 to below 1 s"):
        Sampler(SamplerSettings(collectors, interval=10, intervals={"c": 1}, jitter=2, tags=SITE))


async def test_it_says_until_when_it_must_have_gone_on() -> None:
    """A watchdog asks: a moment after the next slot, or no time while the reader is at work."""
    sampler = waiting_sampler({"c": Counting()})
    assert sampler.expected == math.inf
    seen: list[tuple[float, float]] = []
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE):
        async for _ in sampler.batches():
            assert sampler.expected == math.inf
            if len(seen) >= 2:
                sampler.stop()
            loop.call_soon(lambda: seen.append((time.monotonic(), sampler.expected)))
    assert sampler.armed.is_set()
    assert all(now < at <= now + INTERVAL + DEADLINE for now, at in seen[:2])


async def test_an_hour_has_every_slot_once(clocks: Clocks) -> None:
    sampler = OnTheseClocks(clocks, jitter=0.2, collectors={"one": Counting(), "two": Counting()})
    slots = [slot_of(batch) async for batch in sampler.some(360)]
    assert slots == list(range(slots[0], slots[0] + 3600 * SECOND, 10 * SECOND))
    assert sampler.telemetry.total(sampler.telemetry.missed) == 0
    assert sampler._pending == {}


async def test_each_collector_has_its_own_interval(clocks: Clocks) -> None:
    """Each is asked at the multiples of its interval, so that slots of several meet."""
    every = {"ten": Counting(), "fifteen": Counting(), "minute": Counting()}
    sampler = OnTheseClocks(clocks, collectors=every, intervals={"fifteen": 15, "minute": 60})
    slots = [slot async for slot, _ in sampler.samples(13)]
    assert slots == sorted({slot for one in every.values() for slot in one.asked})
    for name, seconds in {"ten": 10, "fifteen": 15, "minute": 60}.items():
        asked = every[name].asked
        assert asked == list(range(asked[0], slots[-1] + 1, seconds * SECOND))
        assert asked[0] % (seconds * SECOND) == 0
        assert asked[0] - START < seconds * SECOND
    assert sampler.telemetry.total(sampler.telemetry.missed) == 0


async def test_missed_slots_are_those_of_each_interval(clocks: Clocks) -> None:
    """A consumer that is away for a minute costs six slots of ten seconds and one of a minute."""
    every: dict[str, Collector] = {"ten": Counting(), "minute": Counting()}
    sampler = OnTheseClocks(clocks, collectors=every, intervals={"minute": 60})
    batches = sampler.some(20)
    async for batch in batches:
        if len(batch.records) == 2:
            break
    clocks.pass_by(65)
    async for batch in batches:
        if len(batch.records) == 2:
            break
    assert sampler.telemetry.total(sampler.telemetry.missed) == 6 + 1
    await batches.aclose()


async def test_the_jitter_stays_in_its_bound_and_differs(clocks: Clocks) -> None:
    """Each sample is taken at its slot plus a random part of the jitter."""
    sampler = OnTheseClocks(clocks, jitter=0.5)
    delays = [wall - slot async for slot, wall in sampler.samples(200)]
    assert all(0 <= delay <= 0.5 * SECOND for delay in delays)
    assert len(set(delays)) > 100
    assert sampler.telemetry.total(sampler.telemetry.missed) == 0


async def test_without_jitter_a_sample_is_taken_when_its_slot_begins(clocks: Clocks) -> None:
    sampler = OnTheseClocks(clocks)
    seen = [pair async for pair in sampler.samples(3)]
    first = START + 7 * SECOND
    assert seen == [(slot, slot) for slot in (first, first + 10 * SECOND, first + 20 * SECOND)]


@pytest.mark.parametrize("jump", [3600 * SECOND, 123_456_789_000, -3600 * SECOND, -SECOND, -1000])
async def test_a_clock_that_is_set_costs_one_slot_at_most(clocks: Clocks, jump: int) -> None:
    """Samples go on in the new time's slots, and jumped slots are not counted as missed."""
    sampler = OnTheseClocks(clocks, jumps={3: jump})
    seen = [pair async for pair in sampler.samples(5)]
    assert all(
        slot % (10 * SECOND) == 0 and slot <= wall < slot + 10 * SECOND for slot, wall in seen
    )
    slots = [slot for slot, _ in seen]
    assert slots[1] - slots[0] == slots[4] - slots[3] == 10 * SECOND
    assert clocks.passed <= 7 * SECOND + 5 * 10 * SECOND
    assert sampler.telemetry.total(sampler.telemetry.missed) <= 1


async def test_a_clock_that_runs_slow_is_waited_for(clocks: Clocks) -> None:
    """Where the wall clock is not yet in the slot after the sleep, the rest is slept too."""
    sampler = OnTheseClocks(clocks, jumps={1: -5_000_000})
    assert [pair async for pair in sampler.samples(1)] == [(START + 7 * SECOND,) * 2]
    assert sampler.sleeps == [7.0, 0.005]
