"""Slots, the loop that samples in them, and what a failing collector costs."""

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping

import pytest

from ccpipe.errors import ConfigError, DataError, MissingExtra
from ccpipe.message import Message, metric
from ccpipe.pipeline import Batch, Limits, Records, run
from ccpipe.sources.cpu import Cpu
from ccpipe.sources.network import Network
from ccpipe.sources.sampler import Collector, Sampler
from ccpipe.telemetry import Telemetry

SITE = {"cluster": "fritz", "hostname": "f0101", "type": "node"}
SECOND = 10**9
INTERVAL = 0.05
SLOT = round(INTERVAL * SECOND)
DEADLINE = 20.0


class Counting:
    """A collector that tells how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def collect(self, time: int) -> Iterator[Message]:
        """Tell it, and remember for which slot."""
        self.asked.append(time)
        yield metric("asked", len(self.asked), time=time, tags={"type": "node"})


class Failing:
    """A collector that gives one metric and then fails, as often as it is asked."""

    def __init__(self, error: Callable[[int], Exception]) -> None:
        self.error = error
        self.asked = 0

    def collect(self, time: int) -> Iterator[Message]:
        """Give one metric and fail."""
        self.asked += 1
        yield metric("half", 1, time=time, tags={"type": "node"})
        raise self.error(self.asked)


def patient(collectors: dict[str, Collector], interval: float = INTERVAL) -> Sampler:
    """Return a sampler whose batches wait for every collector, however busy the machine is."""
    return Sampler(collectors, interval=interval, tags=SITE, patience=DEADLINE)


async def take(sampler: Sampler, count: int) -> list[Batch]:
    """Return the next batches, and stop the sampler."""
    batches: list[Batch] = []
    async with asyncio.timeout(DEADLINE):
        async for batch in sampler:
            batches.append(batch)
            if len(batches) == count:
                sampler.stop()
    return batches


def slot_of(batch: Batch) -> int:
    """Return the one time that all messages of a batch carry."""
    [slot] = {message.time for message in batch.records}
    assert isinstance(slot, int)
    return slot


async def test_every_message_carries_its_slot_exactly() -> None:
    """Slots are multiples of the interval since the epoch; each is sampled once, after it began."""
    begins: list[int] = []

    class Noting(Counting):
        def collect(self, time: int) -> Iterator[Message]:
            begins.append(now())
            yield from super().collect(time)

    now = time.time_ns
    one, two = Noting(), Counting()
    batches = await take(
        Sampler(
            {"one": one, "two": two},
            interval=INTERVAL,
            jitter=0.01,
            tags=SITE,
            patience=DEADLINE,
        ),
        4,
    )
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

    [batch] = await take(patient({"thread": Thread()}), 1)
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
    sampler = Sampler(
        {"m": Measured()}, interval=INTERVAL, tags=SITE, units=units, patience=DEADLINE
    )
    [batch] = await take(sampler, 1)
    assert [message.tags.get("unit") for message in batch.records] == ["W", None, "l"]


async def test_stop_wakes_the_sleep() -> None:
    """A sampler that waits for a slot of tomorrow ends at once, with nothing handed over."""
    sampler = Sampler({"c": Counting()}, interval=86400, tags=SITE)
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

    sampler = patient({"c": Blocking()})
    taking = asyncio.create_task(take(sampler, 100))
    async with asyncio.timeout(DEADLINE):
        while not begun.is_set():
            await asyncio.sleep(0.001)
    sampler.stop()
    go_on.set()
    assert len(await taking) == 1


async def test_slots_that_pass_while_the_consumer_is_slow_are_counted_and_skipped() -> None:
    """They are never made up for: the next sample is that of a slot yet to begin."""
    telemetry = Telemetry()
    sampler = Sampler({"c": Counting()}, interval=INTERVAL, tags=SITE, telemetry=telemetry)
    slots: list[int] = []
    async with asyncio.timeout(DEADLINE):
        async for batch in sampler:
            slots.append(slot_of(batch))
            if len(slots) == 1:
                while time.time_ns() < slots[0] + 3.5 * SLOT:
                    await asyncio.sleep(0.001)
            if len(slots) == 3:
                sampler.stop()
    assert slots[1] >= slots[0] + 4 * SLOT
    passed = (slots[2] - slots[0]) // SLOT - 2
    assert telemetry.total(telemetry.missed) == passed >= 3


async def test_a_failing_collector_costs_its_own_metrics_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The others' sample is whole, nothing of the failed one's is told, and it is asked again."""
    failing, counting = Failing(lambda _: RuntimeError("no luck")), Counting()
    collectors: dict[str, Collector] = {"failing": failing, "counting": counting}
    batches = await take(patient(collectors), 3)
    assert [[m.name for m in batch.records] for batch in batches] == [["asked"]] * 3
    assert failing.asked == 3
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING].count(
        "collector failing: RuntimeError: no luck"
    ) == 1


