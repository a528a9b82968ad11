"""Jobs at the real cc-backend, killed twice: each starts once and ends once, at its end."""

import asyncio
import contextlib
import functools
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Bus, Site
from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.sonar import JobsAttributes, JobsData, JobsEnvelope, MetadataObject, SlurmJob
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.telemetry import Telemetry
from tests.bridges.clustercockpit import CLUSTER, peer
from tests.bridges.recipes import started
from tests.bridges.test_clustercockpit_backend import MACHINE
from tests.cli.command import ccpipe
from tests.conftest import eventually
from tests.paths import ROOT, TEST_DATA
from tests.sinks.test_cc_backend import RestBackend

META = MetadataObject(producer="sonar", version="0.19.0")
BASE = 1_795_170_000
PARTS = 4
"""Parts in which the jobs end: cc-backend is killed during the second and the third."""
FIRST_OF_SLURM = 1_000_000_000

STATES = {
    "COMPLETED": "completed", "FAILED": "failed", "CANCELLED by 1000": "cancelled",
    "TIMEOUT": "timeout", "OUT_OF_MEMORY": "out_of_memory", "NODE_FAIL": "node_fail",
    "DEADLINE": "deadline", "PREEMPTED": "preempted", "BOOT_FAIL": "boot_fail",
}  # fmt: skip


class Run(NamedTuple):
    """A job as cc-backend should show it."""

    id: int
    start: int
    state: str
    seconds: int


class GridEngine:
    """A job, every third a task of an array; every seventh is put back into the queue once."""

    def __init__(self, number: int) -> None:
        self.number, self.task = number // 3, number % 3
        self.start, self.seconds = BASE + number, number % 5
        self.is_failed = number % 11 == 0
        self.again = 300 if number % 7 == 0 else 0

    def record(self, start: int, end: int, failed: int, status: int) -> str:
        job = f"all.q:node01:grp:ann:job:{self.number}:sge:0:{BASE}:{start}:{end}:{failed}:{status}"
        rest = "0:0.004422:0.000000:4696.000000:0:0:0:0:539:1:0:16.000000:8:0:0:0:4:2:NONE"
        return (
            f"{job}:{rest}:defaultdepartment:NONE:1:{self.task}:0.0:0.0:0.0:NONE:0.0:NONE:0:0:0\n"
        )

    def records(self) -> str:
        start, end = self.start + self.again, self.start + self.again + self.seconds
        first = self.record(self.start, self.start + 120, 25, 0) if self.again else ""
        return first + self.record(start, end, 0, int(self.is_failed))

    def run(self) -> Run:
        id_ = self.number * 1_000_000 + self.task if self.task else self.number
        state = "failed" if self.is_failed else "completed"
        return Run(id_, self.start, state, self.again + self.seconds)


class Slurm:
    """A job of one or several nodes; every seventh is put back into the queue once.

    Two of three are seen running before they have ended.
    """

    def __init__(self, number: int) -> None:
        self.id = FIRST_OF_SLURM + number
        self.start, self.seconds = BASE + number, number % 4
        self.state = list(STATES)[number % len(STATES)]
        self.is_seen_running = number % 3 != 0
        self.again = 300 if number % 7 == 0 else 0

    def running(self) -> SlurmJob:
        return self._record("RUNNING", self.start, "")

    def requeued(self) -> SlurmJob:
        return self._record("REQUEUED", self.start, _time(self.start + 120))

    def ended(self) -> SlurmJob:
        start = self.start + self.again
        return self._record(self.state, start, _time(start + self.seconds))

    def run(self) -> Run:
        return Run(self.id, self.start, STATES[self.state], self.again + self.seconds)

    def _record(self, state: str, start: int, end: str) -> SlurmJob:
        return SlurmJob(
            job_id=self.id,
            array_job_id=FIRST_OF_SLURM if self.id % 5 == 0 else 0,
            user_name="ann",
            partition="main",
            submit_time=_time(self.start - 20),
            start_time=_time(start),
            nodes=("c[1-3]",) if self.id % 2 else ("c1",),
            job_state=state,
            end_time=end,
        )


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


