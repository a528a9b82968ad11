"""A site that ran c69553a9 goes on with this version: tests/data/upgrade has its files."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import duckdb
import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Bus
from ccpipe.formats.lineprotocol import decode
from tests.bridges.recipes import changed, started
from tests.bus.nats.conftest import connected
from tests.cli.command import ccpipe, finished
from tests.conftest import free_port
from tests.paths import TEST_DATA
from tests.servers.postgres import Server
from tests.sinks.postgres.conftest import server as postgres_server  # noqa: F401 - a fixture

FORMER = TEST_DATA / "upgrade"
LINES = 350
"""Lines ``sent`` with their numbers: 200 are stored, 50 were delivered, 100 are unread."""
STREAM = "ccpipe-fritz"
Event = tuple[str, int, int]
"""Function, number and start of a job."""


class Site:
    """A copy of the files, and processes of this version."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        shutil.copytree(FORMER, directory, dirs_exist_ok=True)
        self.server = NatsServer(directory / "nats", port=free_port())
        self.environ = {
            "CCPIPE_CLUSTER": "fritz", "CCPIPE_HOSTNAME": "n1",
            "CCPIPE_BUS__STREAM_MAX_AGE": "3650d", "XDG_STATE_HOME": str(directory),
        }  # fmt: skip

    @contextlib.asynccontextmanager
    async def running(self, *arguments: object, **environ: str) -> AsyncIterator[None]:
        process = await started(*arguments, **self.environ, **environ)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 60) == 0

    async def unread(self) -> dict[str, int]:
        """Return how many messages each bridge has not stored yet."""
        async with connected(Bus(servers=[self.server.url])) as bus:
            found = await bus.jetstream().consumers_info(STREAM)
        return {each.name: (each.num_pending or 0) + (each.num_ack_pending or 0) for each in found}

    async def payloads(self, subject: str) -> list[bytes]:
        """Return the messages of a subject in the stream."""
        found = []
        async with connected(Bus(servers=[self.server.url])) as bus:
            jetstream = bus.jetstream()
            state = (await jetstream.stream_info(STREAM)).state
            for number in range(state.first_seq, state.last_seq + 1):
                message = await jetstream.get_msg(STREAM, number)
                if message.subject == subject:
                    found.append(message.data or b"")
        return found


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    async with site.server:
        site.environ["CCPIPE_BUS__SERVERS"] = site.server.url
        yield site


async def test_bridges_store_every_line_once_after_upgrade(
    site: Site,
    postgres_server: Server,  # noqa: F811
) -> None:
    """What was delivered and not acknowledged comes again, what was stored does not."""
    database = await postgres_server.database()
    await postgres_server.run(database, (site.directory / "postgres.sql").read_text())
    parquet = {"CCPIPE_SINK__DIR": str(site.directory / "parquet")}
    postgres = {
        "CCPIPE_SINK__URL": postgres_server.url(database),
        "CCPIPE_SINK__PASSWORD_FILE": str(postgres_server.secret),
    }
    soon = {"CCPIPE_SOURCE__ACK_WAIT": "1s", "CCPIPE_BATCH__MAX_WAIT": "1s"}
    (complete, *_) = (site.directory / "parquet").rglob("*.parquet")
    unfinished = complete.with_name(f".{complete.name}.tmp")  # as a killed bridge leaves it
    unfinished.write_bytes(complete.read_bytes()[:1000])
    os.utime(unfinished, (0, 0))
    before = await site.unread()
    assert before["parquet"] == before["postgres"] > 15
    async with (
        site.running("bridge", "parquet", **parquet, **soon),
        site.running("bridge", "postgres", **postgres, **soon),
    ):
        while any((await site.unread()).values()):
            await asyncio.sleep(0.1)
    files = site.directory / "parquet/**/*.parquet"
    query = f"SELECT value FROM read_parquet('{files}') WHERE name = 'sent' ORDER BY 1"  # noqa: S608
    assert [value for (value,) in duckdb.execute(query).fetchall()] == list(range(LINES))
    assert not unfinished.exists()
    rows = await postgres_server.ask(
        database, "SELECT value FROM messages WHERE name = 'sent' ORDER BY 1"
    )
    assert [value for (value,) in rows] == list(range(LINES))
    letters = await finished("dead-letters", "list", "-o", "json", **site.environ)
    assert letters.code == 0, letters.err
    assert json.loads(letters.out)["original"] == "sent,cluster=fritz value="


async def test_publisher_publishes_spool_after_upgrade(site: Site) -> None:
    """Each message once; the file is then removed."""
    spool = site.directory / "ccpipe/spool.db"
    spool.parent.mkdir()
    (site.directory / "spool.db").rename(spool)
    with contextlib.closing(sqlite3.connect(spool)) as file:
        spooled = [payload for (payload,) in file.execute("SELECT payload FROM message")]
    async with site.running("publish"):
        while not set(spooled) <= set(await site.payloads("fritz.metrics")):
            await asyncio.sleep(0.2)
    found = await site.payloads("fritz.metrics")
    assert [found.count(payload) for payload in spooled] == [1] * 17
    assert not spool.exists()


