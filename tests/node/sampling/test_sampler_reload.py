"""Reloading a sampler's collectors and intervals while it samples."""

import asyncio
import itertools
import random
import re
import threading
from collections.abc import Iterator

import pytest

from ccpipe.errors import ConfigError
from ccpipe.formats.sonar import Envelope, MetadataObject
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.message import Message, metric
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
    Counting,
    Failing,
    Hanging,
    settings,
    slot_of,
    take,
    waiting_sampler,
)


class Rate:
    """A collector that emits the increase since its last reading, and nothing at the first."""

    def __init__(self) -> None:
        self.total, self.before = 0, None

    before: int | None

    def collect(self, time: int) -> Iterator[Message]:
        self.total += 1
        if self.before is not None:
            yield metric("rate", self.total - self.before, time=time, tags={"type": "node"})
        self.before = self.total


async def test_reload_loses_no_slot_and_no_rate() -> None:
    """Every slot of the old and the new collectors is yielded exactly once, with a rate."""
    telemetry, kept = Telemetry(), Counting()
    often = {"interval": 0.02, "jitter": 0.005}
    sampler = waiting_sampler({"kept": kept, "other": Rate()}, telemetry, **often)
    seen: list[Message] = []

    async def read() -> None:
        async for batch in sampler.batches():
            seen.extend(batch.records)

    reading = asyncio.create_task(read())
    reloads = 0
    async with asyncio.timeout(DEADLINE):
        while len(kept.asked) < 60:
            await asyncio.sleep(random.uniform(0, 0.02))
            sampler.reload(settings({"kept": kept, "other": Rate()}, **often))
            reloads += 1
    sampler.stop()
    await reading
    assert reloads > 20
    step = 20_000_000
    missed = telemetry.total(telemetry.missed)  # by a machine that is too busy, not by a reload
    slots = [m.time for m in seen if m.name == "asked"]
    assert len(set(slots)) == len(slots)
    assert len(slots) + missed >= (slots[-1] - slots[0]) // step + 1  # type: ignore[operator]
    rates = [m.time for m in seen if m.name == "rate"]
    assert rates == slots[-len(rates) :]
    assert len(rates) >= len(slots) - 1


async def test_unchanged_collectors_keep_state_and_thread() -> None:
    """They are the same objects; their series continue."""
    threads: set[int] = set()

    class Reporting(Counting):
        def collect(self, time: int) -> Iterator[Message]:
            threads.add(threading.get_ident())
            yield from super().collect(time)

    telling = Reporting()
    sampler = waiting_sampler({"telling": telling})
    values: list[object] = []
    async with asyncio.timeout(DEADLINE):
        async for batch in sampler.batches():
            values += [message.value for message in batch.records]
            sampler.reload(settings({"telling": telling}))
            if len(values) == 4:
                sampler.stop()
    assert values == [1, 2, 3, 4]
    assert len(threads) == 1