class KilledBackend(RestBackend):
    """cc-backend, which moves jobs out of its cache every second, so that stops meet that."""

    def __init__(self, directory: Path, nats: str) -> None:
        super().__init__(directory, nats)
        path = directory / "config.json"
        config = json.loads(path.read_text()) | {"cron": {"commit-job-worker": "1s"}}
        path.write_text(json.dumps(config))

    def runs(self) -> list[Run]:
        rows = self._query(
            "SELECT job_id, start_time, job_state, duration FROM job"
            " UNION ALL SELECT job_id, start_time, job_state, duration FROM job_cache"
        )
        return [Run(*row) for row in rows]

    def has_more_jobs_than(self, jobs: int) -> bool:
        return len(self.runs()) > jobs

    async def killed(self, seconds: float) -> None:
        """Kill it, and start it again after a while."""
        await self.__aexit__(None, None, None)
        await asyncio.sleep(seconds)
        await self.__aenter__()


class Bridges(contextlib.AsyncExitStack):
    """Bridges of one site, from shipped recipes; none of them ends by itself."""

    def __init__(self, directory: Path, server: NatsServer) -> None:
        super().__init__()
        self.directory = directory
        self.server = server
        self.running: list[asyncio.subprocess.Process] = []
        (directory / "ccpipe.toml").write_text(f'cluster = "{CLUSTER}"\n')

    async def start(self, name: str, text: str, changes: dict[str, str]) -> None:
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (self.directory / name).write_text(text)
        bridge = await started(
            *("bridge", self.directory / name, "--config", self.directory / "ccpipe.toml"),
            CCPIPE_BUS__SERVERS=self.server.url,
        )
        self.running.append(bridge)
        self.push_async_callback(bridge.wait)
        self.callback(self._end, bridge)

    @staticmethod
    def _end(bridge: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            bridge.terminate()

    async def start_all(self, url: str, *, over_nats: bool) -> None:
        own = {'"/var/lib/ccpipe/': f'"{self.directory}/'}
        accounting = {
            '"/opt/sge/default/common/': f'"{self.directory}/',
            '# poll_interval = "5s"': 'poll_interval = "1s"',
        }
        jobs = {
            "http://127.0.0.1:8080": url,
            "/etc/ccpipe/cc-backend.jwt": f"{self.directory}/token",
        }
        if over_nats:
            jobs["# publish"] = "publish"
        for name, changes in [
            ("gridengine.toml", own | accounting), ("sonar-to-cc.toml", own),
            ("cc-backend.toml", own | jobs),
        ]:  # fmt: skip
            await self.start(name, (ROOT / "bridges" / name).read_text(), changes)
        await self.start("nodes.toml", NODES, {})


NODES = f"""
[source]
use = "qstat"
command = ["cat", "{TEST_DATA}/gridengine/qhost-j-q-F.xml"]
poll_interval = "2s"
[[translate]]
use = "select"
names = ["nodestate"]
[sink]
use = "nats"
"""


async def publish(sink: NatsSink, records: list[SlurmJob], seconds: int) -> None:
    """Publish what Slurm reports of some jobs, so many seconds after all have started."""
    time = _time(BASE + 2000 + seconds)
    for first in range(0, len(records), 50):
        part = tuple(records[first : first + 50])
        await sink.write(
            Envelopes([JobsEnvelope(META, JobsData(JobsAttributes(time, CLUSTER, part)))])
        )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["rest", "nats"])
