"""One flow from the publisher to the store, measured."""

import asyncio
import contextlib
import functools
import re
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.scale.programs import (
    CLUSTER,
    Load,
    Program,
    Report,
    Store,
    brokers,
    ccpipe,
    environment,
    publish,
    running,
    write_recipe,
)
from benchmarks.scale.results import Latency, Outage, Role, Run, Stages, quantile
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.protocol.frames import Deliveries
from ccpipe.bus.nats.streams.claims import Claims
from ccpipe.bus.nats.streams.jetstream import StreamState, consumers_of, stream_of
from ccpipe.bus.nats.streams.stream import stream_name
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Bus, Site, load
from ccpipe.telemetry import Telemetry
from tests.conftest import free_port

CLUSTER_INTERVAL = 10
"""Seconds between the samples of a simulated cluster."""


class Acks:
    """When the broker got the bridges' acknowledgements, by the number of the message."""

    def __init__(self) -> None:
        self.times: dict[int, int] = {}
        self.stored: dict[int, int] = {}
        """When the stream had them."""

    def receive(self, deliveries: Deliveries) -> None:
        """Record them, except notices that a message is in progress."""
        now = time.time_ns()
        for delivery in deliveries:
            if delivery.payload == b"+ACK":
                # $JS.ACK.<stream>.<consumer>.<deliveries>.<number in the stream>.<…>.<time>.<…>
                number, _, stored, _ = map(int, delivery.subject.split(".")[-4:])
                self.times.setdefault(number, now)
                self.stored[number] = stored

    def latency(self, published: Mapping[int, int], expected: int) -> Latency:
        """Join them with the times of publication, without events, which are not acknowledged.

        Raises SystemExit if fewer messages than `expected` were acknowledged.
        """
        waits = sorted(
            (at - published[number]) / 1e9
            for number, at in self.times.items()
            if number in published
        )
        if len(waits) < expected:
            raise SystemExit(f"{len(waits)} of {expected} messages were acknowledged")
        return Latency(len(waits), quantile(waits, 0.5), quantile(waits, 0.99), waits[-1])

    def stages(
        self,
        published: Mapping[int, int],
        writes: int,
        seconds: float,
        machine: tuple[float, float],
    ) -> Stages:
        """Divide the latency into its stages; the sink took `seconds` for `writes`."""
        write = seconds / writes
        broker = sorted((self.stored[each] - published[each]) / 1e9 for each in self.times)
        bridge = sorted(
            max(0.0, (at - self.stored[each]) / 1e9 - write) for each, at in self.times.items()
        )
        waiting = last = 0
        for number in sorted(self.times, key=self.stored.__getitem__):
            waiting += max(0, self.times[number] - max(last, self.stored[number]))
            last = max(last, self.times[number])
        return Stages(
            (quantile(broker, 0.5), quantile(broker, 0.99)),
            (quantile(bridge, 0.5), quantile(bridge, 0.99)),
            write, seconds / (waiting / 1e9), machine,
        )  # fmt: skip


def processor_speed() -> tuple[float, float]:
    """Return how many megabytes a CPU-second hashes, and the share of a processor that it gets."""
    text = bytes(10**6)
    began, before = time.perf_counter(), time.thread_time()
    for _ in range(HASHED):
        blake2b(text)
    seconds = time.thread_time() - before
    return HASHED / seconds, seconds / (time.perf_counter() - began)


HASHED = 300
"""Megabytes: less than half a second."""


