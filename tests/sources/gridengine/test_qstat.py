"""Starts from qstat and qhost, each once; states of nodes from qhost."""

import json
import sys
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from ccpipe.config import Interval, Site
from ccpipe.errors import ConfigError
from ccpipe.formats.gridengine.status import Host, PendingTasks, parse_xml, read_shares
from ccpipe.sources.gridengine.qstat import Qstat
from ccpipe.translate.gridengine.jobs import Mapping, pending_jobs, running_jobs
from tests.conftest import eventually
from tests.paths import TEST_DATA
from tests.reading import Reader

DATA = TEST_DATA / "gridengine"
SAMPLE = (DATA / "qstat-g-t.xml").read_bytes()
SITE = Site(cluster="fox", hostname="master")


class Cell(Reader):
    """A program that prints a file, in place of qstat, and the source that runs it."""

    def __init__(self, path: Path, **options: Any) -> None:
        script = "import sys; sys.stdout.write(open(sys.argv[1]).read())"
        options.setdefault("command", [sys.executable, "-c", script, str(path)])
        super().__init__(Qstat(site=SITE, poll_interval=Interval(0.5), **options))

    def starts(self) -> list[dict[str, Any]]:
        return self.payloads("job")

    def payloads(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(str(each.value)) for each in self.records if each.name == name]


