"""Polls of Slurm's commands, over outages and restarts."""

import asyncio
import json
import re
import shutil
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ccpipe.config import Duration, Interval, Site
from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.formats.slurm.records import LiveJob, SacctRow
from ccpipe.jobs import Job, Jobs
from ccpipe.pipeline import Batch
from ccpipe.sources.slurm.source import Slurm
from ccpipe.translate.slurm.to_cc import SlurmToCc
from tests.sources.slurm.programs import Programs, sacct_row, scontrol_job, squeue_job

SITE = Site(cluster="fox", hostname="master")
END = "2026-11-20T10:05:00"


class Publisher:
    """A source, and what it gave."""

    def __init__(self, programs: Programs, **options: Any) -> None:
        options.setdefault("node_interval", Interval(0.001))
        options.setdefault("state_file", str(programs.directory / "slurm.state"))
        self.source = Slurm(
            site=SITE, bin_dir=str(programs.directory), poll_interval=Interval(0.001), **options
        )
        self.batches: AsyncIterator[Batch[Any]] = self.source.batches()

    async def poll(self, *, acknowledge: bool = True) -> list[Jobs]:
        found: list[Jobs] = []
        while not found or found[-1]:
            batch = await anext(self.batches)
            found.append(batch.records)
            if acknowledge:
                assert batch.ack
                await batch.ack()
        return found

    async def jobs(self, **options: bool) -> list[tuple[int, str, str]]:
        return [
            (job.id, job.step, state_of(job)) for jobs in await self.poll(**options) for job in jobs
        ]


def state_of(job: Job) -> str:
    assert isinstance(job.raw, SacctRow | LiveJob)
    return job.raw.state or ""


async def test_source_sends_job_when_changed(programs: Programs) -> None:
    publisher = Publisher(programs)
    programs.set_squeue(squeue_job("7", "PENDING"))
    assert await publisher.jobs() == [(7, "", "PENDING")]
    programs.set_squeue(squeue_job("7", "PENDING", priority=99))
    assert await publisher.jobs() == []
    programs.set_squeue(squeue_job("7", "RUNNING"))
    programs.set("scontrol", scontrol_job("7"))
    assert await publisher.jobs() == [(7, "", "RUNNING")]
    programs.set_sacct(sacct_row("7", "COMPLETED", end=END), sacct_row("7.0", "COMPLETED", end=END))
    programs.set_squeue(squeue_job("7", "COMPLETED", end=END))
    assert await publisher.jobs() == [(7, "", "COMPLETED"), (7, "0", "COMPLETED")]
    programs.set_squeue()
    assert await publisher.jobs() == []


async def test_poll_makes_three_requests(programs: Programs) -> None:
    publisher = Publisher(programs)
    programs.set_squeue(*(squeue_job(str(n), "PENDING") for n in range(1, 50)))
    await publisher.poll()
    calls = programs.calls()
    assert [call.partition(" ")[0] for call in calls] == ["sacct", "squeue", "sinfo"]
    assert all(call.endswith("TZ=UTC") for call in calls)
    programs.set_squeue(*(squeue_job(str(n), "RUNNING") for n in range(1, 50)))
    programs.set("scontrol", "".join(scontrol_job(str(n)) for n in range(1, 50)))
    await publisher.poll()
    await publisher.poll()
    names = [call.partition(" ")[0] for call in programs.calls()]
    assert names == ["sacct", "squeue", "scontrol", "sinfo", "sacct", "squeue", "sinfo"]


async def test_source_sends_only_changes_after_restart(programs: Programs) -> None:
    programs.set_squeue(squeue_job("7", "PENDING"), squeue_job("8", "PENDING"))
    first = Publisher(programs)
    assert len(await first.jobs()) == 2
    programs.set_squeue(squeue_job("7", "PENDING"), squeue_job("8", "PENDING", nodes="", end="N/A"),
                        squeue_job("9", "PENDING"))  # fmt: skip
    assert await first.jobs(acknowledge=False) == [(9, "", "PENDING")]
    killed = state_of_killed(programs)
    assert await Publisher(programs, state_file=killed).jobs() == [(9, "", "PENDING")]


