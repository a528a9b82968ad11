"""Jobs in the real cc-backend: the recipe's messages over NATS are in its database."""

import asyncio
import contextlib
import json
import sqlite3
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

from ccpipe.bus.nats.server import NatsServer
from tests.bridges.clustercockpit import (
    CLUSTER,
    CONFIGURATION,
    JOB_SUBJECT,
    JOBS,
    peer,
    send_grid_engines_jobs,
)
from tests.bridges.recipes import started
from tests.cli.command import ccpipe
from tests.conftest import eventually, free_port
from tests.paths import TEST_DATA

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

NAMED = MACHINE | {"name": "named", "nodes": "node[01-02]"}
"""It takes states of nodes that the configuration names, and of no others."""


class Backend:
    """A running cc-backend with its NATS API, which is off by default, and its own concurrency."""

    def __init__(self, directory: Path, nats: str) -> None:
        self.directory = directory
        self.url = f"http://127.0.0.1:{free_port()}"
        archive = directory / "var/job-archive"
        (archive / CLUSTER).mkdir(parents=True)
        (archive / "version.txt").write_text("3\n")
        metrics = json.loads(ccpipe("config", "clustercockpit", "--all").out)["metricConfig"]
        cluster = {"name": CLUSTER, "metricConfig": metrics, "subClusters": [MACHINE, NAMED]}
        (archive / CLUSTER / "cluster.json").write_text(json.dumps(cluster))
        (directory / ".env").write_text(SECRETS)
        config: dict[str, Any] = {
            "main": {"addr": self.url.removeprefix("http://"), "api-subjects": SUBJECTS},
            "nats": {"address": nats},
            "auth": {"jwts": {"max-age": "2000h"}},
            "metric-store": {"retention-in-memory": "24h", "memory-cap": 1},
        }
        (directory / "config.json").write_text(json.dumps(config))

    async def __aenter__(self) -> Self:
        self.process = await asyncio.create_subprocess_exec(
            peer("cc-backend"), "-migrate-db", cwd=self.directory
        )
        assert await self.process.wait() == 0
        self.process = await asyncio.create_subprocess_exec(
            peer("cc-backend"), "-server", "-loglevel", "info", cwd=self.directory
        )
        await eventually(self._answers)
        return self

    async def __aexit__(self, *_: object) -> None:
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

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        file = sqlite3.connect(f"file:{self.directory}/var/job.db?mode=ro", uri=True, timeout=10)
        with contextlib.closing(file):
            return file.execute(sql).fetchall()

    def jobs(self) -> tuple[int, int]:
        states = self._query("SELECT job_state FROM job UNION ALL SELECT job_state FROM job_cache")
        return len(states), sum(state != "running" for (state,) in states)

    def health(self, node: str) -> set[str]:
        rows = self._query(
            "SELECT hostname, health_state FROM node JOIN node_state ON node.id = node_id"
        )
        return {health for name, health in rows if name == node}

    def nodes(self) -> set[tuple[Any, ...]]:
        return set(
            self._query(
                "SELECT hostname, node_state, jobs_running, cpus_allocated"
                " FROM node JOIN node_state ON node.id = node_id"
            )
        )


async def test_every_job_of_grid_engine_starts_and_stops(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """With the shipped recipe, separate subjects for job events and eight workers in cc-backend."""
    async with Backend(tmp_path, nats_server.url) as backend:
        await send_grid_engines_jobs(tmp_path, nats_server)
        deadline = time.monotonic() + 30
        while backend.jobs() != (JOBS, JOBS) and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
        print(f"started, stopped: {backend.jobs()}")
        assert backend.jobs() == (JOBS, JOBS)


async def test_states_of_nodes_equal_qhost(tmp_path: Path, nats_server: NatsServer) -> None:
    """Output of qhost on a real cell: two nodes, with what runs on them."""
    (tmp_path / "recipe.toml").write_text(
        f"""
        [source]
        use = "qstat"
        command = ["cat", "{TEST_DATA}/gridengine/qhost-j-q-F.xml"]
        [sink]
        use = "nats"
        """
    )
    (tmp_path / "ccpipe.toml").write_text(CONFIGURATION)
    async with Backend(tmp_path, nats_server.url) as backend:
        bridge = await started(
            *("bridge", tmp_path / "recipe.toml", "--config", tmp_path / "ccpipe.toml"),
            CCPIPE_BUS__SERVERS=nats_server.url,
        )
        try:
            expected = {("node01", "allocated", 3, 3), ("node02", "allocated", 4, 4)}
            await eventually(lambda: backend.nodes() == expected)
        finally:
            bridge.kill()
            await bridge.wait()


async def test_node_is_fully_monitored_with_printed_metrics(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """``ccpipe config clustercockpit`` prints the metrics that the node sends, and no others."""
    (tmp_path / "nodes.toml").write_text(
        f"""
        [source]
        use = "qstat"
        command = ["cat", "{TEST_DATA}/gridengine/qhost-j-q-F.xml"]
        poll_interval = "1s"
        [sink]
        use = "nats"
        """
    )
    path = tmp_path / "ccpipe.toml"
    path.write_text(
        f"""
        {CONFIGURATION}
        metrics = "hpc-nats"
        [publish]
        interval = "2s"
        profile = "clustercockpit"
        """
    )
    backend = Backend(tmp_path, nats_server.url)
    cluster = tmp_path / "var/job-archive" / CLUSTER / "cluster.json"
    printed = json.loads(ccpipe("config", "clustercockpit", "--config", path).out)
    content = json.loads(cluster.read_text()) | {"metricConfig": printed["metricConfig"]}
    cluster.write_text(json.dumps(content))
    config = json.loads((tmp_path / "config.json").read_text())
    config["metric-store"]["nats-subscriptions"] = [
        {"subscribe-to": "hpc-nats", "cluster-tag": CLUSTER}
    ]
    (tmp_path / "config.json").write_text(json.dumps(config))
    env = {"CCPIPE_HOSTNAME": "node01", "XDG_STATE_HOME": str(tmp_path)}
    async with backend, contextlib.AsyncExitStack() as stack:
        for arguments in (("publish",), ("bridge", tmp_path / "nodes.toml")):
            process = await started(
                *arguments, "--config", path, **env, CCPIPE_BUS__SERVERS=nats_server.url
            )
            stack.push_async_callback(process.wait)
            stack.callback(process.kill)
        await eventually(lambda: "full" in backend.health("node01"))