class Flow:
    """The programs of one run, and what they have taken."""

    def __init__(self, run: Run, directory: Path, seconds: float) -> None:
        """`seconds` is how long any part of it may take."""
        self.run = run
        self.directory = directory
        self.seconds = seconds
        self.store = Store(directory) if run.store == "victoriametrics" else None
        self.servers: list[Program] = []
        self.bridges: list[Program] = []
        self.environ: dict[str, str] = {}
        self.acks = Acks()
        self._before: dict[Role, float] = {}
        self._telemetry = f"127.0.0.1:{free_port()}"  # of a single bridge
        self._site = Site(cluster=CLUSTER)

    @contextlib.asynccontextmanager
    async def open(self, *, sonar: bool = False) -> AsyncIterator["Flow"]:
        """Start brokers, store and bridges; wait until each bridge reads its share."""
        run = self.run
        async with contextlib.AsyncExitStack() as stack:
            self.servers, urls = await stack.enter_async_context(
                brokers(run.brokers, self.directory)
            )
            self.environ = environment(
                urls, brokers=run.brokers, partitions=run.partitions, by_node=run.by_node,
                compression=run.compression,
            )  # fmt: skip
            if run.series == "target":
                self.environ["CCPIPE_TELEMETRY__LISTEN"] = self._telemetry
            if run.series == "backlog":  # no redelivery to a paused bridge
                self.environ["CCPIPE_SOURCE__ACK_WAIT"] = "10m"
            self._site = load(None, Site, environ=self.environ)
            bus = Connection(Bus(servers=urls), name="benchmark", telemetry=Telemetry())
            self.bus = await stack.enter_async_context(bus)
            await self._until(self._has_jetstream)
            if self.store:
                await self.store.start()
                stack.push_async_callback(self.store.stop)
                self.environ["CCPIPE_SINK__URL"] = self.store.url
                recipe = "victoriametrics"
            else:
                recipe = write_recipe(self.directory, sonar=sonar)
            for number in range(run.replicas):
                command = ccpipe("bridge", recipe)
                program = running(f"bridge{number}", command, self.directory, **self.environ)
                self.bridges.append(await stack.enter_async_context(program))
            await self._until(self._is_shared)
            yield self

    async def watch_acks(self) -> None:
        """Receive the bridges' acknowledgements: the broker then delivers them here as well."""
        await self.bus.subscribe_lists("$JS.ACK.>", self.acks.receive)

    async def publish(self, load: Load, number: int = 1) -> Report:
        """Publish a load to its end."""
        async with asyncio.timeout(self.seconds):
            return await publish(load, self.directory, self.environ, number)

    async def drained(self) -> float:
        """Wait until nothing waits in the stream; return the time of that."""
        await self._until(self._is_empty)
        return time.time()

    def start(self) -> None:
        """Measure what the programs take from now on."""
        self._before = self._cpu()
        self.acks.times.clear()

    def stop(self, *reports: Report) -> None:
        """Note what the programs have taken since ``start``."""
        spent = self._cpu()
        self.run.cpu = {role: spent[role] - self._before[role] for role in spent}
        self.run.cpu["publisher"] = sum(report.cpu_seconds for report in reports)
        self.run.memory = {
            "publisher": max(report.peak_bytes for report in reports),
            "broker": sum(program.peak() for program in self.servers),
            "bridge": sum(program.peak() for program in self.bridges),
        }
        if self.store:
            self.run.memory["store"] = self.store.peak()
        self.run.messages = sum(report.messages for report in reports)

    async def writes(self) -> tuple[int, float]:
        """Return how many writes the bridge has made, and how many seconds they took."""
        url = f"http://{self._telemetry}/metrics"
        async with aiohttp.ClientSession() as client, client.get(url) as answer:
            text = await answer.text()
        found = dict(re.findall(r"^ccpipe_(\w+)_total\{.*\} (\S+)$", text, re.MULTILINE))
        return int(float(found["written_batches"])), float(found["write_seconds"])

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the bridges' processes for a while."""
        for bridge in self.bridges:
            bridge.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for bridge in self.bridges:
                bridge.process.send_signal(signal.SIGCONT)

    async def stream_bytes(self) -> int:
        """Return what the stream takes on disk."""
        return (await self._state()).bytes

    async def last(self) -> int:
        """Return the number of the last message in the stream."""
        return (await self._state()).last_seq

    async def _state(self) -> StreamState:
        stream = await stream_of(self.bus.jetstream(), stream_name(Subjects.of(self._site)))
        assert stream is not None
        return stream.state

    def disk_bytes(self) -> int:
        """Return what the brokers' files take."""
        files = (path for path in self.directory.glob("js*/**/*") if path.is_file())
        return sum(path.stat().st_size for path in files)

    async def count(self, expected: int) -> None:
        """Count the lines in the store until there are as many as expected, or time is up."""
        assert self.store is not None
        self.run.expected = expected
        deadline = time.monotonic() + 60
        async with aiohttp.ClientSession(self.store.url) as client:
            while True:
                self.run.stored = await _count(client)
                if self.run.stored == expected:
                    return
                if time.monotonic() > deadline:
                    print(await _inserted(client), flush=True)
                    return
                await asyncio.sleep(1)

    def _cpu(self) -> dict[Role, float]:
        found: dict[Role, float] = {
            "broker": sum(program.cpu() for program in self.servers),
            "bridge": sum(program.cpu() for program in self.bridges),
        }
        if self.store:
            found["store"] = self.store.cpu()
        return found

    async def _until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(self.seconds):
            while not await condition():
                for program in [*self.servers, *self.bridges]:
                    program.require_running()
                await asyncio.sleep(0.1)

    async def _has_jetstream(self) -> bool:
        """Return whether JetStream answers; a cluster must elect first."""
        with contextlib.suppress(Exception):
            await self.bus.jetstream(1.0).account_info()
            return True
        return False

    async def _is_shared(self) -> bool:
        """Return whether every bridge reads, and every partition is read."""
        jetstream = self.bus.jetstream()
        name = stream_name(Subjects.of(self._site))
        if await stream_of(jetstream, name) is None:
            return False
        consumers = [each async for each in consumers_of(jetstream, name)]
        if self.run.partitions == 1:
            return any(each.num_waiting for each in consumers)
        durable = "victoriametrics" if self.store else "scale"
        table, _ = await Claims(self._site.bus, Subjects.of(self._site), durable).read(jetstream)
        owners = list(table.owners.values())
        shares = [owners.count(member) for member in table.members]
        reading = [each for each in consumers if each.num_waiting]
        return (
            len(shares) == self.run.replicas
            and len(owners) == len(reading) == self.run.partitions
            and max(shares) - min(shares) <= 1
        )

    async def _is_empty(self) -> bool:
        name = stream_name(Subjects.of(self._site))
        consumers = [each async for each in consumers_of(self.bus.jetstream(30.0), name)]
        return not any(each.num_pending or each.num_ack_pending for each in consumers)


