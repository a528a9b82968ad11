"""Each start and each stop once, for any records in any order and number."""

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.jobs import PENDING, REQUEUED, RUNNING, Job, JobNode, Lifecycle
from ccpipe.jobs.lifecycle import REUSED
from ccpipe.pipeline.state import StateStore

SECOND = 10**9
BASE = 1_795_170_750


def at(second: float) -> int:
    return int((BASE + second) * SECOND)


def job(state: str = RUNNING, begin: float = 10, **known: Any) -> Job:
    times = {"submit": at(0), "start": at(begin) if state != PENDING else 0}
    nodes = () if state == PENDING else (JobNode("n1"),)
    fields: dict[str, Any] = {
        "cluster": "fox", "id": 7, "state": state, "user": "ann", "nodes": nodes, **times, **known,
    }  # fmt: skip
    return Job(**fields)


def ended(begin: float = 10, end: float = 50, state: str = "completed", **known: Any) -> Job:
    return job(state, begin, end=at(end), **known)


def lifecycle(**options: Any) -> Lifecycle:
    return Lifecycle(StateStore(), **options)


def fed(life: Lifecycle, *records: Job) -> list[tuple[str, float, float]]:
    events = []
    for second, record in enumerate(records):
        life.add(record, at(1000 + second))
        events += life.take()
    return [
        (
            event.function.removesuffix("_job"),
            event.job.start // SECOND - BASE,
            event.job.end // SECOND - BASE if event.function == "stop_job" else 0,
        )
        for event in events
    ]


START, STOP = ("start", 10, 0), ("stop", 10, 50)


def test_lifecycle_emits_start_and_stop_once() -> None:
    """Also with repeated records after the end."""
    records = [job(PENDING), job(), job(), ended(), ended(), job(), job(PENDING, submit=at(-1))]
    assert fed(lifecycle(), *records) == [START, STOP]


def test_start_metadata_is_dropped_after_start() -> None:
    """It may be large, and many jobs run; metadata before or after the start makes no event."""
    script = {"jobScript": "sleep 1\n"}
    life = lifecycle()
    life.add(job(user="", start_metadata=script), at(1000))
    life.add(job(), at(1001))
    life.add(job(start_metadata=script), at(1002))
    (start,) = life.take()
    assert (start.function, start.job.start_metadata) == ("start_job", script)
    assert [known.start_metadata for known in life.running("fox")] == [{}]


def test_job_that_never_started_makes_no_event() -> None:
    """Cancelled while it was pending."""
    assert fed(lifecycle(), job(PENDING), job("cancelled", start=0, end=at(5), nodes=())) == []


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_lifecycle_joins_partial_records_in_any_order(order: tuple[int, ...]) -> None:
    """One has the user, one the nodes, one the end."""
    parts = [
        (job(PENDING), at(1)),
        (job(user="", partition="gpu"), at(20)),
        (Job(cluster="fox", id=7, state="completed", start=at(10), end=at(50)), at(60)),
    ]
    life = lifecycle()
    for part in order:
        life.add(*parts[part])
    start, stop = life.take()
    assert (start.function, start.job.user, start.job.partition) == ("start_job", "ann", "gpu")
    assert (stop.function, stop.job.start, stop.job.end) == ("stop_job", at(10), at(50))


def test_later_record_does_not_undo_end() -> None:
    """Also where a record that was made later still has the job running."""
    life = lifecycle()
    life.add(job(), at(70))
    life.add(ended(), at(60))
    assert [event.function for event in life.take()] == ["start_job", "stop_job"]


def test_older_record_does_not_override_newer() -> None:
    """By the records' times, in either order of arrival."""
    life = lifecycle()
    life.add(job(partition="new"), at(20))
    life.add(job(PENDING, partition="old", project="nn1"), at(1))
    life.add(ended(partition=""), at(60))
    assert [event.job.partition for event in life.take()] == ["new", "new"]