async def test_source_loses_nothing_in_outage_of_accounting(programs: Programs) -> None:
    """The next query begins before its last answer, however long the outage was."""
    publisher = Publisher(programs, sacct_overlap=Duration(600))
    before = time.time()
    await publisher.poll()
    after = time.time()
    programs.set("sacct", None)
    (error,) = (await publisher.poll())[-1].errors
    assert "sacct" in error
    assert not (await publisher.poll())[-1].errors, "an error is reported once"
    programs.calls()
    programs.set_sacct(sacct_row("7", "FAILED", end=END))
    later = Publisher(programs, sacct_overlap=Duration(600), state_file=state_of_killed(programs))
    assert await later.jobs() == [(7, "", "FAILED")]
    assert before - 601 <= since(programs) <= after - 600  # sacct is queried in whole seconds


def state_of_killed(programs: Programs) -> str:
    """Return what is on the disk now, as a process finds it that follows one that was killed."""
    directory = programs.directory / "killed"
    directory.mkdir()
    for path in programs.directory.glob("slurm.state*"):
        shutil.copy(path, directory)
    return str(directory / "slurm.state")


def since(programs: Programs) -> float:
    call = [call for call in programs.calls() if call.startswith("sacct")][-1]
    found = re.search(r"--starttime (\S+)", call)
    assert found is not None
    return datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp()


async def test_vanished_job_keeps_sacct_query_open(programs: Programs) -> None:
    """The source waits for the end of a job that slurmctld forgot before sacct reported it."""
    publisher = Publisher(programs, sacct_overlap=Duration(0))
    programs.set_squeue(squeue_job("7", "RUNNING"))
    await publisher.poll()
    seen = polled = time.time()  # at the latest
    programs.set_squeue()
    while polled < seen + 1.1:  # sacct is queried in whole seconds
        await asyncio.sleep(0.1)
        polled = time.time()
        await publisher.poll()
    programs.calls()
    await publisher.poll()
    assert since(programs) <= seen
    programs.set_sacct(sacct_row("7", "NODE_FAIL", end=END))
    assert await publisher.jobs() == [(7, "", "NODE_FAIL")]
    await publisher.poll()
    programs.calls()
    await publisher.poll()
    assert since(programs) > seen


async def test_source_catches_up_day_by_day(programs: Programs) -> None:
    publisher = Publisher(programs, lookback=Duration(3.5 * 86400))
    await anext(publisher.batches)
    await anext(publisher.batches)
    await anext(publisher.batches)
    await publisher.poll()
    calls = [call for call in programs.calls() if call.startswith("sacct")]
    assert len(calls) == 4


async def test_source_resends_all_on_request(programs: Programs) -> None:
    programs.set_squeue(squeue_job("7", "PENDING"))
    publisher = Publisher(programs)
    assert len(await publisher.jobs()) == 1
    request = programs.directory / "slurm.state.resend"
    request.touch()
    assert len(await publisher.jobs()) == 1
    assert not request.exists()
    assert await publisher.jobs() == []


async def test_full_mode_sends_everything_each_time(programs: Programs) -> None:
    programs.set_squeue(squeue_job("7", "PENDING"))
    publisher = Publisher(programs, mode="full")
    assert len(await publisher.jobs()) == len(await publisher.jobs()) == 1
    assert not (programs.directory / "slurm.state").exists()


async def test_cluster_is_sent_completely(programs: Programs) -> None:
    rows = "normal*|c[1-2]|idle|none|", "normal*|c3|down+drain|bad DIMM | slot 3|", "empty||n/a||"
    programs.set("sinfo", "".join(f"{row}\n" for row in rows))
    publisher = Publisher(programs)
    for _ in range(2):
        cluster = (await publisher.poll())[-1].cluster
        assert cluster is not None
        assert [p.name for p in cluster.partitions] == ["normal", "empty"]
        assert [n.states for n in cluster.nodes] == [("IDLE",), ("IDLE",), ("DOWN", "DRAIN")]
        assert [n.reason for n in cluster.nodes] == ["", "", "bad DIMM | slot 3"]


async def test_bad_row_is_rejected_alone(programs: Programs) -> None:
    programs.set_sacct(
        sacct_row("7", "COMPLETED", end=END, jobname="a|b\nc"),
        sacct_row("8", "COMPLETED", end="yesterday"),
        sacct_row("9", "COMPLETED", end=END),
    )
    publisher = Publisher(programs)
    jobs, last = await publisher.poll()
    assert [(job.id, job.name) for job in jobs] == [(7, "a|b\nc"), (9, "a")]
    (bad,) = last.rejected
    assert "yesterday" in bad.reason