async def test_each_text_of_an_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """What fails the same way every ten seconds fills no log; another reason is told."""
    failing = Failing(lambda asked: DataError(f"reason {asked % 2}"))
    await take(patient({"c": failing, "counting": Counting()}), 6)
    assert failing.asked == 6
    told = [r.message for r in caplog.records if "reason" in r.message]
    assert sorted(told) == ["collector c: DataError: reason 0", "collector c: DataError: reason 1"]


@pytest.mark.parametrize(
    ("error", "level", "text"),
    [
        (FileNotFoundError(2, "gone", "/dev/x"), "INFO", "[Errno 2] gone: '/dev/x'"),
        (OSError(95, "not supported"), "INFO", "[Errno 95] not supported"),
        (
            PermissionError(13, "not for you", "/sys/x"),
            "WARNING",
            "[Errno 13] not for you: '/sys/x'",
        ),
        (MissingExtra("nvidia-ml-py", "gpu"), "WARNING", "nvidia-ml-py is not installed; type:"),
    ],
)
async def test_what_this_machine_has_not_costs_one_line(
    clocks: "Clocks", caplog: pytest.LogCaptureFixture, error: Exception, level: str, text: str
) -> None:
    """Its collector is off with one line, and asked again, silently, a minute later only.

    Hardware that is not there is no reason to worry; what can be mended is a warning.
    """
    caplog.set_level(logging.INFO)
    absent = Failing(lambda _: error)
    collectors: dict[str, Collector] = {"absent": absent, "counting": Counting()}
    sampler = OnTheseClocks(clocks, jitter=0, jumps={}, collectors=collectors)
    names = [message.name async for batch in sampler.batches(13) for message in batch.records]
    assert names == ["asked"] * 13
    assert absent.asked == 3
    [record] = caplog.records
    assert record.message.startswith(f"collector absent is off: {text}")
    assert record.levelname == level


async def test_what_goes_away_is_a_warning(
    clocks: "Clocks", caplog: pytest.LogCaptureFixture
) -> None:
    """Hardware that was there and is there no more."""

    class Vanishing(Counting):
        def collect(self, time: int) -> Iterator[Message]:
            yield from super().collect(time)
            if len(self.asked) > 1:
                raise FileNotFoundError(2, "gone", "/dev/x")

    collectors: dict[str, Collector] = {"vanishing": Vanishing(), "counting": Counting()}
    sampler = OnTheseClocks(clocks, jitter=0, jumps={}, collectors=collectors)
    assert [len(batch.records) async for batch in sampler.batches(3)] == [2, 1, 1]
    [record] = caplog.records
    assert (record.levelname, record.message) == (
        "WARNING", "collector vanishing is off: [Errno 2] gone: '/dev/x'",
    )  # fmt: skip


