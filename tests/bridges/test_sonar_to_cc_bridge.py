"""The recipe sonar-to-cc, killed at any time: each job starts once and stops once."""

import asyncio
import functools
import itertools
import json
import random
import signal
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.bus.nats.streams.jetstream import consumer_of
from ccpipe.config import Site
from ccpipe.formats.sonar import (
    JobsAttributes,
    JobsData,
    JobsEnvelope,
    MetadataObject,
    SampleAttributes,
    SampleData,
    SampleDisk,
    SampleEnvelope,
    SampleJob,
    SampleProcess,
    SampleSystem,
    SlurmJob,
)
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.telemetry import Telemetry
from tests.bridges.recipes import changed, started
from tests.bus.nats.conftest import connected
from tests.conftest import eventually, free_port

META = MetadataObject(producer="sonar", version="0.19.0")
BASE = 1_795_170_750
JOBS = 150
WINDOW = 30
"""Polls for which a job that ended is still listed."""
KILLS = 4


CHANGES = {
    'use = "nats"\n': 'use = "nats"\nmax_lines = 1\n',  # so that the stream counts events
    'codec = "sonar"\n': 'codec = "sonar"\nack_wait = "1s"\n',  # of what a killed bridge held
}


def at(second: int) -> str:
    return datetime.fromtimestamp(BASE + second, UTC).isoformat()


def runs(number: int) -> list[tuple[int, int]]:
    """Return start and end of a job's runs: every seventh job is put back into the queue."""
    begin = 2 * number
    length = number % 5
    first = begin, begin + length
    return [first, (begin + 40, begin + 60)] if number % 7 == 0 else [first]


def record(number: int, now: int) -> SlurmJob | None:
    """Return Slurm's record of a job at a time; None before and long after."""
    first, last = runs(number)[0], runs(number)[-1]
    if not first[0] - 20 <= now <= last[1] + 2 * WINDOW:
        return None
    is_again = first != last and now > first[1] + 20
    current = last if is_again else first
    submit = first[1] + 20 if is_again else first[0] - 20
    job: dict[str, Any] = {
        "job_id": number, "user_name": "ann", "partition": "main", "submit_time": at(submit),
    }  # fmt: skip
    start, end = current
    if now < start:
        return SlurmJob(**job, job_state="PENDING")
    job |= {"start_time": at(start), "nodes": ("c[1-2]",)}
    if end > now:
        return SlurmJob(**job, job_state="RUNNING")
    return SlurmJob(
        **job, job_state="COMPLETED" if current == last else "REQUEUED", end_time=at(end)
    )


def polls() -> Iterator[JobsEnvelope]:
    """Yield Slurm's job records every two seconds."""
    for now in range(0, 2 * JOBS + 200, 2):
        records = [found for n in range(1, JOBS + 1) if (found := record(n, now)) is not None]
        attributes = JobsAttributes(at(now), "fox.test", tuple(records))
        yield JobsEnvelope(META, JobsData(attributes))


async def publish(site: Site, kills: list[int]) -> None:
    every = list(polls())
    async with NatsSink(site=site, telemetry=Telemetry(), codec=SonarCodec()) as sink:
        while not sink.bus.is_connected:
            await asyncio.sleep(0.01)
        for index, envelope in enumerate(every):
            while len(kills) < KILLS * index // len(every):
                await asyncio.sleep(0.01)
            await sink.write(Envelopes([envelope]))
            await asyncio.sleep(0.02)


async def collect(site: Site, found: list[tuple[str, int, int]]) -> None:
    source = NatsSource(site=site, telemetry=Telemetry(), subjects=["events"], durable="test")
    async with source:
        async for batch in source.batches():
            for message in batch.records:
                payload = json.loads(str(message.value))
                function = message.tags["function"]
                found.append((function, payload["jobId"], payload["startTime"] - BASE))
            assert batch.ack
            await batch.ack()


@pytest.fixture
async def bus(site: Site) -> AsyncIterator[Connection]:
    async with connected(site.bus) as connection:
        yield connection


async def has_read_all(bus: Connection, durable: str) -> bool:
    found = await consumer_of(bus.jetstream(), "ccpipe-fox%2Etest", durable)
    return found is not None and not (found.num_pending or found.num_ack_pending)


def is_ready(listen: str) -> bool:
    try:
        urllib.request.urlopen(f"http://{listen}/ready", timeout=5).close()
    except OSError:
        return False
    return True