async def test_source_takes_ends_from_squeue_without_accounting(programs: Programs) -> None:
    publisher = Publisher(programs, accounting=False)
    programs.set_squeue(squeue_job("7", "FAILED", end=END))
    assert await publisher.jobs() == [(7, "", "FAILED")]
    assert not [call for call in programs.calls() if call.startswith("sacct")]


async def test_job_between_two_polls_has_start_and_stop(programs: Programs) -> None:
    """It is first seen at its end; its threads and GPUs are the ones scontrol still lists."""
    publisher = Publisher(programs)
    translator = SlurmToCc(site=SITE)
    await publisher.poll()
    programs.set_sacct(sacct_row("7", "COMPLETED", end=END))
    programs.set_squeue(squeue_job("7", "COMPLETED", end=END))
    programs.set("scontrol", scontrol_job("7", gres="gpu:a100:2(IDX:0,3)"))
    lines = [m for jobs in await publisher.poll() for m in translator.feed(jobs)]
    start, stop = [json.loads(str(m.value)) for m in lines if m.name == "job"]
    assert start["resources"] == [
        {"hostname": "c1", "hwthreads": [0, 1], "accelerators": ["0", "3"]}
    ]
    assert stop["jobState"] == "completed"


async def test_check_requires_commands(tmp_path: Path) -> None:
    source = Slurm(site=SITE, bin_dir=str(tmp_path))
    with pytest.raises(UnavailableError, match="squeue"):
        await source.check()


def test_source_rejects_invalid_numbers() -> None:
    with pytest.raises(ConfigError, match="replay_speed"):
        Slurm(site=SITE, replay_speed=-1)


async def test_source_queries_cluster_of_configuration(programs: Programs, tmp_path: Path) -> None:
    """With all commands; a file that does not exist is an error before they run."""
    conf = tmp_path / "alex.conf"
    source = Slurm(site=SITE, bin_dir=str(programs.directory), slurm_conf=str(conf))
    with pytest.raises(ConfigError, match=f"slurm_conf: {conf}: no such file"):
        await anext(source.batches())
    assert programs.calls() == []
    conf.touch()
    source = Slurm(site=SITE, bin_dir=str(programs.directory), slurm_conf=str(conf))
    async for _ in source.batches():
        source.stop()
    calls = programs.calls()
    assert {call.split()[0] for call in calls} == {"sacct", "squeue", "sinfo"}
    assert all(call.endswith(f" SLURM_CONF={conf}") for call in calls)


async def test_stop_ends_the_source(programs: Programs) -> None:
    source = Slurm(site=SITE, bin_dir=str(programs.directory), poll_interval=Interval(60))
    batches = source.batches()
    await anext(batches)
    source.stop()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(batches), 60)


async def test_source_reports_whole_queue_with_reasons(programs: Programs) -> None:
    """A change of the reason alone sends no record of the job; an array is one entry."""
    publisher = Publisher(programs)
    running = squeue_job("6", "RUNNING")
    programs.set("scontrol", scontrol_job("6"))
    programs.set_squeue(running, squeue_job("7", "PENDING"),
                        squeue_job("8_[1,3-9%2]", "PENDING", raw="8"))  # fmt: skip
    jobs, last = await publisher.poll()
    assert jobs.queue is None
    assert last.queue is not None
    assert [(job.id, job.tasks, job.reason) for job in last.queue] == [
        (7, 0, "Priority"), (8, 8, "Priority"),
    ]  # fmt: skip
    array = squeue_job("8_[9%2]", "PENDING", raw="8", reason="JobArrayTaskLimit")
    programs.set_squeue(running, squeue_job("7", "PENDING", reason="Dependency"), array)
    *sent, last = await publisher.poll()
    assert [job.id for jobs in sent for job in jobs] == [8]
    assert last.queue is not None
    assert [(job.id, job.tasks, job.reason) for job in last.queue] == [
        (7, 0, "Dependency"), (8, 1, "JobArrayTaskLimit"),
    ]  # fmt: skip
    programs.set_squeue(running, squeue_job("7", "RUNNING"))
    assert (await publisher.poll())[-1].queue == []


async def test_queue_is_unknown_while_slurmctld_is_down(programs: Programs) -> None:
    """Nothing has left it then."""
    publisher = Publisher(programs)
    programs.set_squeue(squeue_job("7", "PENDING"))
    await publisher.poll()
    programs.set("squeue", None)
    assert (await publisher.poll())[-1].queue is None
    programs.set_squeue(squeue_job("7", "PENDING"))
    queue = (await publisher.poll())[-1].queue
    assert queue is not None
    assert [job.id for job in queue] == [7]
