"""Job events at a consumer that handles messages as cc-backend does: eight at a time, unordered."""

import asyncio
import json
import random
import shutil
from pathlib import Path

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Site
from ccpipe.formats.lineprotocol import decode
from ccpipe.telemetry import Telemetry
from tests.bridges.recipes import changed, completed
from tests.conftest import eventually
from tests.paths import TEST_DATA

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
    changes = {
        '"/opt/sge/default/common/': f'"{tmp_path}/',
        '# begin = "start"': 'begin = "oldest"',
    }
    changes |= {"# reporting =": "reporting ="} if "reporting" in files else {}
    recipe = changed("gridengine.toml", tmp_path, changes)
    for name, source in files.items():
        shutil.copy(DATA / source, tmp_path / name)
    backend = Backend()
    workers = [asyncio.create_task(backend.work()) for _ in range(8)]
    async with Connection(site.bus, name="backend", telemetry=Telemetry()) as bus:
        await bus.subscribe("fox%2Etest.events.>", backend.waiting.put_nowait)
        env = {"CCPIPE_BUS__SERVERS": nats_server.url, "CCPIPE_CLUSTER": site.cluster}
        await completed("bridge", recipe, **env, CCPIPE_SOURCE__ONCE="true")
        await eventually(lambda: len(backend.stopped) + len(backend.lost) >= jobs)
        await backend.waiting.join()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert backend.lost == set()
    assert len(backend.stopped) == jobs
