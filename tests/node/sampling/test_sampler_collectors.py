"""Collectors that fail or hang."""

import asyncio
import logging
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ccpipe.errors import DataError, MissingExtra
from ccpipe.message import Message
from ccpipe.node.sampling.collector import Collector, SoftErrors
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.node.fake_sampling import (
    DEADLINE,
    SECOND,
    Clocks,
    Counting,
    Failing,
    Hanging,
    OnTheseClocks,
    cut_off,
    slot_of,
    take,
    waiting_sampler,
)


async def test_failing_collector_affects_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its records are dropped, and it is read again at the next slot."""
    failing, counting = Failing(lambda _: RuntimeError("no luck")), Counting()
    batches = await take(waiting_sampler({"failing": failing, "counting": counting}), 3)
    assert [[m.name for m in batch.records] for batch in batches] == [["asked"]] * 3
    assert failing.asked == 3
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING].count(
        "collector failing: RuntimeError: no luck"
    ) == 1


_NOTHING = "collectors without data on this machine: absent"


@pytest.mark.parametrize(
    ("error", "level", "text"),
    [
        (FileNotFoundError(2, "missing", "/dev/x"), "INFO", _NOTHING),
        (OSError(95, "not supported"), "INFO", _NOTHING),
        (
            PermissionError(13, "not for you", "/sys/x"),
            "WARNING",
            "collector absent is off: [Errno 13] not for you: '/sys/x'",
        ),
        (
            MissingExtra("nvidia-ml-py", "gpu"),
            "WARNING",
            "collector absent is off: nvidia-ml-py is not installed; type:",
        ),
    ],
)
async def test_absent_collector_is_logged_once_and_retried_after_minute(
    clocks: Clocks, caplog: pytest.LogCaptureFixture, error: Exception, level: str, text: str
) -> None:
    """Missing hardware is logged at INFO; causes that can be repaired are warnings."""
    caplog.set_level(logging.INFO)
    absent = Failing(lambda _: error)
    sampler = OnTheseClocks(clocks, collectors={"absent": absent, "counting": Counting()})
    names = [message.name async for batch in sampler.some(13) for message in batch.records]
    assert names == ["asked"] * 13
    assert absent.asked == 3
    [record] = caplog.records
    assert record.message.startswith(text)
    assert record.levelname == level


async def test_absent_collectors_are_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """DEBUG has the reasons."""
    caplog.set_level(logging.DEBUG)
    collectors: dict[str, Collector] = {
        name: Failing(lambda _, name=name: FileNotFoundError(2, "gone", f"/dev/{name}"))  # type: ignore[misc]
        for name in ("c", "a", "b")
    }
    await take(waiting_sampler({**collectors, "counting": Counting()}), 2)
    lines = [(record.levelname, record.message) for record in caplog.records]
    text = "collectors without data on this machine: a, b, c"
    assert [line for line in lines if "without data" in line[1]] == [("INFO", text)]
    reasons = [message for level, message in lines if level == "DEBUG" and "is off" in message]
    assert "collector a is off: [Errno 2] gone: '/dev/a'" in reasons


@pytest.mark.parametrize("yielded", [1, None, "text", ("cpu_load", 1.0), {"name": "cpu_load"}])
async def test_collector_with_wrong_records_is_logged_once_and_off(
    clocks: Clocks, caplog: pytest.LogCaptureFixture, yielded: object
) -> None:
    """The others continue; it is read again after a minute."""

    class Wrong(Counting):
        def collect(self, time: int) -> Iterator[Message]:
            list(super().collect(time))
            yield yielded  # type: ignore[misc]

    wrong = Wrong()
    sampler = OnTheseClocks(clocks, collectors={"wrong": wrong, "counting": Counting()})
    sizes = [len(batch.records) async for batch in sampler.some(13)]
    assert sizes == [1] * 13
    assert len(wrong.asked) == 3
    [record] = caplog.records
    assert record.message == f"collector wrong is off: expected Message, got {yielded!r}"


@pytest.mark.parametrize("error", [SystemExit(3), TypeError("'int' object is not iterable")])
async def test_collector_that_exits_or_returns_none_affects_no_other(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Its thread continues, and each failure is counted."""

    class Wrong(Counting):
        def collect(self, time: int) -> Iterator[Message]:
            list(super().collect(time))
            if isinstance(error, SystemExit):
                raise error
            return 5  # type: ignore[return-value]

    wrong, telemetry = Wrong(), Telemetry()
    sampler = waiting_sampler({"wrong": wrong, "counting": Counting()}, telemetry)
    batches = await take(sampler, 3)
    assert [len(batch.records) for batch in batches] == [1] * 3
    assert len(wrong.asked) == telemetry.total(telemetry.failed_reads) == 3
    assert "collector wrong: " in caplog.text


