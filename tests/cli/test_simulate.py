"""``ccpipe simulate``: a simulated cluster, printed or put on the bus."""

import asyncio
import json
import signal
import time
from collections import Counter
from pathlib import Path

import nats
import nats.aio.msg
import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.formats.lineprotocol import decode
from ccpipe.message import Kind
from tests.cli.command import Ended, ended, finished, start
from tests.conftest import eventually


async def run(*arguments: object) -> Ended:
    return await finished("simulate", *arguments)


async def test_simulate_dry_run_prints_lines() -> None:
    """As many as nodes, metrics and samples give; events of nodes and jobs, which all end."""
    code, printed, _ = await run(
        "--nodes", "4", "--metrics", "5", "--duration", "1m", "--speed", "max", "--dry-run",
        "--failures", "0",
    )  # fmt: skip
    assert code == 0
    lines = decode(printed.encode())
    assert not lines.rejected
    assert sum(line.kind is Kind.METRIC for line in lines) == 4 * 5 * 6
    functions = Counter(line.tags.get("function") for line in lines)
    assert functions["start_job"] == functions["stop_job"] > 0
    assert functions["nodestate"] > 0


async def test_simulate_begins_at_given_time() -> None:
    """With the first sample."""
    code, printed, _ = await run(
        "--nodes", "1", "--metrics", "1", "--duration", "20s", "--speed", "max", "--dry-run",
        "--failures", "0", "--since", "2026-11-01T00:00:05Z",
    )  # fmt: skip
    assert code == 0
    times = sorted(
        line.time for line in decode(printed.encode()) if line.kind is Kind.METRIC and line.time
    )
    assert times == [1_793_491_200 * 10**9, 1_793_491_210 * 10**9]


async def test_simulate_prints_sonar_envelopes() -> None:
    """One JSON object a line."""
    code, printed, _ = await run(
        "--nodes", "3", "--duration", "2m", "--speed", "max", "--sonar", "60s", "--dry-run",
        "-o", "sonar", "--failures", "0",
    )  # fmt: skip
    assert code == 0
    kinds = {json.loads(line)["data"]["type"] for line in printed.splitlines()}
    assert kinds == {"sample"}


async def test_simulate_summary_equals_stored_messages(nats_server: NatsServer) -> None:
    """The command ends when everything is stored."""
    code, printed, errors = await run(
        "--nodes", "20", "--metrics", "10", "--duration", "1m", "--speed", "max", "--failures", "0",
        "--server", nats_server.url,
    )  # fmt: skip
    assert (code, printed) == (0, "")
    assert "lines, 0 broken lines published in" in errors


async def test_simulate_report_has_time_of_each_message(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """For each message that the broker has acknowledged."""
    path = tmp_path / "report.json"
    code, _, _ = await run(
        "--nodes", "7", "--metrics", "3", "--duration", "30s", "--speed", "max", "--failures", "0",
        "--server", nats_server.url, "--report", path,
    )  # fmt: skip
    report = json.loads(path.read_text())
    assert code == 0
    assert report["lines"] - report["messages"] == 7 * 3 * 3 - 7 * 3  # an event is one of both
    assert len(report["published"]) == report["messages"]
    assert report["published"] == sorted(report["published"])
    assert report["cpu_seconds"] > 0
    assert report["peak_bytes"] > 10 * 2**20


async def test_simulate_rejects_unwritable_report(nats_server: NatsServer) -> None:
    """Exit code 73; a dry run has no report, 64."""
    some = (
        "--nodes",
        "1",
        "--duration",
        "10s",
        "--speed",
        "max",
        "--report",
        "/nowhere/report.json",
    )
    code, _, errors = await run(*some, "--server", nats_server.url)
    assert code == 73
    assert "--report: /nowhere/report.json" in errors
    assert (await run(*some, "--dry-run"))[0] == 64


async def test_simulate_prints_summary_after_ctrl_c(nats_server: NatsServer) -> None:
    """In real time it runs until then."""
    process = await start(
        "simulate", "--nodes", "2", "--interval", "1s", "--server", nats_server.url
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while b"stores" not in await process.stderr.readline():
            pass
    assert "published in" in (await ended(process, signal.SIGINT)).err


async def test_jobs_of_simulated_cluster_end_with_it(nats_server: NatsServer) -> None:
    """By SIGTERM as at the end; a run that starts in another second has other ids."""
    client = await nats.connect(nats_server.url)
    events = Counter[tuple[str, int]]()

    async def receive(message: nats.aio.msg.Msg) -> None:
        for line in decode(message.data):
            if line.name == "job":
                events[line.tags["function"], json.loads(str(line.value))["jobId"]] += 1

    await client.subscribe("c.events.job", cb=receive)
    await client.flush()
    running = []
    for _ in range(2):
        second = int(time.time())
        await eventually(lambda second=second: int(time.time()) > second)  # type: ignore[misc]
        process = await start(
            "simulate", "--cluster", "c", "--nodes", "20", "--metrics", "1", "--interval", "1s",
            "--server", nats_server.url,
        )  # fmt: skip
        before = set(events)
        await eventually(lambda before=before: len(set(events) - before) >= 4)  # type: ignore[misc]
        assert (await ended(process, signal.SIGTERM)).code == 0
        await client.flush()
        running.append({job for _, job in set(events) - before})
    await client.close()
    assert not set.intersection(*running)
    for job in set.union(*running):
        assert events["start_job", job] == events["stop_job", job] > 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--nodes", "0"], "--nodes"),
        (["--speed", "fast"], "--speed"),
        (["--speed", "60"], "--duration"),
        (["--interval", "0.1s"], "--interval"),
        (["--sonar", "15s"], "--sonar"),
        (["--since", "yesterday"], "--since"),
    ],
)
async def test_simulate_rejects_wrong_options(arguments: list[str], expected: str) -> None:
    """Exit code 64."""
    code, printed, errors = await run(*arguments, "--dry-run")
    assert (code, printed) == (64, "")
    assert expected in errors
