"""Roll-up: the five conditions, and what becomes of the measures."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.sonar import (
    SampleAttributes,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
    roll_up,
)


def rank(pid: int, **changes: Any) -> SampleProcess:
    """Return one of many processes that are the same."""
    fields = {"cmd": "solver", "ppid": 1, "cpu_time": 10, "cpu_util": 50.5, "resident_memory": 100}
    return SampleProcess(pid=pid, **{**fields, **changes})


def rolled(*processes: SampleProcess, job: int = 7, epoch: int = 0) -> list[SampleProcess]:
    """Roll up the processes of one job."""
    sample = SampleAttributes(jobs=(SampleJob(job, "u", epoch, processes),))
    (only,) = roll_up(sample).jobs
    return list(only.processes)


def test_processes_that_are_the_same_become_their_sum() -> None:
    """``rolledup`` counts those beside the first; the number is 0."""
    assert rolled(rank(11), rank(12), rank(13, cpu_time=5)) == [
        SampleProcess(cmd="solver", ppid=1, pid=0, cpu_time=25, cpu_util=151.5,
                      resident_memory=300, rolledup=2)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "two",
    [
        {"processes": [rank(11), rank(12)], "epoch": 9},
        {"processes": [rank(11), rank(12)], "job": 0},
        {"processes": [rank(11), rank(12, cmd="other")]},
        {"processes": [rank(11), rank(12, ppid=2)]},
        {"processes": [rank(11, ppid=0), rank(12, ppid=0)]},
    ],
)
def test_each_condition_is_needed(two: dict[str, Any]) -> None:
    """Batch system, job's number, command, parent: where one fails, nothing is rolled up."""
    processes = two.pop("processes")
    assert rolled(*processes, **two) == processes


def test_only_leaves_are_rolled_up() -> None:
    """A process with a child stays, also where the child belongs to another job."""
    processes = [rank(11), rank(12), rank(13), rank(20, ppid=12, cmd="child")]
    assert [p.pid for p in rolled(*processes)] == [0, 12, 20]
    child = SampleJob(8, "u", 0, (rank(30, ppid=11),))
    sample = SampleAttributes(jobs=(SampleJob(7, "u", 0, (rank(11), rank(12))), child))
    assert [p.pid for p in roll_up(sample).jobs[0].processes] == [11, 12]


def test_jobs_are_not_mixed() -> None:
    """The same command of another job is another record."""
    sample = SampleAttributes(
        jobs=(SampleJob(7, "u", 0, (rank(11),)), SampleJob(8, "u", 0, (rank(12),)))
    )
    assert roll_up(sample) == sample


def test_records_of_several_parents_are_told_apart_by_them() -> None:
    """Several rolled-up records may have one command."""
    found = rolled(rank(11), rank(12), rank(13, ppid=2), rank(14, ppid=2))
    assert [(p.pid, p.ppid, p.rolledup) for p in found] == [(0, 1, 1), (0, 2, 1)]


def test_cards_are_summed_each_for_itself() -> None:
    """In the order in which they are first met."""
    a, b = SampleProcessGpu(0, "a", 10.0, 5), SampleProcessGpu(1, "b", 20.0, 6)
    (found,) = rolled(rank(11, gpus=(b,)), rank(12, gpus=(a, b)))
    assert found.gpus == (SampleProcessGpu(1, "b", 40.0, 12), a)


def test_a_container_is_one_only_where_all_are() -> None:
    """A record that says so speaks of each of its processes."""
    assert rolled(rank(11, in_container=True), rank(12, in_container=True))[0].in_container
    assert not rolled(rank(11, in_container=True), rank(12))[0].in_container


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from("ab"), st.integers(0, 9)), max_size=12)
)
def test_nothing_is_lost_and_twice_is_once(kinds: list[tuple[int, str, int]]) -> None:
    """The measures' sums and the number of processes stay; rolled up is rolled up."""
    processes = [
        rank(100 + i, ppid=ppid, cmd=cmd, cpu_time=time)
        for i, (ppid, cmd, time) in enumerate(kinds)
    ]
    found = rolled(*processes)
    assert sum(p.cpu_time for p in found) == sum(p.cpu_time for p in processes)
    assert sum(p.rolledup + 1 for p in found) == len(processes)
    assert len(found) == len({(p.ppid, p.cmd) for p in processes})
    assert rolled(*found) == found
