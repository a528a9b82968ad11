"""The recipe for Grid Engine, killed at any time: each job starts once and stops once."""

import asyncio
import contextlib
import json
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Site
from ccpipe.formats.gridengine import Accounting, encode_classic
from ccpipe.formats.lineprotocol import decode
from ccpipe.telemetry import Telemetry
from tests.bridges.recipes import changed, completed, started
from tests.conftest import eventually
from tests.paths import TEST_DATA

NOW = 1_795_170_750
SECOND = 10**9
JOBS = 1000
KILLS = 4


OWN = '"/opt/sge/default/common/'
CHANGES = {
    "# reporting_file =": "reporting_file =",
    '# read_from = "start"': 'read_from = "oldest"',
    '# poll_interval = "5s"': 'poll_interval = "20ms"',
}


def line(number: int, task: int, begin: int, event: str, user: str = "master") -> bytes:
    return (
        f"{begin}:job_log:{begin}:{event}:{number}:{task}:NONE:t:{user}:master:0:1024:{NOW}"
        f":burn:anna:staff::physics:sge:a message: with a colon\n"
    ).encode()


def record(number: int, task: int, begin: int, **known: Any) -> bytes:
    return encode_classic(
        Accounting(
            **{
                "job_number": number, "task_number": task, "owner": "anna", "hostname": "n1",
                "qname": "all.q", "submission_time": NOW * SECOND, "start_time": begin * SECOND,
                "end_time": (begin + 5) * SECOND, "usage": {"rusage": {"ru_wallclock": 5}},
                **known,
            }
        )
    )  # fmt: skip


def history(dice: random.Random, number: int) -> Iterator[tuple[str, bytes]]:
    """Yield what Grid Engine writes about a job, in order: to which file, and what."""
    kind, begin = dice.choice(["plain", "array", "parallel", "rerun", "gone"]), NOW + 10 * number
    tasks = (1, 2, 3) if kind == "array" else (0,)
    for task in tasks:
        yield "reporting", line(number, task, begin, "sent")
        if dice.random() < 0.4:
            yield "reporting", line(number, task, begin, "delivered")
    if kind == "parallel":
        for node in ("n2", "n3"):
            yield "accounting", record(number, 0, begin, pe_taskid=f"1.{node}", hostname=node)
    if kind in ("rerun", "gone"):
        yield "accounting", record(number, 0, begin, failed=25, exit_status=99)
        yield "reporting", line(number, 0, begin + 6, "restart")
    if kind == "rerun":
        yield "reporting", line(number, 0, begin + 8, "sent")
    for task in tasks if kind != "gone" else ():
        yield "accounting", record(number, task, begin + 8, granted_pe="mpi", slots=3)
    for task in tasks:
        yield "reporting", line(number, task, begin + 20, "deleted", "scheduler")


