"""From records to jobs: array tasks, PE tasks, reruns, records without times, reused numbers."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.formats.gridengine import Accounting, Origin, Outcome, read
from ccpipe.formats.gridengine.event import from_event, to_event
from ccpipe.pipeline.state import StateStore
from ccpipe.translate.gridengine.assembler import DAY, Assembler, JobRecords
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"
SECOND = 10**9
NOW = 1_795_170_750 * SECOND


def record(number: int = 1, begin: int = 10, **known: Any) -> Accounting:
    """Make a record of a run of ten seconds that began so many seconds after NOW."""
    times = {"submission_time": NOW, "start_time": NOW + begin * SECOND}
    times["end_time"] = times["start_time"] + 10 * SECOND
    usage = {"rusage": {"ru_wallclock": 10}, "eusage": {"cpu": 5.0}}
    return Accounting(
        **{
            "job_number": number,
            "owner": "anna",
            "hostname": "n1",
            **times,
            "usage": usage,
            **known,
        }
    )


def jobs(*records: Accounting, assembler: Assembler | None = None) -> list[JobRecords]:
    """Put records together and flush."""
    assembler = assembler or Assembler()
    return [*assembler.feed(records), *assembler.flush()]


def test_the_real_files_jobs() -> None:
    """128 records are 122 jobs and tasks of arrays; three are PE tasks of a job on two nodes."""
    found = jobs(*read((DATA / "accounting").read_bytes()).records)
    assert len(found) == 125
    (parallel,) = (job for job in found if job.tasks)
    assert (parallel.key, parallel.hosts) == (
        (140, 0),
        ("node02.cluster.example", "node01.cluster.example"),
    )
    assert parallel.cpu == 11
    assert parallel.has_all_hosts
    assert [job.key[0] for job in found if not job.has_all_hosts] == [139, 141]


def test_each_task_of_an_array_is_a_job() -> None:
    """Three records of one number and three tasks are three jobs."""
    found = jobs(*(record(task_number=task) for task in (1, 2, 3)))
    assert [job.key for job in found] == [(1, 1), (1, 2), (1, 3)]


def test_runs_of_one_job_are_one_job() -> None:
    """It starts with its first run and ends with its last, whatever their submissions."""
    runs = [
        record(begin=10, failed=25, exit_status=99),
        record(begin=30, failed=25, exit_status=99, submission_time=NOW + 20 * SECOND),
        record(begin=50, submission_time=NOW + 40 * SECOND),
    ]
    (job,) = jobs(*runs)
    assert (job.start, job.end) == (NOW + 10 * SECOND, NOW + 60 * SECOND)
    assert (len(job.earlier), job.outcome) == (2, Outcome.COMPLETED)


def test_a_lost_node_and_a_failed_start_wait_for_the_run_that_follows() -> None:
    """Pseudo records have no times, and make no start."""
    never: dict[str, Any] = {"start_time": None, "end_time": None}
    (job,) = jobs(record(failed=8, **never), record(failed=25, **never), record())
    assert (job.start, len(job.earlier)) == (NOW + 10 * SECOND, 2)
    (alone,) = jobs(record(failed=8, **never))
    assert (alone.start, alone.end, alone.outcome) == (None, None, Outcome.START_FAILED)


def test_a_job_that_was_to_run_again_ends_after_the_quiet_time() -> None:
    """By the records' times, not by this machine's clock; a deleted job has no further record."""
    assembler = Assembler(quiet=DAY)
    waiting = record(1, failed=30, exit_status=100)
    assert list(assembler.feed([waiting, record(2, begin=80_000)])) != []
    (job,) = (j for j in assembler.feed([record(3, begin=90_000)]) if j.key == (1, 0))
    assert job.last == waiting


def test_a_damaged_time_does_not_end_what_waits() -> None:
    """A record of the year 2100 does not advance the time."""
    assembler = Assembler()
    waiting = record(1, failed=30, exit_status=100)
    damaged = record(2, end_time=4_102_444_800 * SECOND)
    assert [job.key for job in assembler.feed([waiting, damaged])] == [(2, 0)]


def test_pe_tasks_join_their_master_even_across_reruns() -> None:
    """Tasks come first; those of an earlier run do not belong to the next."""
    first = [record(pe_taskid="1.n9", hostname="n9"), record(failed=25, exit_status=99)]
    second = [
        record(begin=30, pe_taskid="1.n2", hostname="n2"),
        record(begin=30, pe_taskid="1.n3", hostname="n3", failed=1, start_time=None),
        record(begin=30, granted_pe="mpi", slots=3),
    ]
    (job,) = jobs(*first, *second)
    assert job.hosts == ("n1", "n2", "n3")
    assert job.cpu == 15


def test_late_and_orphaned_pe_tasks_are_counted() -> None:
    """A task after its master is late; one whose master never comes is an orphan: no job."""
    assembler = Assembler()
    found = jobs(record(1), record(1, pe_taskid="1.n2"), record(2, pe_taskid="1.n2"),
                 assembler=assembler)  # fmt: skip
    assert [job.key for job in found] == [(1, 0)]
    assert (assembler.late, assembler.orphans) == (1, 1)


def test_a_number_that_is_used_again_is_another_job() -> None:
    """Submissions a year apart are of two jobs, also where the first one was to run again."""
    old = record(7, failed=25, exit_status=99)
    later = NOW + 365 * DAY
    new = record(7, submission_time=later, start_time=later, end_time=later + SECOND)
    found = jobs(old, new)
    assert [(job.last, job.earlier) for job in found] == [(old, ()), (new, ())]


def test_the_same_content_is_another_record_and_the_same_place_is_not() -> None:
    """Identity is file and offset: equal lines are legitimate, the same line again is not."""
    assembler = Assembler()
    records = [record(origin=Origin("f", offset)) for offset in (0, 10, 0, 10)]
    assert len(jobs(*records, assembler=assembler)) == 2
    assert assembler.repeated == 2


def test_intermediate_records_are_left_out() -> None:
    """exit_status -1 holds only what was used since midnight."""
    assert len(jobs(record(exit_status=-1, reported=NOW), record())) == 1


def test_no_more_is_held_than_asked_for() -> None:
    """Beyond the maximum, the job that waited longest is returned as it is."""
    assembler = Assembler(maximum=3)
    waiting = [record(number, failed=25, exit_status=99) for number in range(10)]
    assert [job.key[0] for job in assembler.feed(waiting)] == list(range(7))
    assert [job.key[0] for job in assembler.flush()] == [7, 8, 9]


runs = st.builds(
    record,
    st.integers(1, 3),
    st.integers(0, 10**7),
    task_number=st.integers(0, 2),
    failed=st.sampled_from([0, 8, 24, 25, 30, 37, 100]),
    start_time=st.none() | st.integers(1, 2**62),
    submission_time=st.none() | st.integers(1, 2**62),
    pe_taskid=st.none() | st.just("1.n2"),
)


@given(st.lists(runs, max_size=30))
def test_no_record_is_lost(records: list[Accounting]) -> None:
    """Each record that is no PE task is in exactly one job; the others are there or counted."""
    numbered = [
        msgspec.structs.replace(each, origin=Origin("f", number))
        for number, each in enumerate(records)
    ]
    assembler = Assembler()
    found = jobs(*numbered, assembler=assembler)
    masters = [each for job in found for each in (*job.earlier, job.last)]
    assert sorted(r.origin.offset for r in masters) == [
        r.origin.offset for r in numbered if r.pe_taskid is None
    ]
    tasks = [each.origin.offset for job in found for each in job.tasks]
    assert len(tasks) == len(set(tasks))


@settings(max_examples=30)
@given(st.lists(st.lists(runs, max_size=8), max_size=5))
def test_a_process_that_ends_between_records_makes_no_difference(
    tmp_path_factory: pytest.TempPathFactory, lives: list[list[Accounting]]
) -> None:
    """The state outlives the process: the same jobs come, in the same order.

    Records are as events carry them, in microseconds.
    """
    lives = [[from_event(to_event(each, cluster="c")) for each in life] for life in lives]
    path = str(tmp_path_factory.mktemp("jobs") / "state")
    found = []
    for records in lives:
        state = StateStore(path)
        assembler = Assembler(state=state)
        state.open()
        assembler.recall()
        found += [bare(job) for job in assembler.feed(records)]
        state.commit(is_durable=False)
        del state, assembler
    whole = Assembler()
    every = [each for records in lives for each in records]
    assert found == [bare(job) for job in whole.feed(every)]


def bare(job: JobRecords) -> list[tuple[Accounting, ...]]:
    """Return a job's records."""
    return [(job.last,), job.tasks, job.earlier]
