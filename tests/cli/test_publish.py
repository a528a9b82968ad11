"""``ccpipe publish``: this node's metrics, printed or put on the bus."""

import asyncio
import contextlib
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nats
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ccpipe.bus.nats.credentials import without_secrets
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Bus, Duration, Site
from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.sonar import decode as decode_envelopes
from ccpipe.telemetry import Telemetry
from tests.cli.command import Ended, command, ended, environment, finished, start
from tests.conftest import eventually, free_port
from tests.test_telemetry import get


async def run(*arguments: object, **environ: str) -> Ended:
    return await finished("publish", *arguments, **environ)


async def test_publish_prints_sample_as_valid_line_protocol() -> None:
    """Every line follows the specification and has cluster and node."""
    before = time.time_ns()
    code, printed, _ = await run("--once", "--dry-run", "--cluster", "fox.test")
    assert code == 0
    lines = decode(printed.encode())
    assert not lines.rejected
    assert not [problem for message in lines for problem in message.problems()]
    assert {m.tags["cluster"] for m in lines} == {"fox.test"}
    assert {m.hostname for m in lines} == {socket.gethostname().partition(".")[0]}
    assert {"cpu_load", "mem_used", "cpu_user"} <= {m.name for m in lines}
    moments = {m.time for m in lines}
    assert len(moments) == 1
    (timestamp,) = moments
    assert timestamp is not None
    assert before - 10 * 10**9 <= timestamp <= time.time_ns()


async def test_publish_prints_json_as_one_object_per_line() -> None:
    code, printed, _ = await run("--once", "--dry-run", "-o", "json")
    assert code == 0
    assert {"cpu_load", "mem_used"} <= {json.loads(line)["name"] for line in printed.splitlines()}


async def test_publish_prints_table() -> None:
    """With a head and one line for each metric."""
    code, printed, _ = await run("--once", "--dry-run", "-o", "table")
    assert code == 0
    head, *rows = printed.splitlines()
    assert "NAME" in head
    assert any("mem_used" in row for row in rows)


async def test_publish_prints_sonar_envelopes_on_request() -> None:
    """A sample and a sysinfo of this node, as they would be published; no metrics."""
    code, printed, _ = await run("--once", "--dry-run", "-o", "sonar", "--cluster", "fox.test")
    assert code == 0
    envelopes = decode_envelopes(printed.encode(), strict=True)
    assert not envelopes.rejected
    kinds = [envelope.data.type for envelope in envelopes if envelope.data is not None]
    assert kinds == ["sample", "sysinfo"]


async def test_publish_rejects_printing_disabled_sonar_envelopes(tmp_path: Path) -> None:
    """Instead of waiting forever for the first one."""
    config = tmp_path / "ccpipe.toml"
    config.write_text("[publish.sonar]\nsample_interval = 0\nsysinfo_interval = 0\n")
    code, printed, errors = await run("--dry-run", "-o", "sonar", "--config", config)
    assert (code, printed) == (64, "")
    assert "publish.sonar" in errors


async def test_publish_prints_sonar_envelopes_in_configured_profile(tmp_path: Path) -> None:
    """As published: slurm-monitor fails on a process group without ``job``."""
    config = tmp_path / "ccpipe.toml"
    options = "profile = 'slurm-monitor'\nexclude_system_jobs = false\n"
    config.write_text(f"[publish.sonar]\n{options}")
    _, printed, _ = await run("--once", "--dry-run", "-o", "sonar", "--config", config)
    sample = json.loads(printed.splitlines()[0])["data"]["attributes"]
    assert sample["jobs"]
    assert all("job" in group for group in sample["jobs"])


async def test_publish_explains_and_applies_rules(tmp_path: Path) -> None:
    """A dry run prints what --explain shows; --explain requires --once."""
    config = tmp_path / "ccpipe.toml"
    config.write_text("[[publish.translate]]\nuse = 'rename'\nnames = { cpu_load = 'load' }\n")
    code, printed, _ = await run("--once", "--explain", "--config", config)
    assert code == 0
    assert printed.startswith("# rule 1 rename")
    assert {"load"} < {m.name for m in decode(printed.encode())}
    code, printed, _ = await run("--once", "--dry-run", "--config", config)
    names = {m.name for m in decode(printed.encode())}
    assert "load" in names
    assert "cpu_load" not in names
    code, _, errors = await run("--explain", "--config", config)
    assert code == 64
    assert "--once" in errors