@pytest.mark.long
async def test_each_job_starts_and_stops_once_when_bridge_is_killed(
    tmp_path: Path, nats_server: NatsServer, site: Site, bus: Connection
) -> None:
    """SIGKILL at random while records are repeated, also of jobs that ended."""
    recipe = changed("sonar-to-cc.toml", tmp_path, CHANGES)
    env = {"CCPIPE_BUS__SERVERS": nats_server.url, "CCPIPE_CLUSTER": site.cluster}
    dice = random.Random(3)
    found: list[tuple[str, int, int]] = []
    collecting = asyncio.create_task(collect(site, found))
    kills: list[int] = []
    publishing = asyncio.create_task(publish(site, kills))
    while not publishing.done():
        before = len(found)
        bridge = await started("bridge", recipe, **env)
        while not publishing.done() and len(found) == before:
            await asyncio.sleep(0.02)
            if await has_read_all(bus, "sonar-to-cc"):
                break
        await asyncio.sleep(dice.random())  # it is at work
        assert bridge.returncode is None, "the bridge ended by itself"
        bridge.send_signal(signal.SIGKILL)
        await bridge.wait()
        kills.append(bridge.pid)
    await publishing
    expected = Counter(
        (function, number, runs(number)[0][0])  # a requeued job goes on
        for number in range(1, JOBS + 1)
        for function in ("start_job", "stop_job")
    )
    env["CCPIPE_TELEMETRY__LISTEN"] = f"127.0.0.1:{free_port()}"
    last = await started("bridge", recipe, **env)
    await eventually(lambda: is_ready(env["CCPIPE_TELEMETRY__LISTEN"]))
    while not await has_read_all(bus, "sonar-to-cc"):
        await asyncio.sleep(0.05)
    last.terminate()
    assert await asyncio.wait_for(last.wait(), 60) == 0
    while not await has_read_all(bus, "test"):
        await asyncio.sleep(0.05)
    collecting.cancel()
    await asyncio.wait({collecting})
    assert Counter(found) == expected


SAMPLES = 60
CADENCE = 10


def sample(number: int, node: str) -> SampleEnvelope:
    """Return a sample of a node, of which one job uses one of two processors."""
    worker = SampleProcess(cmd="work", pid=7, cpu_time=CADENCE * number)
    attributes = SampleAttributes(
        at(CADENCE * number),
        "fox.test",
        node,
        SampleSystem(
            cpus=(CADENCE * number, 0), disks=(SampleDisk("sda", 8, 0, (3 * number,) * 11),)
        ),
        (SampleJob(job=9, user="ann", processes=(worker,)),),
    )
    return SampleEnvelope(META, SampleData(attributes))


async def collect_gains(site: Site, found: dict[tuple[str, str, int], Any]) -> None:
    """Gather gains by metric, node and time: repeated messages must be equal."""
    source = NatsSource(site=site, telemetry=Telemetry(), subjects=["metrics"], durable="test")
    async with source:
        async for batch in source.batches():
            for message in batch.records:
                if message.name in ("io_reads", "job_cpu_used", "cpu_used"):
                    if message.tags["type"] == "hwthread":
                        continue
                    key = message.name, message.hostname, message.time
                    assert found.setdefault(key, message.value) == message.value
            assert batch.ack
            await batch.ack()


def has(found: dict[tuple[str, str, int], Any], number: int) -> bool:
    time = (BASE + CADENCE * number) * 10**9
    return all(("job_cpu_used", node, time) in found for node in ("c1", "c2"))


@pytest.mark.long
async def test_gains_add_up_when_bridge_is_killed(
    tmp_path: Path, nats_server: NatsServer, site: Site
) -> None:
    """SIGKILL at random while samples arrive: the first one after a restart has gains too."""
    recipe = changed("sonar-to-cc.toml", tmp_path, CHANGES)
    env = {"CCPIPE_BUS__SERVERS": nats_server.url, "CCPIPE_CLUSTER": site.cluster}
    found: dict[tuple[str, str, int], Any] = {}
    nodes = ("c1", "c2")
    collecting = asyncio.create_task(collect_gains(site, found))
    async with NatsSink(site=site, telemetry=Telemetry(), codec=SonarCodec()) as sink:
        while not sink.bus.is_connected:
            await asyncio.sleep(0.01)
        numbers = iter(range(SAMPLES + 1))
        for _ in range(KILLS):
            bridge = await started("bridge", recipe, **env)
            for number in itertools.islice(numbers, SAMPLES // KILLS):
                await sink.write(Envelopes([sample(number, node) for node in nodes]))
                if number % 5 == 0:  # some are translated before the next kill, some are not
                    await eventually(functools.partial(has, found, number))
            bridge.send_signal(signal.SIGKILL)
            await bridge.wait()
        for number in numbers:
            await sink.write(Envelopes([sample(number, node) for node in nodes]))
        bridge = await started("bridge", recipe, **env)
        await eventually(functools.partial(has, found, SAMPLES))
    bridge.terminate()
    assert await asyncio.wait_for(bridge.wait(), 60) == 0
    collecting.cancel()
    await asyncio.wait({collecting})
    for node in nodes:
        reads = [
            value for (name, of, _), value in found.items() if (name, of) == ("io_reads", node)
        ]
        assert sum(reads) == 3 * SAMPLES
        for metric in ("job_cpu_used", "cpu_used"):
            used = {
                time: v for (name, of, time), v in found.items() if (name, of) == (metric, node)
            }
            assert sorted(used) == [
                (BASE + CADENCE * n) * 10**9 for n in range(metric == "cpu_used", SAMPLES + 1)
            ]
            assert all(value == 100 for time, value in used.items() if time > BASE * 10**9)