async def test_collector_that_vanishes_is_warning(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    error = FileNotFoundError(2, "missing", "/dev/x")
    vanishing = Failing(lambda asked: error if asked > 1 else None)
    sampler = OnTheseClocks(clocks, collectors={"vanishing": vanishing, "counting": Counting()})
    assert [len(batch.records) async for batch in sampler.some(3)] == [2, 1, 1]
    [record] = caplog.records
    assert (record.levelname, record.message) == (
        "WARNING", "collector vanishing is off: [Errno 2] missing: '/dev/x'",
    )  # fmt: skip


async def test_collector_that_returns_is_on_again(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    """After a driver was loaded, for example."""
    caplog.set_level(logging.INFO)
    error = FileNotFoundError(2, "not yet", "/dev/x")
    returning = Failing(lambda asked: error if asked == 1 else None)
    sampler = OnTheseClocks(clocks, collectors={"returning": returning, "counting": Counting()})
    sizes = [len(batch.records) async for batch in sampler.some(9)]
    assert sizes == [1] * 6 + [2] * 3
    assert [record.message for record in caplog.records] == [
        "collectors without data on this machine: returning",
        "collector returning is on again",
    ]


@pytest.mark.parametrize("number", [24, 5, 12, 11, 16])
async def test_temporary_error_keeps_collector_on(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Too many open files, a failed read, no memory, busy: read again at the next slot."""
    failing = Failing(lambda _: OSError(number, "for now", "/sys/x"))
    await take(waiting_sampler({"c": failing, "counting": Counting()}), 3)
    assert failing.asked == 3
    # On a busy machine there may also be a warning of a missed slot.
    [reported] = [record.message for record in caplog.records if "for now" in record.message]
    assert reported.endswith(f"Error: [Errno {number}] for now: '/sys/x'")


class PartlyFailing(Counting):
    """A collector with two failing readings each time."""

    def __init__(self) -> None:
        super().__init__()
        self.soft = SoftErrors("partly")

    def collect(self, time: int) -> Iterator[Message]:
        for number in range(2):
            with self.soft.noted():
                raise DataError(f"reading {number}")
        found = list(super().collect(time))
        self.soft.report(found)
        yield from found


async def test_failed_readings_are_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    telemetry, partly = Telemetry(), PartlyFailing()
    sampler = waiting_sampler({"partly": partly}, telemetry)
    batches = await take(sampler, 3)
    assert [len(batch.records) for batch in batches] == [1, 1, 1]
    assert telemetry.failed_reads.values == {"partly": 2 * len(partly.asked)}
    lines = [each.message for each in caplog.records if "partly" in each.message]
    assert lines == ["collector partly: reading 0", "collector partly: reading 1"]


async def test_collector_is_read_again_after_cut_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Records of a past slot are dropped."""
    caplog.set_level(logging.INFO)
    hanging = Hanging()
    sampler = waiting_sampler({"hanging": hanging, "counting": Counting()}, timeout=0.02)
    slots: list[int] = []
    async with asyncio.timeout(DEADLINE):
        async for batch in sampler.batches():
            slots += [message.time for message in batch.records if message.time is not None]
            if "cut off" in caplog.text:
                hanging.go_on.set()
            if "responds again" in caplog.text and hanging.begun >= 2:
                sampler.stop()
    assert hanging.asked[0] < max(slots)


async def test_late_records_are_in_next_batch(clocks: Clocks) -> None:
    """A collector slower than the timeout loses nothing, and its messages have its own slot."""
    hanging = Hanging()
    collectors: dict[str, Collector] = {"hanging": hanging, "counting": Counting()}
    sampler = OnTheseClocks(
        clocks, collectors=collectors, intervals={"hanging": 60}, hanging=["hanging"]
    )
    reported: list[list[int]] = []
    released = 0

    def is_busy() -> bool:
        return any(each.reader.is_busy for each in sampler._scheduled.values())

    async for batch in sampler.some(10):
        reported.append([message.time for message in batch.records])
        if is_busy() and not hanging.asked:
            await eventually(lambda: hanging.begun > 0)  # on a busy machine its thread starts late
            released = batch.records[-1].time
            hanging.go_on.set()
            sampler.hanging.clear()
            await eventually(lambda: not is_busy())
    [late] = [times for times in reported if len(set(times)) == 2]
    assert late[0] == hanging.asked[0]
    assert late[1] == released + 10 * SECOND
    assert hanging.asked[0] % (60 * SECOND) == 0


async def test_hanging_collector_loses_no_slot_of_others(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    """It is cut off with one log line, and its missed slots are counted."""
    hanging = Hanging()
    sampler = OnTheseClocks(
        clocks, collectors={"hanging": hanging, "counting": Counting()}, hanging=["hanging"]
    )
    slots = [slot_of(batch) async for batch in sampler.some(5)]
    hanging.go_on.set()
    assert slots == list(range(slots[0], slots[0] + 50 * SECOND, 10 * SECOND))
    await eventually(lambda: hanging.begun > 0)
    assert hanging.begun == 1
    assert sampler.telemetry.total(sampler.telemetry.missed) == 4
    [line] = [record.message for record in caplog.records]
    assert re.fullmatch(cut_off("hanging"), line)


async def test_finished_readings_are_yielded_at_stop(clocks: Clocks) -> None:
    hanging = Hanging()
    sampler = OnTheseClocks(
        clocks, collectors={"hanging": hanging, "counting": Counting()}, hanging=["hanging"]
    )
    reported: list[list[int]] = []
    async for batch in sampler.batches():
        reported.append([message.time for message in batch.records])
        sampler.stop()
        hanging.go_on.set()
        await eventually(lambda: all(answer.done() for answer in sampler._pending))
    assert reported == [hanging.asked, hanging.asked]


HANGS = """
import asyncio, threading
from ccpipe.message import metric
from ccpipe.node.sampling.sampler import Sampler, SamplerSettings
from ccpipe.node.sampling.collector import Collector

class Hanging:
    def collect(self, time):
        threading.Event().wait()

class Fine:
    def collect(self, time):
        return [metric("fine", 1, time=time, tags={"type": "node"})]

async def main():
    collectors = {"hanging": Hanging(), "fine": Fine()}
    sampler = Sampler(SamplerSettings(collectors, interval=0.05, tags={}, timeout=0.01))
    async for batch in sampler.batches():
        print({message.name for message in batch.records}, flush=True)
        sampler.stop()

asyncio.run(main())
"""


def test_hanging_collector_does_not_keep_process_from_exiting() -> None:
    """A read that hangs in the kernel cannot be cancelled: its thread is a daemon."""
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "{'fine'}\n"


async def test_threads_end_with_sampler() -> None:
    sampler = waiting_sampler({"one": Counting(), "two": Counting()})
    await take(sampler, 2)
    threads = {
        (each.reader.thread or sampler._threads.shared)._thread
        for each in sampler._scheduled.values()
    }
    assert threads
    for thread in threads:
        assert thread is not None
        await asyncio.to_thread(thread.join, DEADLINE)
        assert not thread.is_alive()