async def test_publish_once_publishes_metrics_and_envelopes(nats_server: NatsServer) -> None:
    """One sample of each, stored in the stream when it ends; no constant metrics."""
    code, _, errors = await run("--once", "--server", nats_server.url)
    assert code == 0, errors
    client = await nats.connect(nats_server.url)
    found = await client.jetstream().stream_info("ccpipe-local", subjects_filter=">")
    await client.close()
    subjects = {"local.metrics", "local.sonar.sample", "local.sonar.sysinfo"}
    assert set(found.state.subjects or {}) - {"local.sonar.error"} == subjects


async def test_publish_once_ends_within_seconds_without_broker() -> None:
    """With the server's address and EX_UNAVAILABLE."""
    server = f"nats://127.0.0.1:{free_port()}"
    code, _, errors = await run("--once", "--server", server)
    assert code == 69
    assert f"no NATS server answers at {server}" in errors
    assert "Traceback" not in errors


async def test_configuration_selects_collectors_tags_and_options(tmp_path: Path) -> None:
    """A collector can be disabled, another one configured, and each line tagged."""
    config = tmp_path / "ccpipe.toml"
    config.write_text(
        """
        hostname = "n7"
        [publish.tags]
        rack = "r1"
        [publish.collectors.load]
        enabled = false
        [publish.collectors.cpu]
        hwthreads = ["*"]
        """
    )
    code, printed, _ = await run("--once", "--dry-run", "--config", config)
    assert code == 0
    lines = decode(printed.encode())
    assert "cpu_load" not in {m.name for m in lines}
    assert "hwthread" in {m.tags["type"] for m in lines}
    assert {(m.hostname, m.tags["rack"]) for m in lines} == {("n7", "r1")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[publish.collectors.dsk]\n", "unknown collector 'dsk'; did you mean 'disk'?"),
        ("[publish.collectors.cpu]\nhwthread = true\n", "did you mean 'hwthreads'"),
        ("[bus]\nuser = 'x'\n", "bus.password_file: is missing"),
        (
            "[[publish.translate]]\nuse = 'renam'\n",
            "publish.translate[0].use: unknown translator 'renam'; did you mean 'rename'?",
        ),
        ("a = [", "not TOML"),
        ("[[publish.translate]]\nuse = 'sonar_to_cc'\n", "use it in a bridge"),
    ],
)
async def test_publish_rejects_wrong_configuration_before_start(
    tmp_path: Path, text: str, expected: str
) -> None:
    """With the key path and EX_CONFIG; ``validate`` finds the error, too."""
    config = tmp_path / "ccpipe.toml"
    config.write_text(text)
    ends = await run("--once", "--config", config)
    found = await finished("validate", "--no-connect", config)
    for code, printed, errors in (ends, found):
        assert code == 78
        assert expected in printed + errors
        assert "Traceback" not in errors


async def test_publisher_keeps_samples_until_server_starts(tmp_path: Path) -> None:
    server, listen = NatsServer(tmp_path / "nats", port=free_port()), f"127.0.0.1:{free_port()}"
    publisher = await start(
        "publish", "--interval", "200ms", CCPIPE_BUS__SERVERS=server.url,
        CCPIPE_PUBLISH__JITTER="0", CCPIPE_TELEMETRY__LISTEN=listen,
    )  # fmt: skip
    try:
        await until_sampled(listen, 3)  # without a server
        came = time.time_ns()
        async with server:
            site = Site(cluster="local", bus=Bus(servers=[server.url]))
            source = NatsSource(
                site=site,
                telemetry=Telemetry(),
                subjects=["metrics"],
                durable="t",
                drain_timeout=Duration(3),
            )
            slots: set[int] = set()

            async def read() -> None:
                async with source:
                    async for batch in source.batches():
                        slots.update(r.time for r in batch.records if r.time is not None)
                        assert batch.ack
                        await batch.ack()

            reading = asyncio.create_task(read())
            await eventually(lambda: bool(slots) and max(slots) > came)
            publisher.send_signal(signal.SIGTERM)
            await publisher.communicate()
            source.stop()
            await reading
    finally:
        if publisher.returncode is None:
            publisher.kill()
            await publisher.communicate()
    assert len([slot for slot in slots if slot < came]) > 1
    assert not [slot for slot in slots if slot % (200 * 10**6)]


async def until_sampled(listen: str, slots: int) -> None:
    """Wait until a publisher has read the samples of so many slots."""
    seen: set[str] = set()

    def look() -> None:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{listen}/metrics", timeout=30) as answer,
        ):
            text = answer.read().decode()
            seen.update(
                re.findall(
                    r'^ccpipe_read_records_total{component="Sampler"} (.+)$', text, re.MULTILINE
                )
            )

    async with asyncio.timeout(60):
        while len(seen - {"0.0"}) < slots:
            await asyncio.to_thread(look)
            await asyncio.sleep(0.05)


