"""Collectors and clocks that tests of the sampler share."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping
from typing import Any

import pytest

from ccpipe.formats.lineprotocol.builder import TaggedRecords
from ccpipe.message import Message, metric
from ccpipe.node.sampling.collector import Collector
from ccpipe.node.sampling.reading import Reading
from ccpipe.node.sampling.sampler import Sampler, SamplerSettings
from ccpipe.pipeline import Batch
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
        self.asked.append(time)
        yield metric("asked", len(self.asked), time=time, tags={"type": "node"})


class Failing:
    """A collector that gives one metric and then fails, if there is an error for this time."""

    def __init__(self, error: Callable[[int], BaseException | None]) -> None:
        self.error = error
        self.asked = 0

    def collect(self, time: int) -> Iterator[Message]:
        self.asked += 1
        yield metric("half", 1, time=time, tags={"type": "node"})
        if error := self.error(self.asked):
            raise error


def settings(collectors: Mapping[str, Collector], **changes: Any) -> SamplerSettings:
    """Return settings by which batches wait for every collector, however busy the machine is."""
    usual = {"interval": INTERVAL, "tags": SITE, "timeout": DEADLINE}
    return SamplerSettings(collectors, **{**usual, **changes})


def waiting_sampler(
    collectors: Mapping[str, Collector], telemetry: Telemetry | None = None, **changes: Any
) -> Sampler:
    return Sampler(settings(collectors, **changes), telemetry=telemetry)


async def take(sampler: Sampler, count: int) -> list[Batch[Any]]:
    batches: list[Batch[Any]] = []
    async with asyncio.timeout(DEADLINE):
        async for batch in sampler.batches():
            batches.append(batch)
            if len(batches) == count:
                sampler.stop()
    return batches


def slot_of(batch: Batch[Any]) -> int:
    [slot] = {message.time for message in batch.records}
    assert isinstance(slot, int)
    return slot


class Hanging(Counting):
    """A collector that waits for `go_on` before it tells anything."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = 0, threading.Event()

    def collect(self, time: int) -> Iterator[Message]:
        self.begun += 1
        assert self.go_on.wait(DEADLINE)
        yield from super().collect(time)


class Clocks:
    """The wall clock and the monotonic one of a machine whose wall clock is set by someone.

    It replaces the module ``time``: nobody can set the clock of the machine under test.
    """

    def __init__(self, wall: int) -> None:
        self.wall = wall
        self.passed = 0

    def time_ns(self) -> int:
        return self.wall

    def monotonic(self) -> float:
        return self.passed / SECOND

    def pass_by(self, seconds: float) -> None:
        self.wall += round(seconds * SECOND)
        self.passed += round(seconds * SECOND)


def cut_off(name: str) -> str:
    """Return the pattern of the log line; a busy machine may not have run the collector yet."""
    return f"collector {name} (still .*|has not started yet) at its next slot: cut off"


class OnTheseClocks(Sampler):
    """A sampler that sleeps on `clocks`; `jumps` says by how much the n-th sleep sets the wall.

    It waits for every collector but those that are `hanging`, however busy the machine is.
    """

    def __init__(
        self,
        clocks: Clocks,
        jitter: float = 0.0,
        jumps: dict[int, int] | None = None,
        collectors: Mapping[str, Collector] | None = None,
        intervals: dict[str, float] | None = None,
        hanging: Collection[str] = (),
    ) -> None:
        self.telemetry = Telemetry()
        used = settings(
            collectors or {"c": Counting()}, interval=10, intervals=intervals or {}, jitter=jitter
        )
        super().__init__(used, telemetry=self.telemetry)
        self.clocks, self.jumps, self.hanging = clocks, jumps or {}, set(hanging)
        self.sleeps: list[float] = []

    async def _pause(self, seconds: float) -> bool:
        if self._stopped.is_set():
            return False
        self.sleeps.append(seconds)
        self.clocks.pass_by(seconds)
        self.clocks.wall += self.jumps.get(len(self.sleeps), 0)
        return True

    async def _collect(self, pending: list[Reading], seconds: float) -> list[TaggedRecords]:
        prompt = [
            one for one in pending if self._pending[one].scheduled.reader.name not in self.hanging
        ]
        await self._threads.wait(prompt, seconds)
        return await super()._collect(pending, 0)

    async def some(self, count: int) -> AsyncGenerator[Batch[Any]]:
        async for batch in self.batches():
            yield batch
            if (count := count - 1) == 0:
                self.stop()

    async def samples(self, count: int) -> AsyncIterator[tuple[int, int]]:
        """Yield each batch's slot and the wall clock when it came."""
        async for batch in self.some(count):
            yield slot_of(batch), self.clocks.wall


START = 1_740_027_953 * SECOND
"""Three seconds into a slot."""


def set_clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks(START)
    monkeypatch.setattr("ccpipe.node.sampling.sampler.time", clocks)
    return clocks
