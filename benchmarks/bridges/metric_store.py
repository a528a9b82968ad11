"""cc-metric-store reading lines from core NATS into its memory, as ClusterCockpit runs it.

It is built by ``go build ./cmd/cc-metric-store``; its checkpoints are JSON, and it writes none
meanwhile.
"""

import asyncio
import contextlib
import json
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nats

from benchmarks.payloads import payload, realistic, series
from benchmarks.servers import await_port, broker, running
from benchmarks.timing import Result, process_seconds
from tests.conftest import free_port

LINES = 500  # in one message
SUBJECT = "hpc-nats"
AT_ONCE = 50 * LINES
"""Published before we wait until it has read them: its client drops messages beyond its buffer."""


def into_memory(program: Path, *, quick: bool) -> Result:
    """Return the lines that it takes in per second of its CPU, once it knows all series."""
    count, rounds = (100_000, 1) if quick else (500_000, 3)
    lines = realistic(rounds * count + AT_ONCE)
    spent = []
    with broker() as url, _store(program, url) as (pid, address):
        asyncio.run(_publish(url, lines[:AT_ONCE], address))
        for start in range(AT_ONCE, len(lines), count):
            begin = process_seconds(pid)
            asyncio.run(_publish(url, lines[start : start + count], address))
            spent.append(process_seconds(pid) - begin)
    return Result("cc-metric-store: core NATS → its memory", count / min(spent))


async def _publish(url: str, lines: list[str], address: str) -> None:
    connection = await nats.connect(url)
    for start in range(0, len(lines), AT_ONCE):
        part = lines[start : start + AT_ONCE]
        for at in range(0, len(part), LINES):
            await connection.publish(SUBJECT, payload(part[at : at + LINES]))
        await connection.flush(60)
        await asyncio.to_thread(_wait_for, part[-1], address)
    await connection.close()


def _wait_for(line: str, address: str) -> None:
    """Wait until the store answers with a line's value."""
    key, value, at = line.split()
    name, *tags = key.split(",")
    tag = dict(one.split("=") for one in tags)
    query: dict[str, object] = {"metric": name, "host": tag["hostname"], "resolution": 10}
    if "type-id" in tag:
        query |= {"type": tag["type"], "type-ids": [tag["type-id"]]}
    span = {"from": int(at), "to": int(at) + 10}
    body = {"cluster": "fritz", **span, "with-data": True, "queries": [query]}
    request = urllib.request.Request(  # noqa: S310 - ours
        f"{address}/api/query", json.dumps(body).encode(), method="GET"
    )
    wanted = float(value.removeprefix("value="))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
            results = json.load(response)["results"]
        values = [value for result in results for one in result for value in one.get("data") or []]
        if any(value is not None and abs(value - wanted) < 0.001 for value in values):
            return
        time.sleep(0.02)
    raise SystemExit(f"cc-metric-store has not stored: {line}")


@contextlib.contextmanager
def _store(program: Path, url: str) -> Iterator[tuple[int, str]]:
    port = free_port()
    names = {one.partition(",")[0] for one in series()}
    with tempfile.TemporaryDirectory() as directory:
        config = {
            "main": {"addr": f"127.0.0.1:{port}"},
            "nats": {"address": url},
            "metrics": {name: {"frequency": 10, "aggregation": "sum"} for name in sorted(names)},
            "metric-store": {
                "checkpoints": {"file-format": "json", "directory": f"{directory}/checkpoints"},
                "checkpoint-interval": "12h",
                "memory-cap": 4,
                "retention-in-memory": "48h",
                "nats-subscriptions": [{"subscribe-to": SUBJECT, "cluster-tag": "fritz"}],
            },
        }
        path = Path(directory, "config.json")
        path.write_text(json.dumps(config))
        with running([str(program), "-config", str(path)]) as process:
            await_port(port)
            time.sleep(1)  # it subscribes after it listens
            yield process.pid, f"http://127.0.0.1:{port}"
