"""Job events to ClusterCockpit's cc-energy-manager and cc-event-store."""

import contextlib
import json
import re
import signal
import sqlite3
import urllib.parse
from datetime import UTC, datetime
from pathlib import Path

from ccpipe.bus.nats.server import NatsServer
from tests.bridges.clustercockpit import JOBS, job_receiver, peer, running, send_grid_engines_jobs
from tests.conftest import eventually, free_port

OPTIMIZER = {
    "scope": "job",
    "aggregator": {
        "type": "median",
        "windowSize": 5,
        "powerMetrics": {"cpu_power": {"minValue": 0, "maxValue": 1000}},
        "performanceMetrics": {"ipc": {"minValue": 0, "maxValue": 10}},
    },
    "controlName": "rapl.pkg_limit_1",
    "controlDefaultValue": 200,
    "intervalConverged": "10m",
    "intervalSearch": "10m",
    "powerBudgetWeight": 1,
    "optimizer": {"type": "gssng", "tolerance": 5, "borders": {"lower": 100, "upper": 200}},
}


def energy_manager(nats: str) -> str:
    address = urllib.parse.urlsplit(nats)
    login = {"user": address.username or "", "password": address.password or ""}
    subcluster = {"name": "main", "hostRegex": "^node", "devicetypes": {"node": OPTIMIZER}}
    return json.dumps(
        {
            "sinks": {"out": {"type": "stdout"}},
            "receivers": job_receiver(nats),
            "controller": {
                "nats": {
                    "server": address.hostname,
                    "port": address.port,
                    "requestSubject": "cc-control",
                    **login,
                }
            },
            "clusters": [
                {
                    "name": "fritz",
                    "powerBudgetTotal": 10000,
                    "partitionRegex": "^.+$",
                    "subclusters": [subcluster],
                }
            ],
        }
    )


async def test_cc_energy_manager_accepts_every_start_and_stop(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """Stops have the tag ``partition``, without which it would keep all jobs forever."""
    peer("cc-energy-manager")
    (tmp_path / "config.json").write_text(energy_manager(nats_server.url))
    async with running("cc-energy-manager", tmp_path, "debug") as log:
        await eventually(lambda: "[JobManager] Starting" in log.read_text())
        await send_grid_engines_jobs(tmp_path, nats_server)
        await eventually(lambda: len(stopped(log)) >= JOBS)
    started = log.read_text().count("Created new job (cluster=fritz")
    print(f"started, stopped: {started}, {len(stopped(log))}")
    assert started == len(stopped(log)) == JOBS


def stopped(log: Path) -> set[str]:
    return set(re.findall(r"Stopping JobManager cluster=fritz jobId=(\d+)", log.read_text()))


def event_store(nats: str) -> str:
    return json.dumps(
        {
            "receivers": job_receiver(nats),
            "api": {"address": "127.0.0.1", "port": str(free_port()), "jwt_public_key": ""},
            "storage": {
                "retention_time": "876000h",
                "flush_time": "1s",
                "batch_size": 1000,  # messages that arrive while a batch is full are lost there
                "backend": {"type": "sqlite", "database_path": "./events.db"},
            },
        }
    )


def stored(directory: Path) -> list[tuple[int, dict[str, int]]]:
    file = sqlite3.connect(f"file:{directory}/events.db?mode=ro", uri=True, timeout=10)
    with contextlib.closing(file):
        try:
            rows = file.execute("SELECT timestamp, field FROM fritz_events").fetchall()
        except sqlite3.OperationalError:  # nothing was stored so far
            return []
    return [(time, json.loads(field)) for time, field in rows]


async def test_cc_event_store_files_events_by_time(tmp_path: Path, nats_server: NatsServer) -> None:
    """With the shipped recipe: the second at which the job began or ended."""
    peer("cc-event-store")
    (tmp_path / "config.json").write_text(event_store(nats_server.url))
    async with running("cc-event-store", tmp_path, "info", end=signal.SIGTERM):
        await eventually((tmp_path / "events.db").exists)
        await send_grid_engines_jobs(tmp_path, nats_server)
        await eventually(lambda: len(stored(tmp_path)) >= 2 * JOBS)
    found = stored(tmp_path)
    assert len(found) == 2 * JOBS
    for time, payload in found:
        assert time == payload.get("stopTime", payload["startTime"])
        assert datetime.fromtimestamp(time, UTC).year >= 2026