async def _count(client: aiohttp.ClientSession) -> int:
    """Count all samples, metric by metric."""
    total = 0
    for name in await _ask(client, "/api/v1/label/__name__/values"):
        query = f'sum(count_over_time({{__name__="{name}",cluster="{CLUSTER}"}}[2d]))'
        found = await _ask(client, "/api/v1/query", query=query, nocache="1")
        total += int(found["result"][0]["value"][1]) if found["result"] else 0
    return total


async def _inserted(client: aiohttp.ClientSession) -> str:
    """Return the store's own counters of received lines, to find lost ones."""
    async with client.get("/metrics") as answer:
        lines = (await answer.text()).splitlines()
    counters = ("vm_rows_inserted_total", "vm_rows_ignored_total", "vm_missing_")
    return "\n".join(line for line in lines if line.startswith(counters) and line[-2:] != " 0")


async def _ask(client: aiohttp.ClientSession, path: str, **query: str) -> Any:
    async with client.post(path, data=query) as answer:
        answer.raise_for_status()
        return (await answer.json())["data"]


async def measure(run: Run, work: Callable[[Flow], Awaitable[None]], seconds: float) -> Run:
    """Run a flow in a directory of its own, which is deleted."""
    with directory_of_run() as directory:
        flow = Flow(run, directory, seconds)
        async with flow.open(sonar=bool(run.jobs)):
            await work(flow)
    return run


