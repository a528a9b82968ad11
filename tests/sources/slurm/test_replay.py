"""Captured outputs, read as if the commands were run again."""

import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ccpipe.config import Duration, Site
from ccpipe.errors import ConfigError
from ccpipe.formats.slurm.text import SacctReader
from ccpipe.formats.sonar import UNSET, Envelope, JobsData, SlurmJob, encode
from ccpipe.formats.sonar import decode as decode_sonar
from ccpipe.jobs import Jobs
from ccpipe.sources.slurm.poll import PollReplay
from ccpipe.sources.slurm.source import Slurm
from ccpipe.translate.slurm.to_cc import SlurmToCc
from ccpipe.translate.slurm.to_sonar import SlurmToSonar
from tests.formats.slurm.captured import UTC
from tests.paths import TEST_DATA

SNAPSHOTS = TEST_DATA / "slurm" / "snapshots"
SITE = Site(cluster="fox", hostname="master")
POLLS = 14


async def replayed(**options: Any) -> list[Jobs]:
    source = Slurm(site=SITE, replay_dir=str(SNAPSHOTS), replay_speed=0, **options)
    found: list[Jobs] = []
    async for batch in source.batches():
        assert not batch.records.rejected
        found.append(batch.records)
        assert batch.ack
        await batch.ack()
    return found


def envelopes_of(batches: Sequence[Jobs], **options: Any) -> list[Envelope]:
    translator = SlurmToSonar(site=SITE, **options)
    return [envelope for jobs in batches for envelope in translator.feed(jobs)]


def job_events(batches: Sequence[Jobs]) -> list[dict[str, Any]]:
    translator = SlurmToCc(site=SITE, stop_delay=Duration(0))
    found = []
    for jobs in batches:
        lines = translator.feed(jobs)
        assert not lines.rejected
        found += [json.loads(str(message.value)) for message in lines if message.name == "job"]
    return found


def test_replay_reads_all_files_completely() -> None:
    polls = list(PollReplay(str(SNAPSHOTS)))
    assert len(polls) == POLLS
    assert [poll.time for poll in polls] == sorted(poll.time for poll in polls)
    for poll in polls:
        assert not poll.problems
        assert not poll.rejected
        text = (SNAPSHOTS / f"sacct.{poll.time // 10**9}.txt").read_text()
        assert len(poll.rows) == text.count("\n") - 1
        text = (SNAPSHOTS / f"squeue_all.{poll.time // 10**9}.txt").read_text()
        assert len(list(poll.jobs)) == len(re.findall(r"^(?:physics|ml)\|", text, re.MULTILINE))
        assert poll.cluster is not None
        assert len(poll.cluster.nodes) >= POLLS - 1


async def test_replay_sends_each_start_before_its_stop_once() -> None:
    """Every job that squeue saw running starts once; every one that sacct saw end stops once.

    Both with the start of its first run.
    """
    events = job_events(await replayed())
    starts = [(e["jobId"], e["startTime"]) for e in events if "stopTime" not in e]
    stops = [(e["jobId"], e["startTime"]) for e in events if "stopTime" in e]
    assert len(set(starts)) == len(starts)
    assert len(set(stops)) == len(stops)
    assert set(stops) <= set(starts)
    order = [(e["jobId"], e["startTime"]) for e in events]
    for run in stops:
        first = order.index(run)
        assert "stopTime" not in events[first]
    polls = list(PollReplay(str(SNAPSHOTS)))
    running: dict[int, int] = {}
    for poll in polls:
        for job in poll.jobs:
            if job.state in {"RUNNING", "SUSPENDED"} and job.start:
                running.setdefault(job.id.job, job.start // 10**9)
    assert sorted(starts) == sorted(running.items())
    last = SacctReader(zone=UTC).read(max(SNAPSHOTS.glob("sacct.*")).read_bytes()).records
    ended = {(r.id.job, r.start // 10**9) for r in last if r.start and r.end and not r.is_step}
    assert set(stops) >= running.items() & ended


async def test_requeued_job_starts_once_and_stops_at_its_real_end() -> None:
    last = SacctReader(zone=UTC).read(max(SNAPSHOTS.glob("sacct.*")).read_bytes()).records
    (run,) = [row for row in last if row.id.job == 22 and not row.is_step]
    assert run.start is not None
    assert run.end is not None
    events = [event for event in job_events(await replayed()) if event["jobId"] == 22]
    start, stop = events
    assert start["startTime"] == stop["startTime"] < run.start // 10**9
    assert (stop["stopTime"], stop["jobState"]) == (run.end // 10**9, "completed")


@pytest.mark.parametrize("mode", ["delta", "full"])
async def test_envelopes_conform_to_specification(mode: str) -> None:
    for envelope in envelopes_of(await replayed(mode=mode), states="spec"):
        assert not decode_sonar(encode(envelope), strict=True).rejected


async def test_delta_mode_sends_changes() -> None:
    full, delta = envelopes_of(await replayed(mode="full")), envelopes_of(await replayed())
    size = {mode: sum(len(encode(e)) for e in found) for mode, found in
            (("full", full), ("delta", delta))}  # fmt: skip
    assert size["delta"] < size["full"] / 4
    versions: dict[tuple[int, str, str, int], list[SlurmJob]] = {}
    for envelope in delta:
        if isinstance(envelope.data, JobsData):
            for job in envelope.data.attributes.slurm_jobs:
                key = job.job_id, job.job_step, job.submit_time, job.array_task_id
                versions.setdefault(key, []).append(replace(job, priority=UNSET))
    pairs = [pair for sent in versions.values() for pair in itertools.pairwise(sent)]
    assert pairs
    assert all(before != after for before, after in pairs)


async def test_state_is_kept_over_restart(tmp_path: Path) -> None:
    state = str(tmp_path / "slurm.state")
    source = Slurm(site=SITE, replay_dir=str(SNAPSHOTS), replay_speed=0, state_file=state)
    unacknowledged = [batch.records async for batch in source.batches()]
    del source
    assert await replayed(state_file=state) == unacknowledged


def test_replay_rejects_directory_without_snapshots(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no files"):
        PollReplay(str(tmp_path))


def test_replay_skips_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "sacct.1795170834.txt").write_text("no columns of sacct\n")
    path = SNAPSHOTS / "squeue_all.1795170834.txt"
    (tmp_path / "squeue.1795170834.txt").write_bytes(path.read_bytes())
    (poll,) = PollReplay(str(tmp_path))
    assert len(poll.problems) == 1
    assert poll.problems[0].startswith("sacct.1795170834.txt: ")
    assert poll.jobs
