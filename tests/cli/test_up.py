"""``ccpipe up``: the whole pipe on one machine, and what happens when parts of it are killed."""

import asyncio
import contextlib
import re
import signal
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psutil
import pytest

from ccpipe.bus.nats.announcement import running
from ccpipe.cli.console.options import SiteOptions
from ccpipe.cli.up import Child, _environment
from ccpipe.config import Site, load
from ccpipe.process.background import failing
from ccpipe.process.die_with_parent import die_with_parent
from ccpipe.telemetry import Telemetry
from tests.cli.command import ended, environment, finished, start
from tests.conftest import eventually, free_port


@dataclass
class Up:
    """A running ``ccpipe up`` and what it left."""

    process: asyncio.subprocess.Process
    directory: Path

    def child(self, word: str) -> psutil.Process | None:
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it was just killed
                if any(word in argument for argument in child.cmdline()):
                    return child
        return None

    async def kill(self, word: str) -> None:
        """Kill a child, and wait until another process does its work."""
        victim = self.child(word)
        assert victim is not None
        victim.send_signal(signal.SIGKILL)
        await eventually(lambda: (self.child(word) or victim).pid != victim.pid)

    async def until_more_is_stored(self) -> None:
        before = self.stored()
        await eventually(lambda: self.stored() > before)

    def stored(self, until: int = 2**63 - 1) -> int:
        """Count the distinct metric lines in the Parquet files, not later than `until` (µs).

        The files contain log lines, too.
        """
        pattern = f"{self.directory}/parquet/**/*.parquet"
        if not list(self.directory.glob("parquet/**/*.parquet")):
            return 0
        columns = "time, name, field, hostname, type, type_id, stype, stype_id, tags"
        lines = "field <> 'log' and epoch_us(time) <= ?"
        rows = f"select distinct {columns} from read_parquet(?) where {lines}"  # noqa: S608
        query = f"select count(*) from ({rows})"  # noqa: S608
        with duckdb.connect() as database:
            [(count,)] = database.execute(query, [pattern, until]).fetchall()
        return int(count)

    async def stop(self) -> str:
        done = await ended(self.process, signal.SIGTERM)
        assert done.code == 0, done.err
        return done.err


@contextlib.asynccontextmanager
async def started(directory: Path, *options: str, **environ: str) -> AsyncIterator[Up]:
    """Start it with a fast publisher, and wait until it has stored something."""
    process = await start(
        "up", "--dir", directory / "data", *ports(), "--interval", "100ms", "--file-interval", "1s",
        *options,
        CCPIPE_PUBLISH__JITTER="0", **environ,
    )  # fmt: skip
    up = Up(process, directory / "data")
    try:
        await eventually(lambda: up.stored() > 0 or process.returncode is not None)
        yield up
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.fixture
async def up(tmp_path: Path) -> AsyncIterator[Up]:
    async with started(tmp_path) as up:
        yield up


def ports() -> list[str]:
    return ["--port", str(free_port()), "--dashboard-port", str(free_port())]


def published(errors: str) -> tuple[int, int]:
    found = re.search(r"publisher: (\d+) records read, (\d+) written, 0 dead letters", errors)
    assert found, errors
    return int(found[1]), int(found[2])


def test_children_of_up_log_in_with_its_options(tmp_path: Path) -> None:
    """Also with the files that a NATS context names."""
    where = SiteOptions(server="tls://a", nats_user="me", password_file=Path("/p"))
    given = where.site(**{"bus.ca_file": "/ca"})
    environment = _environment(given, "tls://a", tmp_path, None)
    bus = load(None, Site, environ=environment).bus
    assert (bus.servers, bus.user, bus.password_file) == (["tls://a"], "me", "/p")
    assert bus.ca_file == "/ca"


async def test_up_stores_all_published_lines(up: Up) -> None:
    """After SIGTERM every sampled line is in Parquet, within 5 s."""
    errors = await up.stop()
    read, written = published(errors)
    assert read == written == up.stored()
    assert running() is None


async def test_up_loses_nothing_when_server_and_bridge_are_killed(up: Up) -> None:
    """Kill -9 of either, while publishing: both are restarted, every line is stored.

    Stopping takes at most 5 s: the next start stores the messages that are left.
    """
    for word in ("nats-server", "bridge", "nats-server"):
        await up.kill(word)
        await up.until_more_is_stored()
    read, written = published(await up.stop())
    assert read == written
    end = time.time_ns() // 1000
    async with started(up.directory.parent) as again:
        await again.until_more_is_stored()
        await eventually(lambda: again.stored(end) == read)
        await again.stop()


async def test_up_rejects_second_one_in_same_directory(up: Up) -> None:
    """They would overwrite each other's files; the error names the remedy."""
    second = await finished("up", "--dir", up.directory)
    assert second.code == 64
    assert "--dir" in second.err


async def test_up_ends_on_error_that_restart_cannot_fix(tmp_path: Path) -> None:
    """A wrong setting is reported once, with exit code 78."""
    wrong = {"CCPIPE_PUBLISH__COLLECTORS__CPU__HWTHREAD": "true"}
    done = await finished("up", "--dir", tmp_path, *ports(), **wrong)
    assert done.code == 78
    assert done.err.count("did you mean 'hwthreads'") == 1