async def test_source_sends_start_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A running job does not start again; a failed run of the command is harmless."""
    path = tmp_path / "qstat.xml"
    path.write_bytes(SAMPLE)
    async with Cell(path) as cell:
        await eventually(lambda: len(cell.batches) == 1)
        first = cell.starts()
        assert {start["jobId"] for start in first} >= {92, 103000001, 103000002}
        path.write_bytes(b"<job_info")
        await eventually(lambda: "not XML" in caplog.text)
        path.write_bytes(SAMPLE.replace(b">92<", b">95<"))
        await eventually(lambda: len(cell.batches) == 2)
        assert [start["jobId"] for start in cell.starts()[len(first) :]] == [95]


async def test_source_reports_pending_jobs(tmp_path: Path) -> None:
    """Once, with the letters of their state in words; an array is one job."""
    path = tmp_path / "qstat.xml"
    path.write_bytes(SAMPLE)
    state = str(tmp_path / "state")
    async with Cell(path, state_file=state, threads_per_slot=2) as cell:
        await eventually(lambda: len(cell.batches) == 1)
        [anna] = cell.payloads("jobpending")
        waiting = {job["jobId"]: job for job in anna["pending"]}
        assert anna["user"] == "anna"
        assert waiting.keys() >= {83, 94, 102, 103}
        assert (waiting[83]["reason"], waiting[94]["reason"]) == ("error", "hold")
        assert "reason" not in waiting[103]
        assert (waiting[103]["arrayTasks"], waiting[103]["numHwthreads"]) == (3, 2)
        assert waiting[94]["submitTime"] > 1_700_000_000
        path.write_bytes(SAMPLE.replace(b"3-5:1", b"4-5:1"))
        await eventually(lambda: len(cell.batches) == 2)
        [job] = cell.payloads("jobpending")[-1]["pending"]
        assert (job["jobId"], job["arrayTasks"]) == (103, 2)
    cell.source._state.close()
    path.write_bytes(SAMPLE.replace(b"3-5:1", b"4-5:1").replace(b">94<", b">994<"))
    async with Cell(path, state_file=state, threads_per_slot=2) as cell:
        await eventually(lambda: len(cell.batches) == 1)
        [changes] = cell.payloads("jobpending")
        assert [job["jobId"] for job in changes["pending"]] == [994]
        assert changes["left"] == [{"jobId": 94}]


async def test_failed_command_ends_no_pending_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "qstat.xml"
    path.write_bytes(SAMPLE)
    async with Cell(path) as cell:
        await eventually(lambda: len(cell.batches) == 1)
        path.write_bytes(b"<job_info")
        await eventually(lambda: "not XML" in caplog.text)
        path.write_bytes(SAMPLE.replace(b">94<", b">994<"))
        await eventually(lambda: len(cell.batches) == 2)
    left = [job["jobId"] for event in cell.payloads("jobpending") for job in event.get("left", [])]
    assert left == [94]


def test_tasks_of_array_in_several_states_are_one_job() -> None:
    rows = [PendingTasks(job_number=7, tasks="1-4:1", state="qw", owner="a"),
            PendingTasks(job_number=7, tasks="5", state="hqw", owner="a")]  # fmt: skip
    [job] = pending_jobs(rows, Mapping(cluster="fox"))
    assert (job.id, job.tasks, job.user) == (7, 5, "a")


async def test_qhost_lists_same_jobs_as_qstat() -> None:
    async with Cell(DATA / "qhost-j-q-F.xml") as cell:
        await eventually(lambda: len(cell.batches) == 1)
    (states,) = cell.payloads("nodestate")
    assert states == {
        "cluster": "fox",
        "nodes": [
            {"hostname": "node01", "states": ["allocated"], "cpusAllocated": 3, "jobsRunning": 3},
            {"hostname": "node02", "states": ["allocated"], "cpusAllocated": 4, "jobsRunning": 4},
        ],
    }
    running_there = {start["jobId"] for start in cell.starts()}
    by_qstat = Qstat(site=SITE)._new_starts(running_jobs(read_shares(parse_xml(SAMPLE)), "fox"))
    assert len(running_there & {json.loads(str(start.value))["jobId"] for start in by_qstat}) >= 3


@pytest.mark.parametrize("command", [["/no/such/qstat"], [sys.executable, "-c", "exit(3)"]])
async def test_source_logs_failed_command(
    tmp_path: Path, command: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with Cell(tmp_path, command=command) as cell:
        await eventually(lambda: len(caplog.records) >= 2)
    assert cell.batches == []
    assert command[0] in caplog.text


def test_source_sends_start_of_job_listed_again() -> None:
    """A job that vanishes and is listed again, as after a rerun, has another start."""
    source = Qstat(site=SITE)
    jobs = running_jobs(read_shares(parse_xml(SAMPLE), zone=UTC), "fox")
    assert len(source._new_starts(jobs)) == len(jobs)
    assert source._new_starts(jobs) == []
    source._new_starts([])
    assert len(source._new_starts(jobs)) == len(jobs)


def test_source_requires_command() -> None:
    with pytest.raises(ConfigError, match="command is empty"):
        Qstat(site=SITE, command=[])


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, {"states": ["idle"], "cpusAllocated": 0, "jobsRunning": 0}),
        ({"slots_used": 1, "jobs_running": 1},
         {"states": ["mixed"], "cpusAllocated": 1, "jobsRunning": 1}),
        ({"slots_used": 2, "is_disabled": True},
         {"states": ["allocated", "drain"], "cpusAllocated": 2, "jobsRunning": 0}),
        ({"is_reachable": False, "processors": 0},
         {"states": ["down"], "cpusAllocated": 0, "jobsRunning": 0}),
        ({"slots_used": None, "jobs_running": None}, {}),
        ({"processors": None, "slots_used": 3, "jobs_running": 2},
         {"states": ["mixed"], "cpusAllocated": 3, "jobsRunning": 2}),
    ],
)  # fmt: skip
def test_node_states_map_to_cc_backend_states(
    known: dict[str, Any], expected: dict[str, Any]
) -> None:
    """If something is unknown, a node is neither idle nor full, and no number is 0."""
    host = Host(
        **{
            "name": "n1.example", "processors": 2, "slots_used": 0, "jobs_running": 0,
            "is_reachable": True, "is_disabled": False, **known,
        }
    )  # fmt: skip
    (message,) = Qstat(site=SITE)._node_states([host])
    assert message.problems() == []
    assert json.loads(str(message.value))["nodes"] == [{"hostname": "n1", **expected}]