@pytest.mark.parametrize("jobs", [200, pytest.param(2000, marks=pytest.mark.long)])
async def test_every_job_starts_once_and_ends_once_while_cc_backend_is_killed(
    tmp_path: Path, nats_server: NatsServer, jobs: int, way: str
) -> None:
    """Jobs of two schedulers, by the shipped recipes, over REST and over its NATS API."""
    peer("cc-backend")
    of_grid_engine = [GridEngine(number) for number in range(3, jobs // 2 + 3)]
    of_slurm = [Slurm(number) for number in range(jobs // 2)]
    expected = {each.run() for each in of_grid_engine} | {each.run() for each in of_slurm}
    assert len(expected) == jobs
    site = Site(cluster=CLUSTER, bus=Bus(servers=[nats_server.url]))
    sink = NatsSink(site=site, telemetry=Telemetry(), codec=SonarCodec())
    backend = KilledBackend(tmp_path, nats_server.url if way == "nats" else "")
    async with backend, Bridges(tmp_path, nats_server) as bridges, sink:
        (tmp_path / "token").write_text(await backend.token())
        await bridges.start_all(backend.url, over_nats=way == "nats")
        await eventually(lambda: sink.bus.is_connected)
        for part in range(PARTS):
            ended = of_slurm[part::PARTS]
            await publish(sink, [job.running() for job in ended if job.is_seen_running], 0)
            enough = len(backend.runs()) + jobs // 20
            killing = asyncio.create_task(backend.killed(3)) if part in (1, 2) else None
            with (tmp_path / "accounting").open("a") as accounting:
                accounting.writelines(job.records() for job in of_grid_engine[part::PARTS])
            await publish(sink, [job.requeued() for job in ended if job.again], 130)
            await publish(sink, [job.ended() for job in ended], 400)
            if killing is not None:
                await killing
            await eventually(functools.partial(backend.has_more_jobs_than, enough), 300)
        await eventually(lambda: set(backend.runs()) >= expected, 600)
        assert sorted(backend.runs()) == sorted(expected)
        expected_nodes = {("node01", "allocated", 3, 3), ("node02", "allocated", 4, 4)}
        await eventually(lambda: backend.nodes() >= expected_nodes)
        assert [bridge.returncode for bridge in bridges.running] == [None] * 4


class SimulatedBackend(RestBackend):
    """cc-backend with the simulated nodes, whose metrics it takes directly from the broker."""

    def __init__(self, directory: Path, nats: str) -> None:
        super().__init__(directory)
        path = directory / "var/job-archive" / CLUSTER / "cluster.json"
        sent = ("config", "clustercockpit", "--since", "4h", "--cluster", CLUSTER, "--server", nats)
        cluster = json.loads(path.read_text()) | json.loads(ccpipe(*sent).out)
        del cluster["metrics"]
        cluster["subClusters"] = [MACHINE | {"nodes": "n[0001-0008]"}]
        path.write_text(json.dumps(cluster))
        path = directory / "config.json"
        config = json.loads(path.read_text()) | {"nats": {"address": nats}}
        subscription = {"subscribe-to": f"{CLUSTER}.metrics", "cluster-tag": CLUSTER}
        config["metric-store"]["nats-subscriptions"] = [subscription]
        path.write_text(json.dumps(config))

    def footprints(self) -> int:
        found = [json.loads(text or "null") for (text,) in self._query("SELECT footprint FROM job")]
        return sum(all(footprint.values()) for footprint in found if footprint)


def simulate(hours: int, server: str) -> int:
    """Publish half an hour that began so many hours ago; return the number of jobs."""
    start = datetime.fromtimestamp(time.time() - 3600 * hours, UTC).isoformat()
    run = (
        "simulate", "--cluster", CLUSTER, "--nodes", "8", "--gpus", "2", "--metrics", "12",
        "--duration", "30m", "--interval", "60s", "--speed", "max", "--since", start,
        "--failures", "0",
    )  # fmt: skip
    lines = decode(ccpipe(*run, "--dry-run").out.encode())
    done = ccpipe(*run, "--server", server)
    assert done.code == 0, done.err
    return sum(line.tags.get("function") == "start_job" for line in lines)


@pytest.mark.timeout(300)
async def test_every_simulated_job_starts_and_ends(tmp_path: Path, nats_server: NatsServer) -> None:
    """In three runs; jobs have footprints, and nodes are shown with their allocation."""
    peer("cc-backend")
    jobs = simulate(3, nats_server.url)
    backend = SimulatedBackend(tmp_path, nats_server.url)
    async with backend, Bridges(tmp_path, nats_server) as bridges:
        (tmp_path / "token").write_text(await backend.token())
        jobs += sum([simulate(hours, nats_server.url) for hours in (2, 1)])
        changes = {
            "http://127.0.0.1:8080": backend.url,
            "/etc/ccpipe/cc-backend.jwt": f"{tmp_path}/token",
            '"/var/lib/ccpipe/': f'"{tmp_path}/',
        }
        text = (ROOT / "bridges/cc-backend.toml").read_text()
        await bridges.start("cc-backend.toml", text, changes)
        await eventually(lambda: backend.jobs() == (jobs, jobs), 120)
        await eventually(lambda: backend.footprints() > jobs // 2)  # all of the last two runs
        nodes = backend.nodes()
        assert {name for name, *_ in nodes} == {f"n000{number}" for number in range(1, 9)}
        uses = {tuple(use) for _, *use in nodes}
        assert ("allocated", 1, 64) in uses
        assert uses <= {("allocated", 1, 64), ("idle", 0, 0)}