@contextlib.contextmanager
def directory_of_run() -> Iterator[Path]:
    """Make a directory, and delete it at the end."""
    directory = Path(tempfile.mkdtemp(prefix="ccpipe-scale-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _before(load: Load) -> str:
    """Return a time just before the first sample of a load: no time is published twice.

    It is on the same day, for each of which VictoriaMetrics indexes a series anew. That costs it
    several times as much as a value, and outside of benchmarks it does so in the hour before.
    """
    count = 0 if load.speed == "1" else load.samples
    begin = datetime.now(tz=UTC) - timedelta(seconds=CLUSTER_INTERVAL * (count + 12))
    return begin.isoformat(timespec="seconds")


async def steady(flow: Flow, load: Load) -> None:
    """Publish a sample, so that all series are known; then measure the others.

    Sonar's second sample is the first one with gains, whose series it makes known.
    """
    run = flow.run
    start = _before(load)
    first = load._replace(samples=2 if load.sonar else 1, speed="max", start=start)
    known = await flow.publish(first, 1)
    await flow.drained()
    if load.speed == "1":
        await flow.watch_acks()
    flow.start()
    before, disk, last = await flow.stream_bytes(), flow.disk_bytes(), await flow.last()
    if load.speed == "1":
        speed, writes = processor_speed(), await flow.writes()
    report = await flow.publish(load, 2)
    run.seconds = await flow.drained() - report.first
    flow.stop(report)
    run.lines = load.nodes * load.samples if load.sonar else report.lines
    run.bytes = await flow.stream_bytes() - before
    run.disk = flow.disk_bytes() - disk
    if load.speed == "1":
        published = report.by_number(last, await flow.last())
        run.latency = flow.acks.latency(published, load.nodes * load.samples)
        (count, seconds), again = await flow.writes(), processor_speed()
        machine = (speed[0] + again[0]) / 2, (speed[1] + again[1]) / 2
        run.stages = flow.acks.stages(published, count - writes[0], seconds - writes[1], machine)
    if flow.store:
        await flow.count(first.metric_lines(known) + load.metric_lines(report))


async def backlog(flow: Flow, load: Load) -> None:
    """Publish a load while the bridges are paused; then measure how they drain it.

    So they read as fast as they can, whatever the publisher and the number of nodes: their cost of
    a line does not depend on the rate of lines.
    """
    run = flow.run
    await flow.publish(load._replace(samples=1, start=_before(load)), 1)  # all series are known
    await flow.drained()
    with flow.paused():
        report = await flow.publish(load, 2)
        flow.start()
    begin = time.time()
    run.seconds = await flow.drained() - begin
    flow.stop(report)
    run.lines = report.lines


async def outage(flow: Flow, load: Load, live: int) -> None:
    """Publish a load while the store is down; then measure how the backlog is drained.

    Meanwhile the cluster goes on at its own pace, for `live` samples.
    """
    run = flow.run
    assert flow.store is not None
    flow.start()
    await flow.store.stop()
    report = await flow.publish(load, 1)
    run.bytes = await flow.stream_bytes()
    await flow.store.start()
    back = time.time()
    then = load._replace(samples=live, speed="1")
    meanwhile = asyncio.create_task(flow.publish(then, 2))
    drained = await flow.drained()
    second = await meanwhile
    run.seconds = await flow.drained() - report.first
    flow.stop(report, second)
    run.lines = report.lines + second.lines
    run.outage = Outage(
        minutes=load.samples * CLUSTER_INTERVAL / 60, backlog=report.lines, live=second.lines,
        drain_seconds=drained - back,
    )  # fmt: skip
    await flow.count(load.metric_lines(report) + then.metric_lines(second))


def flow_of(load: Load, live: int = 0) -> Callable[[Flow], Awaitable[None]]:
    """Return what is done with a load: an outage where samples follow it, else a steady flow."""
    return functools.partial(outage, load=load, live=live) if live else (
        functools.partial(steady, load=load)
    )  # fmt: skip


__all__: Sequence[str] = ("Flow", "backlog", "flow_of", "measure", "outage", "steady")
