"""From records to jobs: array tasks, PE tasks, reruns, records without times, reused numbers."""

import time
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.gridengine import Accounting, Origin, read
from ccpipe.jobs import Job
from ccpipe.pipeline.state import StateStore
from ccpipe.translate.gridengine.jobs import JobRuns, job_of
from ccpipe.translate.gridengine.translator import DAY, Assembler, key_of
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"
SECOND = 10**9
NOW = (int(time.time()) - 86_400) * SECOND  # no later time than this machine's ends a wait


def record(number: int = 1, begin: int = 10, **known: Any) -> Accounting:
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


def job(number: int = 1, begin: int = 10, **known: Any) -> Job:
    return job_of(record(number, begin, **known), "fox")


def runs_of(*records: Accounting | Job, assembler: Assembler | None = None) -> list[JobRuns]:
    assembler = assembler or Assembler()
    found = [each if isinstance(each, Job) else job_of(each, "fox") for each in records]
    return [*assembler.feed(found), *assembler.flush()]


def keys(found: Iterable[JobRuns]) -> list[tuple[int, int]]:
    return [key_of(each.last) for each in found]


def test_assembler_finds_all_jobs_of_real_file() -> None:
    """128 records are 122 jobs and tasks of arrays; three are PE tasks of a job on two nodes."""
    found = runs_of(*read((DATA / "accounting").read_bytes()).records)
    assert len(found) == 125
    (parallel,) = (each for each in found if each.tasks)
    assert keys([parallel]) == [(140, 0)]
    assert nodes_of(parallel) == ["node02.cluster.example", "node01.cluster.example"]
    assert parallel.cpu == 11
    assert parallel.has_all_nodes
    assert [number for number, _ in keys(e for e in found if not e.has_all_nodes)] == [139, 141]


def nodes_of(found: JobRuns) -> list[str]:
    return [node.hostname for node in found.nodes]


def test_assembler_returns_job_for_each_array_task() -> None:
    """Three records of one number and three tasks are three jobs."""
    found = runs_of(*(record(task_number=task) for task in (1, 2, 3)))
    assert keys(found) == [(1, 1), (1, 2), (1, 3)]


def test_assembler_joins_runs_of_one_job() -> None:
    """It starts with its first run and ends with its last, whatever their submissions."""
    runs = [
        record(begin=10, failed=25, exit_status=99),
        record(begin=30, failed=25, exit_status=99, submission_time=NOW + 20 * SECOND),
        record(begin=50, submission_time=NOW + 40 * SECOND),
    ]
    (found,) = runs_of(*runs)
    assert (found.start, found.end) == (NOW + 10 * SECOND, NOW + 60 * SECOND)
    assert (len(found.earlier), found.last.outcome) == (2, "completed")


def test_assembler_waits_for_next_run_after_failed_start() -> None:
    """Pseudo records have no times, and make no start."""
    never: dict[str, Any] = {"start_time": None, "end_time": None}
    (found,) = runs_of(record(failed=8, **never), record(failed=25, **never), record())
    assert (found.start, len(found.earlier)) == (NOW + 10 * SECOND, 2)
    (alone,) = runs_of(record(failed=8, **never))
    assert (alone.start, alone.end, alone.last.outcome) == (0, 0, "start_failed")


def test_assembler_ends_rescheduled_job_after_quiet_time() -> None:
    """By the records' times, not by this machine's clock; a deleted job has no further record."""
    assembler = Assembler(quiet=DAY)
    waiting = job(1, failed=30, exit_status=100)
    assert list(assembler.feed([waiting, job(2, begin=80_000)])) != []
    found = list(assembler.feed([job(3, begin=90_000)]))
    assert [each.last for each in found if keys([each]) == [(1, 0)]] == [unread(waiting)]


def test_assembler_keeps_waiting_jobs_despite_damaged_time() -> None:
    """A record of the year 2100 does not advance the time beyond tomorrow."""
    assembler = Assembler()
    now = time.time_ns()
    waiting = job(1, start_time=now, end_time=now, failed=30, exit_status=100)
    damaged = job(2, end_time=4_102_444_800 * SECOND)
    assert keys(assembler.feed([waiting, damaged])) == [(2, 0)]