async def test_what_comes_back_is_on_again(
    clocks: "Clocks", caplog: pytest.LogCaptureFixture
) -> None:
    """A driver that was loaded since, for example: nothing is off for ever."""
    caplog.set_level(logging.INFO)

    class Returning(Counting):
        def collect(self, time: int) -> Iterator[Message]:
            yield from super().collect(time)
            if len(self.asked) == 1:
                raise FileNotFoundError(2, "not yet", "/dev/x")

    returning = Returning()
    collectors: dict[str, Collector] = {"returning": returning, "counting": Counting()}
    sampler = OnTheseClocks(clocks, jitter=0, jumps={}, collectors=collectors)
    sizes = [len(batch.records) async for batch in sampler.batches(9)]
    assert sizes == [1] * 6 + [2] * 3
    assert [record.message for record in caplog.records] == [
        "collector returning is off: [Errno 2] not yet: '/dev/x'",
        "collector returning is on again",
    ]


@pytest.mark.parametrize("number", [24, 5, 12, 11, 16])
async def test_an_error_that_may_pass_switches_nothing_off(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Too many open files, a failed read, no memory, busy: asked again at the next slot."""
    failing = Failing(lambda _: OSError(number, "for now", "/sys/x"))
    await take(patient({"c": failing, "counting": Counting()}), 3)
    assert failing.asked == 3
    # A busy machine may also be told of a slot that passed.
    [told] = [record.message for record in caplog.records if "for now" in record.message]
    assert told.endswith(f"Error: [Errno {number}] for now: '/sys/x'")


class Hanging(Counting):
    """A collector that waits for `go_on` before it tells anything."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = 0, threading.Event()

    def collect(self, time: int) -> Iterator[Message]:
        """Wait, then tell."""
        self.begun += 1
        assert self.go_on.wait(DEADLINE)
        yield from super().collect(time)


async def test_a_collector_that_hangs_delays_nobody_and_is_asked_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The others' samples come slot by slot; it is cut off with one line, its slots are counted."""
    telemetry, hanging, counting = Telemetry(), Hanging(), Counting()
    sampler = Sampler(
        {"hanging": hanging, "counting": counting},
        interval=INTERVAL,
        tags=SITE,
        patience=0.005,
        telemetry=telemetry,
    )
    batches = await take(sampler, 5)
    hanging.go_on.set()
    assert {message.name for batch in batches for message in batch.records} == {"asked"}
    assert len({message.time for batch in batches for message in batch.records}) == 5
    assert hanging.begun == 1
    assert hanging.asked == []
    lines = [record.message for record in caplog.records if "hanging" in record.message]
    assert lines == ["collector hanging still hangs at its next slot: cut off"]
    assert telemetry.total(telemetry.missed) >= 3


async def test_a_collector_that_was_cut_off_takes_part_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What it says of a slot long gone is thrown away; at its next slot it is asked again."""
    caplog.set_level(logging.INFO)
    hanging = Hanging()
    sampler = Sampler(
        {"hanging": hanging, "counting": Counting()}, interval=INTERVAL, tags=SITE, patience=0.005
    )
    slots: list[int] = []
    async with asyncio.timeout(DEADLINE):
        async for batch in sampler:
            slots += [slot_of(batch)]
            if any("cut off" in record.message for record in caplog.records):
                hanging.go_on.set()
            if any("answers again" in record.message for record in caplog.records):
                sampler.stop()
    assert len(hanging.asked) >= 1
    assert hanging.asked[0] < slots[-1]
    assert hanging.begun >= 2


async def test_what_is_said_late_comes_with_the_next_batch(clocks: "Clocks") -> None:
    """A collector slower than the patience loses nothing, and its messages carry its own slot."""
    hanging = Hanging()
    collectors: dict[str, Collector] = {"hanging": hanging, "counting": Counting()}
    sampler = OnTheseClocks(
        clocks, jitter=0, jumps={}, collectors=collectors, intervals={"hanging": 60}, patience=0.5
    )
    told: list[list[int]] = []
    async for batch in sampler.batches(10):
        told.append([message.time for message in batch.records])
        if hanging.begun and not hanging.asked:
            hanging.go_on.set()
            async with asyncio.timeout(DEADLINE):
                while any(turn.thread.is_busy for turn in sampler._turns):
                    await asyncio.sleep(0.001)
    [late] = [times for times in told if len(set(times)) == 2]
    assert late[0] == hanging.asked[0]
    assert late[1] == late[0] + 10 * SECOND
    assert hanging.asked[0] % (60 * SECOND) == 0


async def test_a_collector_that_hangs_costs_the_others_no_slot(clocks: "Clocks") -> None:
    """Every slot has its sample, and only what hangs is counted as missed."""
    hanging = Hanging()
    collectors: dict[str, Collector] = {"hanging": hanging, "counting": Counting()}
    sampler = OnTheseClocks(clocks, jitter=0, jumps={}, collectors=collectors, patience=0.5)
    slots = [slot_of(batch) async for batch in sampler.batches(5)]
    hanging.go_on.set()
    assert slots == list(range(slots[0], slots[0] + 50 * SECOND, 10 * SECOND))
    assert hanging.begun == 1
    assert sampler.telemetry.total(sampler.telemetry.missed) == 4


async def test_what_is_ready_at_the_end_is_handed_over(clocks: "Clocks") -> None:
    """A collector that answered late, and then there was no next slot."""
    hanging = Hanging()
    collectors: dict[str, Collector] = {"hanging": hanging, "counting": Counting()}
    sampler = OnTheseClocks(clocks, jitter=0, jumps={}, collectors=collectors, patience=0.5)
    told: list[list[int]] = []
    async for batch in sampler:
        told.append([message.time for message in batch.records])
        sampler.stop()
        hanging.go_on.set()
        async with asyncio.timeout(DEADLINE):
            while any(not answer.done() for answer in sampler._pending):
                await asyncio.sleep(0.001)
    assert told == [hanging.asked, hanging.asked]


HANGS = """
import asyncio, threading
from ccpipe.message import metric
from ccpipe.sources.sampler import Sampler

class Hanging:
    def collect(self, time):
        threading.Event().wait()

class Fine:
    def collect(self, time):
        return [metric("fine", 1, time=time, tags={"type": "node"})]

async def main():
    collectors = {"hanging": Hanging(), "fine": Fine()}
    sampler = Sampler(collectors, interval=0.05, tags={}, patience=0.01)
    async for batch in sampler:
        print([message.name for message in batch.records], flush=True)
        sampler.stop()

asyncio.run(main())
"""


def test_a_collector_that_hangs_does_not_keep_the_process_from_ending() -> None:
    """A read that hangs in the kernel cannot be ended: its thread is left behind."""
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "['fine']\n"


FULL = """
import asyncio, os, resource
from ccpipe.sources.load import Load
from ccpipe.sources.sampler import Sampler

class Filling(Load):
    taken = []
    asked = 0

    def collect(self, time):
        self.asked += 1
        if self.asked == 1:
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(7)[1]))
            try:
                while True:
                    self.taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                pass
        if self.asked == 3:
            while self.taken:
                os.close(self.taken.pop())
        yield from super().collect(time)