def test_run_after_end_is_new_job() -> None:
    """The same id with a start after a stop that was emitted."""
    again: dict[str, Any] = {"submit": at(60)}
    records = [job(), ended(), job(PENDING, **again), job(begin=90, **again), ended(90, 99)]
    assert fed(lifecycle(), *records) == [START, STOP, ("start", 90, 0), ("stop", 90, 99)]


AGAIN: dict[str, Any] = {"submit": at(60)}
FIRST = ended(10, 50, REQUEUED)
LOST = ended(10, 50, "node_fail")
NEXT = [job(begin=90, **AGAIN), ended(90, 99, **AGAIN)]


@pytest.mark.parametrize(
    "records",
    [
        [job(), FIRST, job(PENDING, **AGAIN), *NEXT],
        [job(), job(PENDING, **AGAIN), FIRST, *NEXT],
        [job(), job(PENDING, **AGAIN), LOST, LOST, *NEXT],
        [job(), job(PENDING), LOST, job(PENDING, **AGAIN), *NEXT],
        [job(), FIRST, ended(90, 99, **AGAIN)],
        [job(), NEXT[0], LOST, FIRST, NEXT[1], LOST, FIRST],
        [job(), ended(90, 99, **AGAIN), FIRST, LOST],
        [FIRST, *NEXT],
        [job(PENDING, **AGAIN), LOST, *NEXT],
        [job(), job(PENDING, submit=at(80)), ended(60, 70, "node_fail", **AGAIN), *NEXT],
        [job(), FIRST, job(begin=60), ended(60, 80, REQUEUED), job(PENDING), FIRST, *NEXT],
    ],
)
def test_requeued_job_has_one_start_and_one_stop(records: list[Job]) -> None:
    """From the start of its first run to the end of its last one, however its runs are seen."""
    assert fed(lifecycle(), *records) == [START, ("stop", 10, 99)]


@pytest.mark.parametrize("start", [0, at(300)])
@pytest.mark.parametrize("run", [FIRST, LOST])
def test_requeued_job_cancelled_while_pending_ends_with_last_run(run: Job, start: int) -> None:
    """A cancelled job that never started has no start, or its end as its start."""
    cancelled = job("cancelled", start=start, end=at(300), nodes=(), **AGAIN)
    life = lifecycle()
    assert fed(life, job(), job(PENDING, **AGAIN), run, cancelled, cancelled, run) == [START, STOP]


def test_cancelled_requeued_job_has_state_and_nodes_of_last_run() -> None:
    """Its stop names the start that was emitted; nodes and end are the last run's."""
    life = lifecycle()
    for second, record in enumerate([job(), FIRST, ended(90, 99, "cancelled", **AGAIN)]):
        life.add(record, at(100 + second))
    start, stop = life.take()
    assert (start.job.start, start.job.nodes) == (at(10), (JobNode("n1"),))
    assert (stop.job.state, stop.job.start, stop.job.end) == ("cancelled", at(10), at(99))


def test_run_that_ends_after_pending_ends_job() -> None:
    """Unless it is pending again: submitted again, or pending in the poll that has the end."""
    assert fed(lifecycle(), job(PENDING), LOST) == [START, STOP]
    life = lifecycle()
    life.add(job(PENDING), at(100))
    life.add(LOST, at(100))
    assert [event.function for event in life.take()] == ["start_job"]


@pytest.mark.parametrize("state", ["cancelled", "completed", "timeout"])
def test_job_that_ends_while_listed_as_pending_has_ended(state: str) -> None:
    """Slurm does not run a job again after that: it was cancelled during the epilog."""
    assert fed(lifecycle(), job(), job(PENDING), ended(state=state)) == [START, STOP]