class Cell(threading.Thread):
    """A qmaster that writes about many jobs at a time, in flushes that cut lines."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self.halt = threading.Event()
        self.sent: set[tuple[int, int]] = set()
        """Job and task of each ``sent`` line."""
        self.kills = 0
        """How often its reader was killed; where that takes long, it writes slowly."""

    def run(self) -> None:
        """Begin a job as soon as another one has ended; keep ten alive."""
        dice = random.Random(11)
        numbers = iter(range(1, JOBS + 1))
        histories = [history(dice, next(numbers)) for _ in range(10)]
        rests = {"reporting": b"", "accounting": b""}
        while histories and not self.halt.is_set():
            one = dice.choice(histories)
            reported = next(one, None)
            if reported is None:
                histories.remove(one)
                if number := next(numbers, None):
                    histories.append(history(dice, number))
                continue
            name, text = reported
            rests[name] += text
            if text.split(b":")[3] == b"sent":
                self.sent.add((int(text.split(b":")[4]), int(text.split(b":")[5])))
            if dice.random() < 0.1:
                cut = dice.randrange(len(rests[name]))
                self.write(name, rests[name][:cut])
                rests[name] = rests[name][cut:]
                begun = max(self.sent)[0] if self.sent else 0
                time.sleep(0.02 if self.kills * JOBS >= KILLS * begun else 0.2)
        for name, rest in rests.items():
            self.write(name, rest)
        self.write("accounting", record(JOBS + 1, 0, NOW + 10 * JOBS + 10_000))

    def write(self, name: str, text: bytes) -> None:
        with (self.directory / name).open("ab") as file:
            file.write(text)


def written_at(directory: Path) -> int:
    """Return when the state was last written, in nanoseconds."""
    log = directory / "gridengine.state-wal"
    return log.stat().st_mtime_ns if log.exists() else 0


def unwritten(state: Path) -> int:
    """Count the feeds that are not committed in the state."""
    with contextlib.closing(sqlite3.connect(state)) as file:
        ((count,),) = file.execute("SELECT count(*) FROM state WHERE name = 'made'")
        return int(count)


async def events(site: Site) -> list[tuple[str, dict[str, Any]]]:
    bus = Connection(site.bus, name="test", telemetry=Telemetry())
    async with bus:
        total = (await bus.jetstream().stream_info("ccpipe-fox%2Etest")).state.messages
    found: list[tuple[str, dict[str, Any]]] = []
    source = NatsSource(site=site, telemetry=Telemetry(), subjects=["events"], durable="test")
    read = 0
    async with source:
        async for batch in source.batches():
            read += 1
            found += [
                (message.tags["function"], json.loads(str(message.value)))
                for message in batch.records
                if message.name == "job"
            ]
            if read >= total:
                break
    return found


@pytest.mark.long
async def test_each_job_starts_and_stops_once_when_bridge_is_killed(
    tmp_path: Path, nats_server: NatsServer, site: Site
) -> None:
    """SIGKILL at random; PE tasks, reruns and running arrays; starts from two files.

    The stream recognizes repeated messages by their id.
    """
    cell = Cell(tmp_path)
    recipe = changed("gridengine.toml", tmp_path, CHANGES | {OWN: f'"{tmp_path}/'})
    env = {"CCPIPE_BUS__SERVERS": nats_server.url, "CCPIPE_CLUSTER": site.cluster}
    dice = random.Random(5)
    cell.start()
    try:
        while cell.is_alive():
            before = written_at(tmp_path)
            bridge = await started("bridge", recipe, **env)
            while cell.is_alive() and written_at(tmp_path) == before:
                await asyncio.sleep(0.01)
            await asyncio.sleep(dice.random() / 3)  # it is at work
            assert bridge.returncode is None, "the bridge ended by itself"
            bridge.send_signal(signal.SIGKILL)
            await bridge.wait()
            cell.kills += 1
    finally:
        cell.halt.set()
        cell.join()
    await completed("bridge", recipe, **env, CCPIPE_SOURCE__FOLLOW="false")
    assert unwritten(tmp_path / "gridengine.state") == 0
    found = await events(site)
    starts = Counter(payload["jobId"] for function, payload in found if function == "start_job")
    stops = Counter(payload["jobId"] for function, payload in found if function == "stop_job")
    assert cell.kills >= KILLS
    jobs = {job * 10**6 + task if task else job for job, task in cell.sent} | {JOBS + 1}
    assert starts == stops == Counter(jobs)
    began = {payload["jobId"]: payload["startTime"] for what, payload in found if "start" in what}
    ended = {payload["jobId"]: payload["startTime"] for what, payload in found if "stop" in what}
    assert began == ended
    nodes = {len(payload["resources"]) for function, payload in found if function == "start_job"}
    assert nodes == {1, 3}


DATA = TEST_DATA / "gridengine"


class Backend:
    """Eight workers, each busy for a while with a message; a stop before its start is lost."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[Delivery] = asyncio.Queue()
        self.started: set[tuple[int, int]] = set()
        self.stopped: set[tuple[int, int]] = set()
        self.lost: set[tuple[int, int]] = set()
        self.dice = random.Random(7)

    async def work(self) -> None:
        """Handle messages one by one; the lines of a message in their order."""
        while True:
            delivery = await self.waiting.get()
            await asyncio.sleep(self.dice.random() / 50)
            for line in decode(delivery.payload):
                assert line.time
                if line.name != "job":
                    continue
                payload = json.loads(str(line.value))
                key = payload["jobId"], payload["startTime"]
                if line.tags["function"] == "start_job":
                    assert key not in self.started
                    self.started.add(key)
                elif key in self.started:
                    self.stopped.add(key)
                else:
                    self.lost.add(key)
            self.waiting.task_done()


@pytest.mark.parametrize(
    ("files", "jobs"),
    [
        ({"accounting": "accounting", "accounting.jsonl": "derived.jsonl"}, 143),
        ({"accounting": "reporting.head", "reporting": "reporting.head"}, 38),
    ],
)
async def test_bridge_stops_every_job_that_ended(
    tmp_path: Path, nats_server: NatsServer, site: Site, files: dict[str, str], jobs: int
) -> None:
    """From accounting, and with starts from the reporting file."""
    changes = {
        '"/opt/sge/default/common/': f'"{tmp_path}/',
        '# read_from = "start"': 'read_from = "oldest"',
    }
    changes |= {"# reporting_file =": "reporting_file ="} if "reporting" in files else {}
    recipe = changed("gridengine.toml", tmp_path, changes)
    for name, source in files.items():
        shutil.copy(DATA / source, tmp_path / name)
    backend = Backend()
    workers = [asyncio.create_task(backend.work()) for _ in range(8)]
    async with Connection(site.bus, name="backend", telemetry=Telemetry()) as bus:
        await bus.subscribe("fox%2Etest.events.>", backend.waiting.put_nowait)
        env = {"CCPIPE_BUS__SERVERS": nats_server.url, "CCPIPE_CLUSTER": site.cluster}
        await completed("bridge", recipe, **env, CCPIPE_SOURCE__FOLLOW="false")
        await eventually(lambda: len(backend.stopped) + len(backend.lost) >= jobs)
        await backend.waiting.join()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert backend.lost == set()
    assert len(backend.stopped) == jobs