async def main():
    filling = Filling()
    sampler = Sampler({"load": filling}, interval=0.05, tags={}, patience=20)
    async for batch in sampler:
        print(filling.asked, batch.records[0].name)
        sampler.stop()

asyncio.run(main())
"""


def test_too_many_open_files_switch_nothing_off() -> None:
    """A process that really has no file left is asked again, and answers when it has."""
    done = subprocess.run(
        [sys.executable, "-c", FULL], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "3 cpu_load\n"
    assert done.stderr.count("collector load: OSError: [Errno 24] Too many open files") == 1


async def test_threads_end_with_the_sampler() -> None:
    """None is left behind that could end."""
    before = set(threading.enumerate())
    await take(patient({"one": Counting(), "two": Counting()}), 2)
    mine = [t for t in threading.enumerate() if t not in before and t.name in ("one", "two")]
    for thread in mine:
        thread.join(DEADLINE)
        assert not thread.is_alive()


async def test_an_hour_has_every_slot_once(clocks: "Clocks") -> None:
    """No drift, none twice, none missing, and nothing is held on to."""
    collectors: dict[str, Collector] = {"one": Counting(), "two": Counting()}
    sampler = OnTheseClocks(clocks, jitter=0.2, jumps={}, collectors=collectors)
    slots = [slot_of(batch) async for batch in sampler.batches(360)]
    assert slots == list(range(slots[0], slots[0] + 3600 * SECOND, 10 * SECOND))
    assert sampler.telemetry.total(sampler.telemetry.missed) == 0
    assert sampler._pending == {}


async def test_each_collector_has_its_own_interval(clocks: "Clocks") -> None:
    """Each is asked at the multiples of its interval, so that slots of several meet."""
    every = {"ten": Counting(), "fifteen": Counting(), "minute": Counting()}
    sampler = OnTheseClocks(
        clocks, jitter=0, jumps={}, collectors=every, intervals={"fifteen": 15, "minute": 60}
    )
    slots = [slot async for slot, _ in sampler.samples(13)]
    assert slots == sorted({slot for one in every.values() for slot in one.asked})
    for name, seconds in {"ten": 10, "fifteen": 15, "minute": 60}.items():
        asked = every[name].asked
        assert asked == list(range(asked[0], slots[-1] + 1, seconds * SECOND))
        assert asked[0] % (seconds * SECOND) == 0
        assert asked[0] - START < seconds * SECOND
    assert sampler.telemetry.total(sampler.telemetry.missed) == 0


async def test_missed_slots_are_those_of_each_interval(clocks: "Clocks") -> None:
    """A consumer that is away for a minute costs six slots of ten seconds and one of a minute."""
    every: dict[str, Collector] = {"ten": Counting(), "minute": Counting()}
    sampler = OnTheseClocks(clocks, jitter=0, jumps={}, collectors=every, intervals={"minute": 60})
    batches = sampler.batches(20)
    async for batch in batches:
        if len(batch.records) == 2:
            break
    clocks.pass_by(65)
    async for batch in batches:
        if len(batch.records) == 2:
            break
    assert sampler.telemetry.total(sampler.telemetry.missed) == 6 + 1
    await batches.aclose()


async def test_once_gives_one_batch_with_rates() -> None:
    """Rates need two readings, so both are taken; only the second one's messages come."""
    counting = Counting()
    collectors: dict[str, Collector] = {
        "counting": counting,
        "cpu": Cpu(),
        "network": Network(exclude=[]),
    }
    sampler = Sampler(collectors, interval=INTERVAL, tags=SITE, once=True)
    [batch] = [batch async for batch in sampler]
    values = {message.name: message.value for message in batch.records}
    assert values["asked"] == 2
    assert {"cpu_user", "cpu_used", "net_bytes_in_bw"} <= set(values)
    assert slot_of(batch) % SLOT == 0
    assert slot_of(batch) <= time.time_ns()