async def test_reload_applies_interval_tags_and_units_from_next_slot() -> None:
    """Slots are multiples of the new interval, without one in between."""
    counting = Counting()
    sampler = waiting_sampler({"c": counting})
    slots: list[int] = []
    async with asyncio.timeout(DEADLINE):
        async for batch in sampler.batches():
            slots.append(slot_of(batch))
            [message] = batch.records
            if len(slots) == 2:
                assert "unit" not in message.tags
                tags = {**SITE, "rack": "r1"}
                changed = {"interval": INTERVAL / 2, "tags": tags, "units": {"asked": "times"}}
                sampler.reload(settings({"c": counting}, **changed))
            if len(slots) > 2:
                assert (message.tags["rack"], message.tags["unit"]) == ("r1", "times")
            steps = [b - a for a, b in itertools.pairwise(slots)]
            if len(slots) >= 5 and any(step % SLOT for step in steps):
                sampler.stop()  # a busy machine may miss a slot
    assert all(slot % SLOT == 0 for slot in slots[:2])
    assert all(slot % (SLOT // 2) == 0 for slot in slots)
    assert min(steps) > 0


async def test_reload_ends_sleep() -> None:
    """An interval of a day does not delay the new one."""
    counting = Counting()
    sampler = Sampler(SamplerSettings({"c": counting}, interval=86400, tags=SITE))
    taking = asyncio.create_task(take(sampler, 2))
    await sampler.armed.wait()
    sampler.reload(settings({"c": counting}))
    assert len(await taking) == 2


async def test_removed_collector_is_dropped_after_pending_reading() -> None:
    """Its pending reading is still yielded, unless it hangs."""
    hanging, counting = Hanging(), Counting()
    sampler = waiting_sampler({"hanging": hanging, "c": counting}, timeout=0.02)
    reader = next(iter(sampler._scheduled.values())).reader
    async with asyncio.timeout(DEADLINE):
        async for _ in sampler.batches():
            if hanging.begun:
                sampler.reload(settings({"c": counting}, timeout=0.02))
            waited_for = {pending.scheduled.reader for pending in sampler._pending.values()}
            if hanging.begun and reader not in waited_for:
                sampler.stop()
    assert sampler.states().keys() == {"c"}
    hanging.go_on.set()
    await eventually(lambda: not reader.is_busy)
    assert hanging.begun == 1


async def test_invalid_reload_changes_nothing() -> None:
    counting = Counting()
    sampler = waiting_sampler({"c": counting})
    with pytest.raises(ConfigError, match="jitter is 9 s"):
        sampler.reload(SamplerSettings({}, interval=1, jitter=9, tags=None))
    with pytest.raises(ConfigError, match="interval of collector c is 0 s"):
        sampler.reload(SamplerSettings({"c": counting}, interval=1, intervals={"c": 0}, tags=None))
    [batch] = await take(sampler, 1)
    assert batch.records[0].tags == SITE


async def test_states_report_interval_and_state() -> None:
    collectors: dict[str, Collector] = {
        "on": Counting(),
        "off": Failing(lambda _: FileNotFoundError(2, "gone")),
        "late": Hanging(),
    }
    sampler = waiting_sampler(collectors, timeout=0.02)
    expected = {name: {"interval": INTERVAL, "state": name} for name in collectors}
    async with asyncio.timeout(DEADLINE):
        async for _ in sampler.batches():
            if sampler.states() == expected:  # a busy machine may be late with the others too
                sampler.stop()
    assert sampler.states() == expected
    late = collectors["late"]
    assert isinstance(late, Hanging)
    late.go_on.set()


async def test_records_without_tags_are_unchanged_and_errors_are_records() -> None:
    """As for Sonar's envelopes: an error replaces the record of the failed collector."""

    class Enveloped:
        def collect(self, time: int) -> Iterator[Envelope]:
            yield Envelope(MetadataObject(f"{time}", "1"))

    hanging = Hanging()
    sampler = Sampler(
        settings(
            {"fine": Enveloped(), "bad": Failing(lambda _: ValueError("no luck")), "slow": hanging},
            tags=None,
            timeout=0.02,
        ),
        gives=Envelopes,
        pack=lambda parts: Envelopes([each for part in parts for each in part.records]),
        record=Envelope,
        make_error=lambda slot, text: f"{slot}: {text}",
    )
    slots: set[int] = set()
    reported: set[str] = set()
    async with asyncio.timeout(DEADLINE):
        async for batch in sampler.batches():
            slots |= {int(r.meta.producer) for r in batch.records if isinstance(r, Envelope)}
            reported |= {record for record in batch.records if isinstance(record, str)}
            bad = any(text.endswith(": collector bad: no luck") for text in reported)
            late = any(re.search("slow still .*: no sample of this", t) for t in reported)
            if slots and bad and late:
                sampler.stop()
    hanging.go_on.set()
    assert all(slot % SLOT == 0 for slot in slots)


async def test_collector_of_start_is_read_at_once() -> None:
    """Also when a reload adds it."""
    first, second, other = Counting(), Counting(), Counting()
    rare = {"interval": 86400, "tags": None}
    sampler = Sampler(
        settings({"first": first, "other": other}, **rare), at_start=("first", "second")
    )
    batches = []
    async with asyncio.timeout(DEADLINE):
        async for batch in sampler.batches():
            batches.append(batch)
            if len(batches) == 1:
                every = {"first": first, "second": second, "other": other}
                sampler.reload(settings(every, **rare, intervals={"other": INTERVAL}))
            else:
                sampler.stop()
    assert (len(first.asked), len(second.asked)) == (1, 1)
    assert first.asked[0] % SECOND == 0
    assert [len(batch.records) for batch in batches] == [1, 2]