async def test_publisher_is_ready_after_first_connection_and_while_it_spools(
    tmp_path: Path,
) -> None:
    """Not ready with a wrong address, although it samples; ready if the broker is lost later."""
    server, port = NatsServer(tmp_path / "nats", port=free_port()), free_port()
    publisher = await start(
        "publish", "--interval", "200ms", CCPIPE_BUS__SERVERS=server.url,
        CCPIPE_PUBLISH__JITTER="0", CCPIPE_TELEMETRY__LISTEN=f"127.0.0.1:{port}",
    )  # fmt: skip
    try:
        await until_sampled(f"127.0.0.1:{port}", 3)
        reason = f"not connected to {without_secrets(server.url)} since the start"
        assert await asyncio.to_thread(get, port, "/ready") == (503, f"not ready: {reason}\n")
        assert await asyncio.to_thread(get, port, "/health") == (200, "ok\n")
        async with server, asyncio.timeout(60):
            while await asyncio.to_thread(get, port, "/ready") != (200, "ok\n"):
                await asyncio.sleep(0.05)
        async with asyncio.timeout(60):
            while await spooled(port) < 2:
                await asyncio.sleep(0.05)
        assert await asyncio.to_thread(get, port, "/ready") == (200, "ok\n")
    finally:
        publisher.kill()
        await publisher.communicate()


async def spooled(port: int) -> float:
    """Return the number of messages in the spool, 0 while the broker is connected."""
    _, text = await asyncio.to_thread(get, port, "/metrics")
    values = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return 0 if values["ccpipe_connected"] else values["ccpipe_spooled_messages"]


async def test_publisher_writes_unsent_lines_to_file_at_end(
    tmp_path: Path,
) -> None:
    """Without server and spool; the lines can be published again."""
    dead, listen = tmp_path / "dead.lp", f"127.0.0.1:{free_port()}"
    publisher = await start(
        "publish", "--interval", "200ms",
        CCPIPE_BUS__SERVERS=f"nats://127.0.0.1:{free_port()}",
        CCPIPE_PUBLISH__JITTER="0", CCPIPE_PUBLISH__DEAD_LETTER_FILE=str(dead),
        CCPIPE_PUBLISH__SPOOL__ENABLED="false", CCPIPE_TELEMETRY__LISTEN=listen,
    )  # fmt: skip
    assert publisher.stderr is not None
    while b"retrying" not in await asyncio.wait_for(publisher.stderr.readline(), 60):
        pass
    await until_sampled(listen, 4)
    code, _, errors = await ended(publisher, signal.SIGTERM)
    assert code == 69
    assert "127.0.0.1" in errors
    assert "dead letter from log" not in errors  # it is unchanged
    lines = decode(dead.read_bytes())
    assert not lines.rejected
    assert len({m.time for m in lines}) > 2
    assert "cpu_load" in {m.name for m in lines}


def test_publisher_imports_no_unused_module() -> None:
    """For a page of metrics, state or other formats."""
    unwanted = ("ccpipe.formats.slurm", "prometheus_client", "pyarrow", "rich", "sqlite3")
    code = (
        "import sys, ccpipe.cli.app, ccpipe.cli.publish\n"
        f"print([name for name in {unwanted} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_publisher_maps_no_cpp_library() -> None:
    """The kernels are linked with it statically, for which ``g++`` needs ``libstdc++.a``."""
    code = (
        "import sys; sys.modules['aiohttp'] = None\n"  # it has some of its own
        "import ccpipe.cli.publish; print(open('/proc/self/maps').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "lineprotocol/kernel/_kernel" in done.stdout
    assert "libstdc++" not in done.stdout


def test_publish_ends_when_its_terminal_closes(tmp_path: Path) -> None:
    """SIGHUP in an open terminal reloads, as it does for a service without one."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(  # noqa: S606 - the command in a terminal of its own
            sys.executable,
            command("publish", "--cluster", "fox", "--server", f"nats://127.0.0.1:{free_port()}"),
            environment(XDG_STATE_HOME=str(tmp_path)),
        )
    try:
        read_until(terminal, b"collectors without data")
        time.sleep(1)
        os.kill(pid, signal.SIGHUP)
        read_until(terminal, b"reload")
        os.close(terminal)
        terminal = -1
        end = time.monotonic() + 60
        while not (found := os.waitpid(pid, os.WNOHANG))[0]:
            assert time.monotonic() < end
            time.sleep(0.1)
        pid = 0
        assert os.waitstatus_to_exitcode(found[1]) == 0
    finally:
        if terminal >= 0:
            os.close(terminal)
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def read_until(terminal: int, text: bytes) -> None:
    shown = b""
    while text not in shown:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, shown
        shown += os.read(terminal, 65536)