async def test_up_imports_nothing_from_current_directory(tmp_path: Path) -> None:
    """Such as a module with the name of a library."""
    here, seen = tmp_path / "downloads", tmp_path / "seen"
    here.mkdir()
    for name in ("msgspec.py", "nats.py", "ccpipe.py", "asyncio.py"):
        (here / name).write_text(f"open({str(seen)!r}, 'a').write('{name} ')\n")
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("ccpipe"), "up", "--dir", tmp_path / "data", *ports(),
        "--interval", "100ms", "--file-interval", "1s", cwd=here, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, preexec_fn=die_with_parent,
    )  # fmt: skip
    up = Up(process, tmp_path / "data")
    try:
        await eventually(lambda: up.stored() > 0 or process.returncode is not None)
    finally:
        errors = await up.stop()
    assert not seen.exists(), seen.read_text()
    assert published(errors)[0] > 0


async def test_up_counts_restarts(tmp_path: Path) -> None:
    """At the configured address: of the server and of both children."""
    port = free_port()

    def metrics() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    async with started(tmp_path, CCPIPE_TELEMETRY__LISTEN=f"127.0.0.1:{port}") as up:
        for word in ("nats-server", "bridge"):
            await up.kill(word)
        text = await asyncio.to_thread(metrics)
        assert 'ccpipe_restarts_total{component="server"} 1.0' in text
        assert 'ccpipe_restarts_total{component="bridge"} 1.0' in text
        await up.stop()


async def test_tail_started_first_connects_to_up(tmp_path: Path) -> None:
    """`ccpipe tail` may wait in another shell; the port may be any."""
    # Another broker may use the default port.
    program = (
        "import sys\n"
        "from ccpipe.bus.nats import connection\n"
        "from ccpipe.cli import main\n"
        f"connection.DEFAULT_SERVER = 'nats://127.0.0.1:{free_port()}'\n"
        "sys.argv[1:] = ['tail', '--count', '1', '--for', '90s']\n"
        "main()\n"
    )
    tail = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, preexec_fn=die_with_parent,
    )  # fmt: skip
    assert tail.stderr is not None
    await asyncio.wait_for(tail.stderr.readline(), 60)  # it reports that it cannot connect
    async with started(tmp_path):
        shown = await ended(tail)
    assert shown.code == 0, shown.err
    assert "local" in shown.out


async def test_children_end_when_up_is_killed(up: Up) -> None:
    """Kill -9 of the parent leaves no process."""
    children = psutil.Process(up.process.pid).children()
    assert len(children) == 4  # server, bridge, publisher, dashboard
    up.process.kill()
    await up.process.communicate()
    await eventually(lambda: not any(child.is_running() for child in children))
    assert up.stored() > 0


async def test_up_ends_after_given_time(tmp_path: Path) -> None:
    """``--for`` acts like SIGTERM, also during the start."""
    done = await ended(await start("up", "--dir", tmp_path / "d", "--for", "1s", *ports()))
    assert done.code == 0, done.err
    assert "ccpipe tail" in done.out


async def test_up_serves_dashboard(up: Up) -> None:
    """Its address is printed, and it shows this node's metrics."""
    assert up.process.stdout is not None
    async with asyncio.timeout(60):
        while not (found := re.search(rb"http://\S+", await up.process.stdout.readline())):
            pass
    await until_node_is_shown(found[0].decode())
    await up.stop()


async def until_node_is_shown(url: str) -> None:
    import aiohttp

    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        while True:
            with contextlib.suppress(aiohttp.ClientConnectorError):
                async with session.ws_connect(f"{url}api/live") as socket:
                    await socket.send_str('{"view": "overview"}')
                    async for message in socket:
                        if b'"nodes":1' in message.data:
                            return
            await asyncio.sleep(0.1)


async def test_up_ignores_variables_for_other_recipes(tmp_path: Path) -> None:
    """The shell may set them for another bridge; --config applies to all processes."""
    config = tmp_path / "site.toml"
    config.write_text('hostname = "renamed"\n')
    added = {
        "CCPIPE_SINK__URL": "http://127.0.0.1:1",
        "CCPIPE_SOURCE__QUEUE": "q",
        "CCPIPE_TRANSLATE": "x",
        "CCPIPE_BATCH__MAX_RECORDS": "soon",
    }
    async with started(tmp_path, "--no-dashboard", "--config", str(config), **added) as up:
        errors = await up.stop()
    assert up.stored() > 0, errors
    with duckdb.connect() as database:
        pattern = f"{up.directory}/parquet/**/*.parquet"
        rows = database.execute("select distinct hostname from read_parquet(?)", [pattern])
        assert rows.fetchall() == [("renamed",)]


async def test_up_ends_when_child_cannot_be_restarted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unexpected error is raised and the other processes are ended."""

    async def fail(_: Child) -> None:
        raise KeyError("unexpected")

    async def watch(stop: asyncio.Event) -> None:
        with failing(stop.set):
            async with Child("bridge", ["version"], environment(), stop, Telemetry()):
                monkeypatch.setattr(Child, "_start", fail)
                await asyncio.wait_for(stop.wait(), 60)

    with pytest.raises(KeyError, match="unexpected"):
        await watch(asyncio.Event())
    assert "ccpipe-bridge failed: KeyError" in caplog.text