def test_run_of_less_than_a_second_ends() -> None:
    """Its end is its start, also of the last run of a requeued job."""
    assert fed(lifecycle(), job(), ended(10, 10)) == [START, ("stop", 10, 10)]
    records = [job(), FIRST, job(begin=90), ended(90, 90)]
    assert fed(lifecycle(), *records) == [START, ("stop", 10, 90)]


def test_changed_start_alone_is_not_requeue() -> None:
    """Sonar's times shift by an hour when summer time ends: the job keeps its start."""
    shifted = ended(begin=10 + 3600, end=9000)
    assert fed(lifecycle(), job(), shifted) == [START, ("stop", 10, 9000)]


def test_late_earlier_run_is_emitted_completely() -> None:
    """It neither ends nor changes the known run; repeated, it makes no event."""
    earlier = ended(begin=-50, end=-20, submit=at(-60), state="node_fail")
    found = fed(lifecycle(), job(), earlier, earlier, ended())
    assert found == [START, ("start", -50, 0), ("stop", -50, -20), STOP]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_complete_runs_are_accepted_in_any_order(order: tuple[int, ...]) -> None:
    """As after a crash, when the broker hands out old messages after new ones."""
    runs = [ended(10, 50), ended(90, 99, submit=at(60)), ended(200, 299, submit=at(150))]
    life = lifecycle()
    found = fed(life, *(runs[each] for each in order), *runs, job())
    assert sorted(found) == sorted(
        [START, STOP, ("start", 90, 0), ("stop", 90, 99), ("start", 200, 0), ("stop", 200, 299)]
    )
    assert fed(life, job(begin=310)) == [("start", 310, 0)]


@pytest.mark.parametrize("hour", [3600, -3600])
def test_run_with_other_utc_offset_is_same_run(hour: int) -> None:
    """Sonar computes the times of past jobs with today's offset."""
    shifted = ended(10 + hour, 50 + hour, submit=at(hour))
    assert fed(lifecycle(), ended(), shifted) == [START, STOP]


def test_reused_id_is_new_job(caplog: pytest.LogCaptureFixture) -> None:
    """No end is made up for a job whose end was never reported."""
    later = REUSED // SECOND + 1
    records = [job(), job(begin=later + 10, submit=at(later))]
    assert fed(lifecycle(), *records) == [START, ("start", later + 10, 0)]
    assert "job 7 of fox: its id is used again, its end is unknown" in caplog.text
    assert fed(lifecycle(), ended(), records[1]) == [START, STOP, ("start", later + 10, 0)]


def test_ids_are_separate_by_cluster() -> None:
    """Job 7 of one is not job 7 of the other."""
    assert fed(lifecycle(), job(), job(cluster="wolf")) == [START, START]


def test_start_of_other_source_has_only_stop() -> None:
    """Our own starts, received again on the same bus, change nothing."""
    life = lifecycle()
    life.note_start(Job(cluster="fox", id=7, start=at(9)), at(9))
    assert fed(life, ended(begin=9)) == [("stop", 9, 50)]
    life.note_start(Job(cluster="fox", id=7, start=at(9)), at(9))
    assert life.started("fox", 7) is None


def test_events_of_one_job_are_adjacent() -> None:
    """So that they travel in one message, in order."""
    life = lifecycle()
    for record in (job(), job(id=8), job(id=9), ended(id=9), ended()):
        life.add(record, at(60))
    events = [(event.function, event.job.id) for event in life.take()]
    assert events == [
        ("start_job", 7), ("stop_job", 7), ("start_job", 8), ("start_job", 9), ("stop_job", 9),
    ]  # fmt: skip
    assert life.take() == []


def test_stop_in_other_message_is_delayed() -> None:
    """For the delay after its start; a next run waits for it in turn."""
    now = at(0)
    life = lifecycle(delay=5 * SECOND, clock=lambda: now)
    life.add(job(), at(10))
    (start,) = life.take()
    now = at(1)
    life.add(ended(), at(50))
    (stop,) = life.take()
    now = at(2)
    life.add(ended(begin=90, end=99), at(100))
    both = life.take()
    assert [each.not_before - BASE * SECOND for each in (start, stop, *both)] == [
        -BASE * SECOND, 5 * SECOND, 7 * SECOND, 7 * SECOND,
    ]  # fmt: skip
    now = at(100)
    life.add(ended(begin=190, end=199), at(200))
    assert [each.not_before for each in life.take()] == [0, 0]


