"""Slots, the loop that samples in them, and clocks that stop, jump or run slow."""

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


async def test_message_time_is_its_slot() -> None:
    """Slots are multiples of the interval since the epoch; each is sampled once, after it began."""
    begins: list[int] = []

    class Recording(Counting):
        def collect(self, time: int) -> Iterator[Message]:
            begins.append(now())
            yield from super().collect(time)

    now = time.time_ns
    one, two = Recording(), Counting()
    batches = await take(waiting_sampler({"one": one, "two": two}, jitter=0.01), 4)
    slots = [slot_of(batch) for batch in batches]
    assert one.asked == two.asked == slots
    assert all(slot % SLOT == 0 for slot in slots)
    assert slots == sorted(set(slots))
    assert all(begin >= slot for begin, slot in zip(begins, slots, strict=True))
    assert [len(batch.records) for batch in batches] == [2, 2, 2, 2]
    assert {batch.origin for batch in batches} == {"sampler"}


async def test_sampler_adds_tags_unless_collector_sets_them() -> None:
    """A collector's own value of a tag takes precedence."""

    class Thread:
        def collect(self, time: int) -> Iterable[Message]:
            return [metric("m", 1, time=time, tags={"type": "hwthread", "type-id": "3"})]

    [batch] = await take(waiting_sampler({"thread": Thread()}), 1)
    [message] = batch.records
    assert message.tags == {**SITE, "type": "hwthread", "type-id": "3"}
    assert message.problems() == []


async def test_sampler_adds_unit_tag_when_configured() -> None:
    """Metrics without unit have none, and a collector's own tag takes precedence."""

    class Measured:
        def collect(self, time: int) -> Iterable[Message]:
            for name in ("power", "load", "volume"):
                own = {"unit": "l"} if name == "volume" else {}
                yield metric(name, 1, time=time, tags={"type": "node", **own})

    units = {"power": "W", "volume": "m3"}
    [batch] = await take(waiting_sampler({"m": Measured()}, units=units), 1)
    assert [message.tags.get("unit") for message in batch.records] == ["W", None, "l"]


async def test_stop_ends_sleep() -> None:
    """A sampler that waits for a slot of tomorrow ends at once, without a batch."""
    sampler = Sampler(SamplerSettings({"c": Counting()}, interval=86400, tags=SITE))
    waiting = asyncio.create_task(take(sampler, 1))
    await asyncio.sleep(0)
    sampler.stop()
    assert await waiting == []


async def test_blocking_collector_does_not_block_loop_and_finishes_at_stop() -> None:
    """Collectors run in threads; a reading under way at the stop is still yielded."""
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


async def test_slots_missed_by_slow_consumer_are_counted_and_skipped() -> None:
    """The next sample is of a slot yet to begin."""
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


async def test_once_yields_one_batch_with_rates() -> None:
    """Rates need two readings; only the second one's messages are yielded."""
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
def test_invalid_interval_or_jitter_is_named(interval: float, jitter: float, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Sampler(SamplerSettings({}, interval=interval, jitter=jitter, tags=SITE))


def test_invalid_interval_of_collector_is_named() -> None:
    """The jitter must be below it, too."""
    collectors: dict[str, Collector] = {"c": Counting()}
    with pytest.raises(ConfigError, match="interval of collector c is 0 s"):
        Sampler(SamplerSettings(collectors, interval=10, intervals={"c": 0}, tags=SITE))
    with pytest.raises(ConfigError, match="jitter is 2 s: it must be from 0 to below 1 s"):
        Sampler(SamplerSettings(collectors, interval=10, intervals={"c": 1}, jitter=2, tags=SITE))


async def test_expected_is_latest_time_of_next_step() -> None:
    """For the watchdog: shortly after the next slot, or infinite while a batch is processed."""
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


async def test_hour_has_every_slot_once(clocks: Clocks) -> None:
    sampler = OnTheseClocks(clocks, jitter=0.2, collectors={"one": Counting(), "two": Counting()})
    slots = [slot_of(batch) async for batch in sampler.some(360)]
    assert slots == list(range(slots[0], slots[0] + 3600 * SECOND, 10 * SECOND))
    assert sampler.telemetry.total(sampler.telemetry.missed) == 0
    assert sampler._pending == {}


async def test_collector_is_read_at_multiples_of_its_interval(clocks: Clocks) -> None:
    """Slots of several collectors coincide."""
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


async def test_missed_slots_are_counted_per_interval(clocks: Clocks) -> None:
    """A consumer that blocks for a minute misses six slots of ten seconds and one of a minute."""
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


async def test_jitter_is_random_within_its_bound(clocks: Clocks) -> None:
    """Each sample is taken at its slot plus a random part of the jitter."""
    sampler = OnTheseClocks(clocks, jitter=0.5)
    delays = [wall - slot async for slot, wall in sampler.samples(200)]
    assert all(0 <= delay <= 0.5 * SECOND for delay in delays)
    assert len(set(delays)) > 100
    assert sampler.telemetry.total(sampler.telemetry.missed) == 0


async def test_sample_is_taken_at_slot_without_jitter(clocks: Clocks) -> None:
    sampler = OnTheseClocks(clocks)
    seen = [pair async for pair in sampler.samples(3)]
    first = START + 7 * SECOND
    assert seen == [(slot, slot) for slot in (first, first + 10 * SECOND, first + 20 * SECOND)]


@pytest.mark.parametrize("jump", [3600 * SECOND, 123_456_789_000, -3600 * SECOND, -SECOND, -1000])
async def test_clock_jump_loses_one_slot_at_most(clocks: Clocks, jump: int) -> None:
    """Samples continue in slots of the new time; skipped ones do not count as missed."""
    sampler = OnTheseClocks(clocks, jumps={3: jump})
    seen = [pair async for pair in sampler.samples(5)]
    assert all(
        slot % (10 * SECOND) == 0 and slot <= wall < slot + 10 * SECOND for slot, wall in seen
    )
    slots = [slot for slot, _ in seen]
    assert slots[1] - slots[0] == slots[4] - slots[3] == 10 * SECOND
    assert clocks.passed <= 7 * SECOND + 5 * 10 * SECOND
    assert sampler.telemetry.total(sampler.telemetry.missed) <= 1


async def test_sampler_waits_for_slow_clock(clocks: Clocks) -> None:
    """If the wall clock is not yet in the slot after the sleep, it sleeps again."""
    sampler = OnTheseClocks(clocks, jumps={1: -5_000_000})
    assert [pair async for pair in sampler.samples(1)] == [(START + 7 * SECOND,) * 2]
    assert sampler.sleeps == [7.0, 0.005]
