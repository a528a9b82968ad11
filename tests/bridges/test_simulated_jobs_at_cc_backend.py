"""Simulated jobs and nodes at the real cc-backend, by the recipe as it stands."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.formats.lineprotocol import decode
from tests.bridges.clustercockpit import CLUSTER, peer
from tests.bridges.test_cc_backend_killed import Bridges
from tests.bridges.test_clustercockpit_backend import MACHINE
from tests.cli.command import ccpipe
from tests.conftest import eventually
from tests.paths import ROOT
from tests.sinks.test_cc_backend import RestBackend


class SimulatedBackend(RestBackend):
    """cc-backend with the simulated nodes, whose metrics it takes directly from the broker."""

    def __init__(self, folder: Path, nats: str) -> None:
        super().__init__(folder)
        path = folder / "var/job-archive" / CLUSTER / "cluster.json"
        sent = ("config", "clustercockpit", "--since", "4h", "--cluster", CLUSTER, "--server", nats)
        cluster = json.loads(path.read_text()) | json.loads(ccpipe(*sent).out)
        del cluster["metrics"]
        cluster["subClusters"] = [MACHINE | {"nodes": "n[0001-0008]"}]
        path.write_text(json.dumps(cluster))
        path = folder / "config.json"
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
        "--for", "30m", "--interval", "60s", "--speed", "max", "--start", start,
        "--failures", "0",
    )  # fmt: skip
    lines = decode(ccpipe(*run, "--dry-run").out.encode())
    done = ccpipe(*run, "--server", server)
    assert done.code == 0, done.err
    return sum(line.tags.get("function") == "start_job" for line in lines)


@pytest.mark.timeout(300)
async def test_every_simulated_job_starts_and_ends(tmp_path: Path, nats_server: NatsServer) -> None:
    """Of three runs; jobs have footprints, and nodes are shown with what is allocated."""
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