def test_assembler_joins_pe_tasks_with_their_run() -> None:
    """Tasks arrive first; tasks of an earlier run do not belong to the next."""
    first = [record(pe_taskid="1.n9", hostname="n9"), record(failed=25, exit_status=99)]
    second = [
        record(begin=30, pe_taskid="1.n2", hostname="n2"),
        record(begin=30, pe_taskid="1.n3", hostname="n3", failed=1, start_time=None),
        record(begin=30, granted_pe="mpi", slots=3),
    ]
    (found,) = runs_of(*first, *second)
    assert nodes_of(found) == ["n1", "n2", "n3"]
    assert found.cpu == 15


def test_assembler_counts_late_and_orphaned_pe_tasks() -> None:
    """A task after its master is late; one without a master is an orphan and makes no job."""
    left_out = list[str]()
    records = record(1), record(1, pe_taskid="1.n2"), record(2, pe_taskid="1.n2")
    found = runs_of(*records, assembler=Assembler(count=left_out.append))
    assert keys(found) == [(1, 0)]
    assert left_out == ["late", "orphaned"]


def test_assembler_separates_jobs_with_reused_number() -> None:
    """Submissions a year apart are of two jobs, also where the first one was to run again."""
    old = job(7, failed=25, exit_status=99)
    later = NOW + 365 * DAY
    new = job(7, submission_time=later, start_time=later, end_time=later + SECOND)
    found = runs_of(old, new)
    assert [(each.last, each.earlier) for each in found] == [(unread(old), ()), (new, ())]


def test_assembler_identifies_record_by_file_and_offset() -> None:
    """Lines with equal content are distinct records; the same line read again is a repetition."""
    left_out = list[str]()
    records = [record(origin=Origin("f", offset)) for offset in (0, 10, 0, 10)]
    assert len(runs_of(*records, assembler=Assembler(count=left_out.append))) == 2
    assert left_out == ["repeated", "repeated"]


def test_assembler_drops_intermediate_records() -> None:
    """Records with exit_status -1 contain only the usage since midnight."""
    assert len(runs_of(record(exit_status=-1, reported=NOW), record())) == 1


def test_assembler_returns_oldest_job_beyond_maximum() -> None:
    """Beyond the maximum, the job that waited longest is returned as it is."""
    assembler = Assembler(maximum=3)
    waiting = [job(number, failed=25, exit_status=99) for number in range(10)]
    assert [number for number, _ in keys(assembler.feed(waiting))] == list(range(7))
    assert [number for number, _ in keys(assembler.flush())] == [7, 8, 9]


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
def test_assembler_loses_no_record(records: list[Accounting]) -> None:
    """Each record other than a PE task is in exactly one job; PE tasks are in one or counted."""
    numbered = [
        msgspec.structs.replace(each, job_name=str(number)) for number, each in enumerate(records)
    ]
    found = runs_of(*numbered)
    masters = [each.name for runs in found for each in (*runs.earlier, runs.last)]
    assert sorted(masters, key=int) == [r.job_name for r in numbered if r.pe_taskid is None]
    tasks = [each.name for runs in found for each in runs.tasks]
    assert len(tasks) == len(set(tasks))


@given(st.lists(st.lists(runs, max_size=8), max_size=5))
def test_assembler_continues_from_state_after_restart(
    tmp_path_factory: pytest.TempPathFactory, lives: list[list[Accounting]]
) -> None:
    """The same jobs are returned in the same order."""
    path = str(tmp_path_factory.mktemp("jobs") / "state")
    found = []
    for records in lives:
        state = StateStore(path)
        assembler = Assembler(state=state)
        state.open()
        assembler.load()
        found += [bare(each) for each in assembler.feed(job_of(r, "fox") for r in records)]
        state.commit(is_durable=False)
        del state, assembler
    whole = Assembler()
    every = [job_of(each, "fox") for records in lives for each in records]
    assert found == [bare(each) for each in whole.feed(every)]


def bare(found: JobRuns) -> list[list[Job]]:
    return [list(map(unread, part)) for part in ((found.last,), found.tasks, found.earlier)]


def unread(found: Job) -> Job:
    return msgspec.structs.replace(found, raw=None)