def test_lifecycle_memory_is_bounded() -> None:
    """On a stream of any length; jobs that ended do not push out those that run."""
    life = lifecycle(maximum=10)
    life.add(job(), at(10))
    for number in range(100, 300):
        life.add(job(PENDING, id=number), at(10))
    for number in range(300, 500):
        life.add(ended(id=number), at(60))
    life.take()
    assert len(life) == 21
    assert fed(life, ended()) == [STOP]


records = st.builds(
    lambda state, begin, length, **known: (
        ended(begin, begin + length, state, **known)
        if state not in (PENDING, RUNNING)
        else job(state, begin, **known)
    ),
    st.sampled_from([PENDING, RUNNING, REQUEUED, "completed", "failed"]),
    st.integers(0, 100),
    st.integers(0, 30),
    id=st.integers(1, 2),
    submit=st.integers(-10, 100).map(at),
    user=st.sampled_from(["", "ann"]),
    run=st.integers(0, 2),
)


@given(st.lists(st.tuples(records, st.integers(0, 200)), max_size=30))
def test_starts_and_stops_alternate(found: list[tuple[Job, int]]) -> None:
    """For each job: a stop follows its own start, no run starts twice, none overlaps another."""
    life = lifecycle()
    running: dict[int, int] = {}
    known: set[tuple[int, int]] = set()
    for record, second in found:
        life.add(record, at(second))
        for event in life.take():
            name, start = event.job.id, event.job.start
            if event.function == "start_job":
                assert (name, start) not in known
                known.add((name, start))
                running[name] = running.get(name, 0) + 1
            else:
                assert (name, start) in known
                assert event.job.end >= start
                running[name] -= 1
            assert 0 <= running[name] <= 2  # an earlier run may arrive late, completely


@given(st.lists(st.lists(st.tuples(records, st.integers(0, 200)), max_size=6), max_size=6))
def test_lifecycle_continues_after_restart(
    tmp_path_factory: pytest.TempPathFactory, lives: list[list[tuple[Job, int]]]
) -> None:
    """Committed data is known to the next process."""
    path = str(tmp_path_factory.mktemp("jobs") / "state")
    found, whole, expected = [], lifecycle(), []
    for life in lives:
        state = StateStore(path)
        jobs = Lifecycle(state)
        state.open()
        for record, second in life:
            jobs.add(record, at(second))
            whole.add(record, at(second))
        found += jobs.take()
        expected += whole.take()
        state.commit(is_durable=False)
        del state, jobs
    assert found == expected


def test_lifecycle_accepts_damaged_record(tmp_path: Path) -> None:
    """Integers beyond 64 bits, as in the year 9999, can be kept."""
    state = StateStore(str(tmp_path / "state"))
    life = Lifecycle(state)
    state.open()
    life.add(msgspec.structs.replace(job(), start=253402300799 * SECOND), at(10))
    state.commit(is_durable=True)
    assert [event.function for event in life.take()] == ["start_job"]


def test_unreportable_jobs_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """As when sacct was not queried for users or nodes; not one cancelled before its start."""
    life = lifecycle()
    records = [ended(user=""), ended(user="", id=8), ended(nodes=(), id=9)]
    assert fed(life, *records, ended(state="cancelled", nodes=(), id=10), ended(id=11)) == [
        START, STOP,
    ]  # fmt: skip
    assert caplog.messages == [
        "jobs whose records name no user are not reported, such as job 7",
        "jobs whose records name no nodes are not reported, such as job 9",
    ]
