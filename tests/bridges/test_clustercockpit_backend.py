"""Jobs beside the real cc-backend: what the recipe sends over NATS is in its database."""

import asyncio
import contextlib
import json
import sqlite3
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

from ccpipe.bus.nats.server import Server
from tests.bridges.clustercockpit import (
    CLUSTER,
    JOB_SUBJECT,
    JOBS,
    peer,
    send_grid_engines_jobs,
)
from tests.cli.command import ccpipe
from tests.conftest import eventually, free_port

SUBJECTS = {"subject-job-event": JOB_SUBJECT, "subject-node-state": "cc.node.state"}
SECRETS = """
JWT_PUBLIC_KEY="kzfYrYy+TzpanWZHJ5qSdMj5uKUWgq74BWhQG6copP0="
JWT_PRIVATE_KEY="dtPC/6dWJFKZK7KZ78CvWuynylOmjBFyMsUWArwmodOTN9itjL5POlqdZkcnmpJ0yPm4pRaCrvgFaFAbpyik/Q=="
SESSION_KEY="67d829bf61dc5f87a73fd814e2c9f629"
"""  # the examples of its documentation

MACHINE = {
    "name": "main",
    "nodes": "*",
    "processorType": "a processor",
    "socketsPerNode": 1,
    "coresPerSocket": 1,
    "threadsPerCore": 1,
    "flopRateScalar": {"unit": {"base": "F/s", "prefix": "G"}, "value": 1},
    "flopRateSimd": {"unit": {"base": "F/s", "prefix": "G"}, "value": 1},
    "memoryBandwidth": {"unit": {"base": "B/s", "prefix": "G"}, "value": 1},
    "topology": {"node": [0], "socket": [[0]], "memoryDomain": [[0]], "core": [[0]]},
}


class Backend:
    """A running cc-backend with its NATS API, which is off by default, and its own concurrency."""

    def __init__(self, folder: Path, nats: str) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{free_port()}"
        archive = folder / "var/job-archive"
        (archive / CLUSTER).mkdir(parents=True)
        (archive / "version.txt").write_text("3\n")
        metrics = json.loads(ccpipe("config", "clustercockpit").out)["metricConfig"]
        cluster = {"name": CLUSTER, "metricConfig": metrics, "subClusters": [MACHINE]}
        (archive / CLUSTER / "cluster.json").write_text(json.dumps(cluster))
        (folder / ".env").write_text(SECRETS)
        config: dict[str, Any] = {
            "main": {"addr": self.url.removeprefix("http://"), "api-subjects": SUBJECTS},
            "nats": {"address": nats},
            "auth": {"jwts": {"max-age": "2000h"}},
            "metric-store": {"retention-in-memory": "24h", "memory-cap": 1},
        }
        (folder / "config.json").write_text(json.dumps(config))

    async def __aenter__(self) -> Self:
        """Make the database, start the server, and wait until it answers."""
        self.process = await asyncio.create_subprocess_exec(
            peer("cc-backend"), "-migrate-db", cwd=self.folder
        )
        assert await self.process.wait() == 0
        self.process = await asyncio.create_subprocess_exec(
            peer("cc-backend"), "-server", "-loglevel", "info", cwd=self.folder
        )
        await eventually(self._answers)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        self.process.kill()
        await self.process.wait()

    def _answers(self) -> bool:
        assert self.process.returncode is None
        try:
            urllib.request.urlopen(self.url, timeout=5).close()  # noqa: S310
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    def jobs(self) -> tuple[int, int]:
        """Return how many jobs have started and how many of these have stopped."""
        file = sqlite3.connect(f"file:{self.folder}/var/job.db?mode=ro", uri=True, timeout=10)
        with contextlib.closing(file):
            states = [
                state
                for table in ("job", "job_cache")
                for (state,) in file.execute(f"SELECT job_state FROM {table}")  # noqa: S608
            ]
        return len(states), sum(state != "running" for state in states)


async def test_every_job_of_grid_engine_starts_and_stops(
    tmp_path: Path, nats_server: Server
) -> None:
    """As the recipe stands, with subjects of their own for job events and eight workers there."""
    async with Backend(tmp_path, nats_server.url) as backend:
        await send_grid_engines_jobs(tmp_path, nats_server)
        deadline = time.monotonic() + 30
        while backend.jobs() != (JOBS, JOBS) and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
        print(f"started, stopped: {backend.jobs()}")
        assert backend.jobs() == (JOBS, JOBS)
