"""Slots on clocks that stand still, jump and run slow."""

import pytest

from ccpipe.node.sampling.thread import Collector
from tests.node.fake_sampling import (
    SECOND,
    START,
    Clocks,
    Counting,
    OnTheseClocks,
    slot_of,
)


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