async def test_jobs_of_slurm_stop_once_after_upgrade(site: Site) -> None:
    """Two jobs have started: the one that has ended stops, and none starts again."""
    recipe = changed("sonar-to-cc.toml", site.directory, {})
    async with site.running("bridge", recipe), connected(Bus(servers=[site.server.url])) as bus:
        await bus.jetstream().publish("fritz.sonar.job", slurm_jobs({7: "COMPLETED", 8: "RUNNING"}))
        while (
            len(await site.payloads("fritz.events.job")) < 3 or (await site.unread())["sonar-to-cc"]
        ):
            await asyncio.sleep(0.1)
    payloads = await site.payloads("fritz.events.job")
    found = [each[:2] for payload in payloads for each in events_of(payload.decode())]
    assert found == [("start_job", 7), ("start_job", 8), ("stop_job", 7)]


def slurm_jobs(states: dict[int, str]) -> bytes:
    """Return an envelope of jobs of Slurm, by job and state."""
    begin, end = "2026-11-28T11:00:00+00:00", "2026-11-28T11:10:00+00:00"
    jobs = [
        {
            "job_id": number, "user_name": "ann", "partition": "main", "submit_time": begin,
            "start_time": begin, "nodes": ["n1"], "job_state": state,
            **({} if state == "RUNNING" else {"end_time": end}),
        }
        for number, state in states.items()
    ]  # fmt: skip
    attributes = {"time": end, "cluster": "fritz", "slurm_jobs": jobs}
    data = {"type": "jobs", "attributes": attributes}
    return json.dumps({"meta": {"producer": "sonar", "version": "0.19.0"}, "data": data}).encode()


GRID_ENGINE = """
[source]
use = "gridengine_accounting"
paths = ["accounting"]
state_file = "positions"
follow = false
[[translate]]
use = "gridengine_to_cc"
emit = ["events"]
state_file = "jobs"
[sink]
use = "stdout"
"""


SLURM = f"""
[source]
use = "slurm"
state_file = "source.state"
replay_dir = "{TEST_DATA}/slurm/snapshots"
replay_speed = 0
[[translate]]
use = "slurm_to_cc"
state_file = "jobs.state"
[sink]
use = "stdout"
"""


def events(directory: Path, recipe: str) -> list[Event]:
    """Return the events of jobs that a recipe reports with the state files of a directory."""
    (directory / "recipe.toml").write_text(recipe)
    done = ccpipe("bridge", directory / "recipe.toml", CCPIPE_CLUSTER="fritz")
    assert done.code == 0, done.err
    return events_of(done.out)


def events_of(text: str) -> list[Event]:
    jobs = [line for line in decode(text.encode()) if line.name == "job"]
    found = [(line.tags["function"], json.loads(str(line.value))) for line in jobs]
    return [(function, job["jobId"], job["startTime"]) for function, job in found]


def test_accounting_file_is_followed_on_after_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the position that was reached; no job is reported twice."""
    whole = (TEST_DATA / "gridengine/accounting").read_bytes()
    (tmp_path / "accounting").write_bytes(whole)
    monkeypatch.chdir(tmp_path)
    every = events(tmp_path, GRID_ENGINE)
    directory = tmp_path / "former"
    shutil.copytree(FORMER / "gridengine", directory)
    monkeypatch.chdir(directory)
    accounting, positions = directory / "accounting", directory / "positions"
    read = accounting.read_bytes()
    assert whole.startswith(read)
    reached, status = json.loads(positions.read_text()), accounting.stat()
    reached["accounting"]["position"] |= {"device": status.st_dev, "inode": status.st_ino}
    positions.write_text(json.dumps(reached))  # a copy of the file is another one
    with accounting.open("ab") as file:
        file.write(whole.removeprefix(read))
    sent, rest = events_of((directory / "sent.lp").read_text()), events(directory, GRID_ENGINE)
    assert min(len(sent), len(rest)) > 100
    assert sorted(sent + rest) == sorted(every)


def test_polls_of_slurm_go_on_after_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run is reported twice; one that was put back into the queue before counts as a job."""
    monkeypatch.chdir(tmp_path)
    every = events(tmp_path, SLURM)
    directory = tmp_path / "former"
    shutil.copytree(FORMER / "slurm", directory)
    monkeypatch.chdir(directory)
    found = events_of((directory / "sent.lp").read_text()) + events(directory, SLURM)
    assert len(set(found)) == len(found)
    requeued = [("start_job", 22), ("stop_job", 22)]
    assert sorted(each[:2] for each in found) == sorted([*(each[:2] for each in every), *requeued])


def test_index_of_accounting_is_used_after_upgrade(tmp_path: Path) -> None:
    """Or made anew where its layout changed; the jobs found are the same."""
    accounting = FORMER / "gridengine/accounting"
    shutil.copytree(FORMER / "index", tmp_path / "index")
    job = accounting.read_text().splitlines()[-1].split(":")[5]
    found = ("-j", job, "-f", accounting, "-o", "json")
    plain = ccpipe("acct", "gridengine", *found)
    assert plain.code == 0, plain.err
    indexed = ccpipe("acct", "gridengine", *found, "--index", tmp_path / "index")
    assert indexed.out == plain.out, indexed.err
