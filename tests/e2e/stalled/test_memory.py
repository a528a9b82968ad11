"""A hanging store: with any sink memory is bounded, and nothing is lost."""

import asyncio
import contextlib
import gc
import itertools
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccpipe.formats.lineprotocol import Lines, decode, to_lines
from ccpipe.formats.sonar import Envelopes, SampleAttributes, SampleData, SampleEnvelope
from ccpipe.message import event
from ccpipe.pipeline import Batch, Limits, Sink, Source, run
from ccpipe.records import Records
from ccpipe.registry import entry_points
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.e2e.stalled.stores import CANNOT_STALL, STORES, TIMEOUT, Stalling

NOON = 1_740_052_800
LIMITS = Limits(max_bytes=2**21, max_memory=2**22, max_wait=0.5, max_backoff=0.05)
LARGEST_BATCH = 2**18
SLACK = LIMITS.max_memory
"""Memory of a write in addition to its records: joined, encoded, cut in halves."""
TRIES = 6
"""How often a write fails before memory is measured; after a timeout it is halved each time."""


def lines(number: int) -> Lines:
    time = NOON + number
    rows = (f"m,cluster=fox,hostname=n{n},type=node value={number} {time}\n" for n in range(500))
    return decode("".join(rows).encode())


def jobs(number: int) -> Lines:
    tags = {"cluster": "fox"}
    rest = f'"cluster":"fox","startTime":{NOON},"script":"{"x" * 20_000}"'
    return to_lines(
        event("job", "start_job", f'{{"jobId":{job},{rest}}}', time=NOON + number, tags=tags)
        for job in range(5 * number, 5 * number + 5)
    )


def envelopes(number: int) -> Envelopes:
    time = f"2025-04-07T12:00:{number % 60:02}Z"
    attributes = SampleAttributes(time=time, cluster="fox", node="n1")
    return Envelopes([SampleEnvelope(data=SampleData(attributes=attributes))] * 50)


RECORDS: dict[str, Callable[[int], Records]] = {
    "cc_backend": jobs,
    "postgres_sonar": envelopes,
    "jobanalyzer": envelopes,
}


class Endless(Source[Records]):
    """Yields batches without end once it may; the first one before that."""

    def __init__(self, sink: Sink[Any], make: Callable[[int], Records]) -> None:
        self.gives = sink.takes
        self.make = make
        self.goes_on, self.stopped = asyncio.Event(), False
        self.yielded = self.acknowledged = self.size = 0

    async def batches(self) -> AsyncIterator[Batch[Records]]:
        for number in itertools.count():
            if number:
                await self.goes_on.wait()
            if self.stopped:
                return
            batch = Batch(self.make(number), self.acknowledge, "test")
            self.yielded += 1
            self.size += batch.records.size
            yield batch

    async def acknowledge(self) -> None:
        self.acknowledged += 1

    def stop(self) -> None:
        self.stopped = True
        self.goes_on.set()


def traced() -> int:
    """Return the bytes that objects take which were made since tracing began."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def stand_still(stalling: Stalling, source: Endless, telemetry: Telemetry) -> None:
    await eventually(lambda: source.acknowledged == 1)
    size = source.size

    def held() -> float:
        return telemetry.registry.get_sample_value("ccpipe_queued_bytes") or 0.0

    def failures() -> int:
        return telemetry.total(telemetry.retries)

    stalling.stall()
    tracemalloc.start()
    try:
        source.goes_on.set()
        await eventually(lambda: held() >= LIMITS.max_memory or source.acknowledged > 1)
        if stalling.sink.limits.write_timeout not in (0.0, float("inf")):
            before, seen = traced(), failures()
            await eventually(lambda: failures() >= seen + TRIES, 300)  # time limits grow
            assert traced() - before < SLACK
    finally:
        tracemalloc.stop()
    assert source.acknowledged == 1
    assert source.size - size <= LIMITS.max_memory + 2 * LARGEST_BATCH


@pytest.mark.long
@pytest.mark.parametrize("name", STORES)
async def test_memory_is_bounded_while_store_hangs(name: str) -> None:
    """Back-pressure reaches the source, retries leave nothing behind, and all of it is written."""
    telemetry, stop = Telemetry(), asyncio.Event()
    # Not below pytest's directory: PostgreSQL runs as another user.
    with tempfile.TemporaryDirectory(prefix="ccpipe-stalled-") as directory:
        async with STORES[name](Path(directory)) as stalling:
            limits = msgspec.structs.replace(
                LIMITS, write_timeout=_timeout(stalling.sink), stop_timeout=60.0
            )
            source = Endless(stalling.sink, RECORDS.get(name, lines))
            pipe = asyncio.create_task(
                run(source, stalling.sink, limits=limits, telemetry=telemetry, stop=stop)
            )
            try:
                await stand_still(stalling, source, telemetry)
            finally:
                stalling.wake()
                stop.set()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(pipe), 60)
            await pipe
    assert source.acknowledged == source.yielded
    assert telemetry.total(telemetry.dead) == 0


def _timeout(sink: Sink[Any]) -> float:
    """Return how long a write may take: the test's time, where a write can be given up."""
    own = sink.limits.write_timeout
    return own if own in (0.0, float("inf")) else 2 * float(TIMEOUT)


def test_every_sink_is_tested_or_exempt() -> None:
    """An exempt one has a reason why its store cannot hang."""
    assert {*STORES, *CANNOT_STALL} == {*entry_points("sinks")}
