"""Live starts from qstat: each job once, also again after it was gone."""

import asyncio
import json
import sys
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from ccpipe.config import Interval, Site
from ccpipe.errors import ConfigError
from ccpipe.formats.gridengine.status import read_shares, running
from ccpipe.pipeline import Batch
from ccpipe.sources.gridengine.qstat import Qstat
from tests.conftest import eventually
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"
SAMPLE = (DATA / "qstat-g-t.xml").read_bytes()
SITE = Site(cluster="fox", hostname="master")


class Cell:
    """A program that prints what captured qstat output says at the moment, and its reader."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        script = "import sys; sys.stdout.write(open(sys.argv[1]).read())"
        options.setdefault("command", [sys.executable, "-c", script, str(path)])
        self.source = Qstat(site=SITE, poll=Interval(options.pop("poll", 0.05)), **options)
        self.batches: list[Batch] = []

    async def read(self) -> None:
        """Gather batches until stopped."""
        async for batch in self.source:
            self.batches.append(batch)

    def starts(self) -> list[dict[str, Any]]:
        """Return all starts so far."""
        return [json.loads(str(m.value)) for batch in self.batches for m in batch.records]


async def test_each_job_starts_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What runs on starts no second time; what fails in between does no harm."""
    path = tmp_path / "qstat.xml"
    path.write_bytes(SAMPLE)
    cell = Cell(path)
    task = asyncio.create_task(cell.read())
    await eventually(lambda: len(cell.batches) == 1)
    first = cell.starts()
    assert {start["jobId"] for start in first} >= {92, 103000001, 103000002}
    path.write_bytes(b"<job_info")
    await eventually(lambda: "not XML" in caplog.text)
    path.write_bytes(SAMPLE.replace(b">92<", b">95<"))
    await eventually(lambda: len(cell.batches) == 2)
    assert [start["jobId"] for start in cell.starts()[len(first) :]] == [95]
    cell.source.stop()
    await asyncio.wait_for(task, 10)


async def test_qhost_tells_of_starts_too() -> None:
    """Both were asked at the same moment of the same cell."""
    cell = Cell(DATA / "qhost-j-q-F.xml")
    task = asyncio.create_task(cell.read())
    await eventually(lambda: len(cell.batches) == 1)
    cell.source.stop()
    await asyncio.wait_for(task, 10)
    running_there = {start["jobId"] for start in cell.starts()}
    by_qstat = Qstat(site=SITE)._news(running(read_shares(SAMPLE)))
    assert len(running_there & {json.loads(str(start.value))["jobId"] for start in by_qstat}) >= 3


@pytest.mark.parametrize("command", [["/no/such/qstat"], [sys.executable, "-c", "exit(3)"]])
async def test_a_command_that_fails_is_logged(
    tmp_path: Path, command: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A missing program and an exit status; it is asked again later."""
    cell = Cell(tmp_path, command=command)
    task = asyncio.create_task(cell.read())
    await eventually(lambda: len(caplog.records) >= 2)
    cell.source.stop()
    await asyncio.wait_for(task, 10)
    assert cell.batches == []
    assert command[0] in caplog.text


def test_news_are_what_was_not_there_before() -> None:
    """A job that is gone and comes back, as after a rerun, has a start of its own."""
    source = Qstat(site=SITE)
    jobs = running(read_shares(SAMPLE, zone=UTC))
    assert len(source._news(jobs)) == len(jobs)
    assert source._news(jobs) == []
    source._news([])
    assert len(source._news(jobs)) == len(jobs)


def test_a_command_must_be_there() -> None:
    """An empty one is an error of configuration."""
    with pytest.raises(ConfigError, match="command is empty"):
        Qstat(site=SITE, command=[])
