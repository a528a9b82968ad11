"""Job events at a consumer that handles messages as cc-backend does: eight at a time, unordered."""

import asyncio
import json
import random
import shutil
from pathlib import Path

import pytest

from ccpipe.bus.nats.connection import Connection, Delivery
from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Site
from ccpipe.formats.lineprotocol import decode
from ccpipe.process.die_with_parent import die_with_parent
from ccpipe.telemetry import Telemetry
from tests.cli.command import command, environment
from tests.conftest import eventually
from tests.paths import ROOT, TEST_DATA

RECIPE = (ROOT / "bridges/gridengine.toml").read_text()
DATA = TEST_DATA / "gridengine"


class Backend:
    """Eight workers, each busy for a while with a message; a stop before its start is lost."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[Delivery] = asyncio.Queue()
        self.started: set[tuple[int, int]] = set()
        self.stopped: set[tuple[int, int]] = set()
        self.lost: set[tuple[int, int]] = set()
        self.dice = random.Random(7)

    async def work(self) -> None:
        """Handle messages one by one; the lines of a message in their order."""
        while True:
            delivery = await self.waiting.get()
            await asyncio.sleep(self.dice.random() / 50)
            for line in decode(delivery.payload):
                assert line.time
                if line.name != "job":
                    continue
                payload = json.loads(str(line.value))
                key = payload["jobId"], payload["startTime"]
                if line.tags["function"] == "start_job":
                    assert key not in self.started
                    self.started.add(key)
                elif key in self.started:
                    self.stopped.add(key)
                else:
                    self.lost.add(key)
            self.waiting.task_done()


@pytest.mark.parametrize(
    ("files", "jobs"),
    [
        ({"accounting": "accounting", "accounting.jsonl": "derived.jsonl"}, 143),
        ({"accounting": "reporting.head", "reporting": "reporting.head"}, 38),
    ],
)
async def test_every_job_that_ended_is_stopped(
    tmp_path: Path, nats_server: NatsServer, site: Site, files: dict[str, str], jobs: int
) -> None:
    """From accounting, and with starts from the reporting file."""
    text = RECIPE.replace('"/opt/sge/default/common/', f'"{tmp_path}/')
    text = text.replace('"/var/lib/ccpipe/', f'"{tmp_path}/')
    text = text.replace('# begin = "start"', 'begin = "oldest"')
    if "reporting" in files:
        text = text.replace("# reporting =", "reporting =")
    (tmp_path / "recipe.toml").write_text(text)
    for name, source in files.items():
        shutil.copy(DATA / source, tmp_path / name)
    backend = Backend()
    workers = [asyncio.create_task(backend.work()) for _ in range(8)]
    async with Connection(site.bus, name="backend", telemetry=Telemetry()) as bus:
        await bus.subscribe("fox%2Etest.events.>", backend.waiting.put_nowait)
        env = environment(
            CCPIPE_BUS__SERVERS=nats_server.url,
            CCPIPE_CLUSTER=site.cluster,
            CCPIPE_SOURCE__ONCE="true",
        )
        bridge = await asyncio.create_subprocess_exec(
            *command("bridge", tmp_path / "recipe.toml"), env=env, preexec_fn=die_with_parent
        )
        assert await asyncio.wait_for(bridge.wait(), 60) == 0
        await eventually(lambda: len(backend.stopped) + len(backend.lost) >= jobs)
        await backend.waiting.join()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert backend.lost == set()
    assert len(backend.stopped) == jobs