async def test_it_is_a_source_of_a_pipe() -> None:
    """The pipe carries its batches to a sink until it is told to stop."""
    stop = asyncio.Event()
    seen: list[Message] = []

    class Keeping:
        async def write(self, records: Records) -> None:
            seen.extend(records)
            stop.set()

    sampler = patient({"c": Counting()})
    async with asyncio.timeout(DEADLINE):
        await run(sampler, Keeping(), limits=Limits(age=INTERVAL), stop=stop)
    assert [message.value for message in seen] == list(range(1, len(seen) + 1))
    assert seen


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
        Sampler({}, interval=interval, jitter=jitter, tags=SITE)


def test_a_wrong_interval_of_a_collector_is_named() -> None:
    """It is checked as the common one is, and the jitter must be below it too."""
    collectors: dict[str, Collector] = {"c": Counting()}
    with pytest.raises(ConfigError, match="interval of collector c is 0 s"):
        Sampler(collectors, interval=10, intervals={"c": 0}, tags=SITE)
    with pytest.raises(ConfigError, match="jitter is 2 s: it must be from 0 to below 1 s"):
        Sampler(collectors, interval=10, intervals={"c": 1}, jitter=2, tags=SITE)


class Clocks:
    """The wall clock and the monotonic one of a machine whose wall clock is set by someone.

    It stands in for the module ``time``: nobody can set the clock of the machine under test.
    """

    def __init__(self, wall: int) -> None:
        self.wall = wall
        self.passed = 0

    def time_ns(self) -> int:
        """Tell the wall clock's time."""
        return self.wall

    def monotonic(self) -> float:
        """Tell the time that passed."""
        return self.passed / SECOND

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self.wall += round(seconds * SECOND)
        self.passed += round(seconds * SECOND)


