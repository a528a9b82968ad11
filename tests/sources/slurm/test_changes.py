"""Which records have changed since they were sent."""

from pathlib import Path

from msgspec.structs import replace

from ccpipe.formats.slurm.records import LiveJob, SacctRow, SlurmId
from ccpipe.jobs import Job
from ccpipe.sources.slurm.poll import Poll
from ccpipe.sources.slurm.source import MISSING, UNNAMED, Changes, is_final_run, record_digest
from ccpipe.translate.slurm.jobs import job_of_live, job_of_row

SECOND = 10**9
TIME = 1795170834 * SECOND
ROW = SacctRow(
    SlurmId(7), state="COMPLETED", user="alice", submit=TIME, start=TIME + SECOND,
    end=TIME + 9 * SECOND, node_list="c1",
)  # fmt: skip
LIVE = LiveJob(
    SlurmId(7), state="RUNNING", user="alice", submit=TIME, start=TIME + SECOND, node_list="c1"
)


def states(changes: Changes, poll: Poll) -> list[str | None]:
    found = list(changes.changed(poll))
    changes.acknowledge([sent for _, sent in found])
    return [raw.state for job, _ in found if isinstance(raw := job.raw, SacctRow | LiveJob)]


def job_of(raw: SacctRow | LiveJob) -> Job:
    return job_of_row(raw, "fox") if isinstance(raw, SacctRow) else job_of_live(raw, "fox")


def live(*jobs: LiveJob, time: int = TIME) -> Poll:
    return Poll(time, jobs=jobs, listed=frozenset(job.id.job for job in jobs))


def test_changes_ignore_squeue_after_end_in_sacct() -> None:
    """Squeue's record of a run that ended by sacct is not sent; its next run is."""
    changes = Changes("", "fox")
    assert states(changes, live(LIVE)) == ["RUNNING"]
    assert states(changes, Poll(TIME, rows=[ROW])) == ["COMPLETED"]
    assert states(changes, live(replace(LIVE, state="COMPLETING"))) == []
    assert states(changes, live(replace(LIVE, state="COMPLETED", end=TIME + 9 * SECOND))) == []
    again = replace(LIVE, state="PENDING", submit=TIME + 10 * SECOND, node_list=None)
    assert states(changes, live(again)) == ["PENDING"]


def test_changes_prefer_squeue_for_listed_jobs() -> None:
    """A row of sacct may be older than squeue's record of the same poll; only sacct has steps."""
    row = replace(ROW, state="PENDING", start=None, end=None)
    step = replace(ROW, id=SlurmId(7, "0"), state="RUNNING", end=None)
    poll = Poll(TIME, rows=[row, step], jobs=[LIVE], listed=frozenset({7}))
    assert states(Changes("", "fox"), poll) == ["RUNNING", "RUNNING"]
    assert states(Changes("", "fox"), Poll(TIME, rows=[row])) == ["PENDING"]


def test_changes_wait_for_complete_row_of_job_unknown_to_slurmdbd() -> None:
    """Its row has no name yet: it waits for the whole one, or until squeue drops it."""
    early = replace(ROW, job_name=UNNAMED)
    ended = replace(LIVE, name="a|b", state="COMPLETED", end=TIME + 9 * SECOND)
    poll = Poll(TIME, rows=[early], jobs=[ended], listed=frozenset({7}))
    changes = Changes("", "fox")
    assert [job.name for job, _ in changes.changed(poll)] == ["a|b"]
    whole = Poll(TIME, rows=[replace(ROW, job_name="a|b")], listed=frozenset({7}))
    assert [(job.name, bool(job.usage)) for job, _ in changes.changed(whole)] == [("a|b", True)]
    assert list(changes.changed(Poll(TIME, listed=frozenset()))) == []

    changes = Changes("", "fox")
    assert len(list(changes.changed(poll))) == 1
    assert [job.name for job, _ in changes.changed(live())] == [UNNAMED]


def test_changes_ignore_priority() -> None:
    for raw in (LIVE, ROW):
        job, priority = job_of(raw), job_of(replace(raw, priority=2))
        assert record_digest(job) == record_digest(priority)
        assert record_digest(job) != record_digest(job_of(replace(raw, state="FAILED")))
    assert record_digest(job_of(LIVE)) == record_digest(job_of(replace(LIVE, end=TIME)))
    waits = replace(LIVE, state="PENDING", node_list=None)
    assert record_digest(job_of(waits)) == record_digest(job_of(replace(waits, start=TIME)))
    assert record_digest(job_of(LIVE)) != record_digest(job_of(replace(LIVE, start=TIME)))


def test_row_of_running_job_is_constant() -> None:
    row = SacctRow(SlurmId(3), state="SUSPENDED", start=TIME, elapsed=30, suspended=7)
    later = replace(row, elapsed=60, suspended=9)
    assert record_digest(job_of(row)) == record_digest(job_of(later))
    assert record_digest(job_of(replace(row, end=TIME))) != record_digest(
        job_of(replace(later, end=TIME))
    )


def test_vanished_job_delays_complete_time_for_a_day() -> None:
    """Until sacct reports its end, ends are known up to when squeue last listed it."""
    changes = Changes("", "fox")
    states(changes, live(LIVE, time=TIME))
    changes.note_listed(live(LIVE, time=TIME))
    changes.note_listed(live(time=TIME + 30 * SECOND))
    assert changes.complete(TIME + 60 * SECOND) == TIME
    late = live(time=TIME + MISSING)
    changes.note_listed(late)
    assert changes.complete(TIME + MISSING) == TIME + MISSING
    changes.acknowledge_poll(late, TIME + MISSING, TIME)
    changes.note_listed(live(time=TIME + MISSING + SECOND))
    assert changes.complete(TIME + 2 * MISSING) == TIME + 2 * MISSING


def test_changes_forget_old_records(tmp_path: Path) -> None:
    changes = Changes(str(tmp_path / "state"), "fox")
    changes.open()
    assert states(changes, Poll(TIME, rows=[ROW])) == ["COMPLETED"]
    changes.acknowledge_poll(live(), TIME, TIME)
    assert states(changes, Poll(TIME, rows=[ROW])) == []
    changes.acknowledge_poll(live(), TIME, TIME + 3600 * SECOND)
    assert states(changes, Poll(TIME, rows=[ROW])) == ["COMPLETED"]
    assert changes.complete_until == TIME


def test_requeued_run_is_final() -> None:
    row = replace(ROW, state="REQUEUED")
    assert not is_final_run(job_of(replace(row, end=None)))
    assert is_final_run(job_of(row))


def test_end_of_requeued_run_follows_squeue_jobs() -> None:
    """A reader of NODE_FAIL then knows that the job goes on; squeue's job is sent once only."""
    changes = Changes("", "fox")
    assert states(changes, live(LIVE)) == ["RUNNING"]
    waits = replace(LIVE, state="PENDING", start=None, node_list=None)
    lost = Poll(TIME, [replace(ROW, state="NODE_FAIL")], [waits], frozenset({7}))
    assert states(changes, lost) == ["PENDING", "NODE_FAIL"]
    assert states(changes, live(waits)) == []
    changes.note_listed(Poll(TIME + SECOND, listed=frozenset()))
    assert changes.complete(TIME + SECOND) == TIME + SECOND  # nothing is waited for
    again = replace(waits, submit=TIME + 10 * SECOND)
    assert states(changes, live(again)) == ["PENDING"]
