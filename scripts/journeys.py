"""How many files of ccpipe one batch enters, on five journeys: ``python -m scripts.journeys``.

Each journey runs the real parts in this process. A file counts if one of its functions runs for
every batch once the first ones are done, in any thread; compiled functions are not seen. The option
``--files`` names the files. A limit may be lowered, never raised.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import nats
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Bus, Duration, Interval, Publish, Site, SonarOptions, SpoolOptions
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.sonar import Envelopes
from ccpipe.node.agent.agent import Agent
from ccpipe.pipeline import Batch, Limits, Sink, Source, run
from ccpipe.records import Records
from ccpipe.registry import build
from ccpipe.telemetry import Telemetry
from tests.paths import ROOT, TEST_DATA
from tests.sources.slurm.programs import Programs, sacct_row

PACKAGE = str(ROOT / "ccpipe") + "/"
FIRST, MEASURED = 2, 4
"""Batches before the measured ones, and measured ones: code that runs for only some is periodic."""
SECONDS = 30.0

Send = Callable[[int], Awaitable[None]]
"""Sends the batch of this number through a journey, and returns when it is processed."""


class Recorder:
    """The files in which a function was called, in all threads, while it records."""

    def __init__(self) -> None:
        self._files: set[str] | None = None
        sys.setprofile(self._called)
        threading.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        files = self._files
        if files is not None and event == "call":
            files.add(frame.f_code.co_filename)

    def begin(self) -> None:
        """Forget what was recorded, and record from now on."""
        self._files = set()

    def end(self) -> set[str]:
        """Return the files of ccpipe since ``begin``."""
        files, self._files = self._files or set(), None
        return {each.removeprefix(PACKAGE) for each in files if each.startswith(PACKAGE)}


class Collected(Sink[Any]):
    """The end of a journey to records: counts what it is given."""

    limits = Limits(max_wait=0.0)

    def __init__(self, takes: type[Records]) -> None:
        self.takes = takes
        self.count = 0

    async def write(self, records: Any) -> None:
        """Count the records."""
        self.count += len(records)


class Payloads(Source[Any]):
    """The start of a journey that begins with a payload: decodes what it is given."""

    def __init__(self, codec: SonarCodec) -> None:
        self.codec = codec
        self.gives = codec.records
        self.waiting = asyncio.Queue[bytes | None]()
        self.acknowledged = 0

    async def batches(self) -> AsyncIterator[Batch[Any]]:
        """Yield the content of each payload."""
        while (payload := await self.waiting.get()) is not None:
            message = _Received("fritz.sonar.job", payload, time.time_ns())
            for records, _ in self.codec.decode([message]):
                yield Batch(records, self._acknowledge)

    async def _acknowledge(self) -> None:
        self.acknowledged += 1

    def stop(self) -> None:
        """End after what is waiting."""
        self.waiting.put_nowait(None)


class _Received(NamedTuple):
    subject: str
    payload: bytes
    arrival: int


@contextlib.asynccontextmanager
async def _running(
    source: Source[Any] | dict[str, Any],
    sink: Sink[Any] | dict[str, Any],
    *translators: dict[str, Any],
    site: Site,
    limits: Limits | None = None,
) -> AsyncIterator[None]:
    """Run a pipe of parts, or of tables as in a recipe."""
    telemetry, stop = Telemetry(), asyncio.Event()
    context = {"site": site, "telemetry": telemetry}

    def part(group: str, table: Any) -> Any:
        if not isinstance(table, dict):
            return table
        return build(group, table, where="journeys", path=group, context=context)

    pipe = asyncio.create_task(
        run(
            part("sources", source),
            part("sinks", sink),
            translators=[part("translators", each) for each in translators],
            limits=limits,
            telemetry=telemetry,
            stop=stop,
        )
    )
    try:
        yield
    finally:
        stop.set()
        await pipe


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - files and the outputs of programs set no event
            await asyncio.sleep(0.01)


def _site(**options: Any) -> Site:
    return Site(cluster="fritz", hostname="f0101", **options)


@contextlib.asynccontextmanager
async def _server(directory: Path) -> AsyncIterator[tuple[Bus, Client]]:
    """Run a NATS server; yield how to reach it, and a client of nats-py."""
    async with NatsServer(directory / "nats") as server:
        client = await nats.connect(server.url)
        try:
            yield Bus(servers=[server.url]), client
        finally:
            await client.close()


async def _until_acknowledged(client: Client, durable: str, number: int) -> None:
    """Wait until a consumer exists and has acknowledged the message of this sequence number."""
    async with asyncio.timeout(SECONDS):
        while True:
            with contextlib.suppress(NotFoundError):
                info = await client.jetstream().consumer_info("ccpipe-fritz", durable)
                if info.ack_floor and info.ack_floor.stream_seq >= number:
                    return
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def nats_to_parquet(directory: Path) -> AsyncIterator[Send]:
    """A metric from JetStream; done when its Parquet file is written and it is acknowledged."""
    async with _server(directory) as (bus, client):
        source = {"use": "nats", "durable": "parquet"}
        sink = {"use": "parquet", "dir": str(directory / "parquet")}
        async with _running(source, sink, site=_site(bus=bus), limits=Limits(max_wait=0.0)):
            await _until_acknowledged(client, "parquet", 0)

            async def send(number: int) -> None:
                tags = "cluster=fritz,hostname=f0101,type=node"
                line = f"cpu_load,{tags} value={number} {1740027951 + number}\n"
                stored = await client.jetstream().publish("fritz.metrics", line.encode())
                await _until_acknowledged(client, "parquet", stored.seq)

            yield send


@contextlib.asynccontextmanager
async def proc_to_payload(directory: Path) -> AsyncIterator[Send]:
    """The publisher with one collector; done when a subscriber has the payload of a sample."""
    others = {each.name for each in entry_points(group="ccpipe.collectors")} - {"load"}
    collectors = {name: {"enabled": False} for name in others}
    sonar = SonarOptions(sample_interval=Duration(0), sysinfo_interval=Duration(0))
    spool = SpoolOptions(dir=str(directory / "spool"))
    publish = Publish(
        interval=Interval(0.5), collectors=collectors, sonar=sonar, spool=spool, log_level="off"
    )
    async with _server(directory) as (bus, client):
        received = await client.subscribe("fritz.metrics")
        site = _site(bus=bus, publish=publish)
        agent = Agent(lambda: site, None, once=False, telemetry=Telemetry())
        publisher = asyncio.create_task(agent.run(None))

        async def send(_: int) -> None:
            await received.next_msg(SECONDS)

        try:
            yield send
        finally:
            publisher.cancel()
            await asyncio.wait({publisher})


@contextlib.asynccontextmanager
async def sonar_to_event(directory: Path) -> AsyncIterator[Send]:
    """An envelope with a job that starts; done when its event is written and acknowledged."""
    source, sink = Payloads(SonarCodec()), Collected(Lines)
    translator = {"use": "sonar_to_cc", "state_file": str(directory / "state"), "envelopes": False}
    async with _running(source, sink, translator, site=_site()):

        async def send(number: int) -> None:
            source.waiting.put_nowait(_started_job(number))
            await _until(lambda: source.acknowledged == sink.count == number + 1)

        yield send


def _started_job(number: int) -> bytes:
    """Return an envelope with a job that has just started."""

    def text(age: int) -> str:
        return datetime.fromtimestamp(int(time.time()) - age, UTC).isoformat()

    job = {
        "job_id": 1000 + number, "job_name": "solve", "job_state": "RUNNING", "user_name": "ann",
        "account": "physics", "partition": "work", "nodes": ["f[0101-0102]"], "time_limit": 60,
        "submit_time": text(20), "start_time": text(10),
    }  # fmt: skip
    attributes = {"time": text(0), "cluster": "fritz", "slurm_jobs": [job]}
    meta = {"producer": "sonar", "version": "0.19.0"}
    return json.dumps({"meta": meta, "data": {"type": "job", "attributes": attributes}}).encode()


@contextlib.asynccontextmanager
async def gridengine_to_event(directory: Path) -> AsyncIterator[Send]:
    """A line of an accounting file; done when its events are written and its position is kept."""
    lines = (TEST_DATA / "gridengine/accounting").read_bytes().splitlines(keepends=True)
    records = [line for line in lines if not line.startswith(b"#")]
    path, checkpoint = directory / "accounting", directory / "checkpoint"
    path.touch()
    source = {
        "use": "gridengine_accounting", "paths": [str(path)], "state_file": str(checkpoint),
        "poll_interval": "100ms",
    }  # fmt: skip
    state = str(directory / "state")
    translator = {"use": "gridengine_to_cc", "state_file": state, "emit": ["events"]}
    sink = Collected(Lines)

    def position() -> bytes:
        return checkpoint.read_bytes() if checkpoint.exists() else b""

    async with _running(source, sink, translator, site=_site()):

        async def send(number: int) -> None:
            before = position()
            with path.open("ab") as file:
                file.write(records[number])
            await _until(lambda: sink.count == 2 * (number + 1) and position() != before)

        yield send


@contextlib.asynccontextmanager
async def sacct_to_envelope(directory: Path) -> AsyncIterator[Send]:
    """A row of sacct; done when its envelope is written and the next poll has begun."""
    programs = Programs(directory / "bin")
    source = {
        "use": "slurm", "bin_dir": str(programs.directory), "state_file": str(directory / "state"),
        "poll_interval": "100ms",
    }  # fmt: skip
    sink = Collected(Envelopes)
    async with _running(source, sink, {"use": "slurm_to_sonar"}, site=_site()):

        async def send(number: int) -> None:
            before = sink.count
            programs.set_sacct(
                sacct_row(str(1000 + number), "COMPLETED", end="2026-11-20T10:05:00")
            )
            await _until(lambda: sink.count > before)
            programs.calls()
            await _until(lambda: any(each.startswith("sacct") for each in programs.calls()))

        yield send


class Journey(NamedTuple):
    """A path of batches, and the number of files that it may enter: now, and as the aim."""

    name: str
    open: Callable[[Path], contextlib.AbstractAsyncContextManager[Send]]
    limit: int
    goal: int


JOURNEYS = (
    Journey("NATS message → Parquet row", nats_to_parquet, 21, 20),
    Journey("/proc → published payload", proc_to_payload, 27, 15),
    Journey("Sonar JSON → ClusterCockpit event", sonar_to_event, 26, 18),
    Journey("Grid Engine line → job event", gridengine_to_event, 25, 15),
    Journey("sacct row → envelope", sacct_to_envelope, 22, 14),
)


async def files_of(journey: Journey, recorder: Recorder) -> list[str]:
    """Return the files that every measured batch enters."""
    with tempfile.TemporaryDirectory() as directory:
        async with journey.open(Path(directory)) as send:
            entered = []
            for number in range(FIRST + MEASURED):
                recorder.begin()
                await send(number)
                entered.append(recorder.end())
    return sorted(set.intersection(*entered[FIRST:]))


async def _measure(recorder: Recorder, *, with_files: bool) -> bool:
    """Print the table; return whether each journey is within its limit."""
    print("| journey | files entered | limit | goal |\n| --- | --- | --- | --- |")
    names, is_within = [], True
    for journey in JOURNEYS:
        files = await files_of(journey, recorder)
        is_within &= len(files) <= journey.limit
        print(f"| {journey.name} | {len(files)} | {journey.limit} | {journey.goal} |", flush=True)
        names += [f"\n{journey.name}", *(f"    {each}" for each in files)]
    if with_files:
        print("\n".join(names))
    return is_within


def main() -> None:
    """Print the table; exit with 1 if a journey exceeds its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="name the files, too")
    options = parser.parse_args()
    recorder = Recorder()  # first: threads that were started before are not seen
    sys.exit(not asyncio.run(_measure(recorder, with_files=options.files)))


if __name__ == "__main__":
    main()
