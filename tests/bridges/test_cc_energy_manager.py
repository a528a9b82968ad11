"""Job events beside the real cc-energy-manager, which takes only jobs of some partitions."""

import asyncio
import json
import re
import urllib.parse
from pathlib import Path

from ccpipe.bus.nats.server import NatsServer
from ccpipe.process.die_with_parent import die_with_parent
from tests.bridges.clustercockpit import JOB_SUBJECT, JOBS, peer, send_grid_engines_jobs
from tests.conftest import eventually

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


def configuration(nats: str) -> str:
    address = urllib.parse.urlsplit(nats)
    login = {"user": address.username or "", "password": address.password or ""}
    subcluster = {"name": "main", "hostRegex": "^node", "devicetypes": {"node": OPTIMIZER}}
    return json.dumps(
        {
            "sinks": {"out": {"type": "stdout"}},
            "receivers": {
                "jobs": {
                    "type": "nats",
                    "address": address.hostname,
                    "port": str(address.port),
                    "subject": JOB_SUBJECT,
                    **login,
                }
            },
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


async def test_it_takes_every_start_and_every_stop(tmp_path: Path, nats_server: NatsServer) -> None:
    """Stops carry the tag ``partition``, without which it would go on with all jobs forever."""
    manager = peer("cc-energy-manager")
    (tmp_path / "config.json").write_text(configuration(nats_server.url))
    log = tmp_path / "manager.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            manager, "-loglevel", "debug", cwd=tmp_path, stdout=output, stderr=output,
            preexec_fn=die_with_parent,
        )  # fmt: skip
    try:
        await eventually(lambda: "[JobManager] Starting" in log.read_text())
        await send_grid_engines_jobs(tmp_path, nats_server)
        await eventually(lambda: len(stopped(log)) >= JOBS)
    finally:
        process.kill()
        await process.wait()
    started = log.read_text().count("Created new job (cluster=fritz")
    print(f"started, stopped: {started}, {len(stopped(log))}")
    assert started == len(stopped(log)) == JOBS


def stopped(log: Path) -> set[str]:
    return set(re.findall(r"Stopping JobManager cluster=fritz jobId=(\d+)", log.read_text()))