class OnTheseClocks(Sampler):
    """A sampler that sleeps on `clocks`; `jumps` says by how much the n-th sleep sets the wall."""

    def __init__(
        self,
        clocks: Clocks,
        jitter: float,
        jumps: dict[int, int],
        collectors: Mapping[str, Collector] | None = None,
        intervals: dict[str, float] | None = None,
        patience: float = DEADLINE,
    ) -> None:
        self.telemetry = Telemetry()
        super().__init__(
            collectors or {"c": Counting()},
            interval=10,
            intervals=intervals,
            jitter=jitter,
            tags=SITE,
            patience=patience,
            telemetry=self.telemetry,
        )
        self.clocks, self.jumps = clocks, jumps
        self.sleeps: list[float] = []

    async def _pause(self, seconds: float) -> bool:
        if self._stopped.is_set():
            return False
        self.sleeps.append(seconds)
        self.clocks.pass_by(seconds)
        self.clocks.wall += self.jumps.get(len(self.sleeps), 0)
        return True

    async def batches(self, count: int) -> AsyncGenerator[Batch]:
        """Yield so many batches."""
        async for batch in self:
            yield batch
            if (count := count - 1) == 0:
                self.stop()

    async def samples(self, count: int) -> AsyncIterator[tuple[int, int]]:
        """Yield each batch's slot and the wall clock when it came."""
        async for batch in self.batches(count):
            yield slot_of(batch), self.clocks.wall


START = 1_740_027_953 * SECOND
"""Three seconds into a slot."""


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    """Return clocks that the sampler reads in place of the machine's."""
    clocks = Clocks(START)
    monkeypatch.setattr("ccpipe.sources.sampler.time", clocks)
    return clocks


async def test_the_jitter_stays_in_its_bound_and_differs(clocks: Clocks) -> None:
    """Each sample is taken at its slot plus a random part of the jitter."""
    sampler = OnTheseClocks(clocks, jitter=0.5, jumps={})
    delays = [wall - slot async for slot, wall in sampler.samples(200)]
    assert all(0 <= delay <= 0.5 * SECOND for delay in delays)
    assert len(set(delays)) > 100
    assert sampler.telemetry.total(sampler.telemetry.missed) == 0


async def test_without_jitter_a_sample_is_taken_when_its_slot_begins(clocks: Clocks) -> None:
    """Slot after slot, none left out."""
    sampler = OnTheseClocks(clocks, jitter=0, jumps={})
    seen = [pair async for pair in sampler.samples(3)]
    first = START + 7 * SECOND
    assert seen == [(slot, slot) for slot in (first, first + 10 * SECOND, first + 20 * SECOND)]


@pytest.mark.parametrize("jump", [3600 * SECOND, 123_456_789_000, -3600 * SECOND, -SECOND, -1000])
async def test_a_clock_that_is_set_costs_one_slot_at_most(clocks: Clocks, jump: int) -> None:
    """Samples go on in the new time's slots, and jumped slots are not counted as missed."""
    sampler = OnTheseClocks(clocks, jitter=0, jumps={3: jump})
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
    sampler = OnTheseClocks(clocks, jitter=0, jumps={1: -5_000_000})
    assert [pair async for pair in sampler.samples(1)] == [(START + 7 * SECOND,) * 2]
    assert sampler.sleeps == [7.0, 0.005]
