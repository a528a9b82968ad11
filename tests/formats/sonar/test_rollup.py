"""Roll-up: the five conditions, and what becomes of the measures."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.sonar import SampleAttributes, SampleJob, SampleProcess, SampleProcessGpu
from ccpipe.formats.sonar.rollup import roll_up, synthetic_pid


def rank(pid: int, **changes: Any) -> SampleProcess:
    fields = {"cmd": "solver", "ppid": 1, "cpu_time": 10, "cpu_util": 50.5, "resident_memory": 100}
    return SampleProcess(pid=pid, **{**fields, **changes})


def rolled(*processes: SampleProcess, job: int = 7, epoch: int = 0) -> list[SampleProcess]:
    sample = SampleAttributes(jobs=(SampleJob(job, "u", epoch, processes),))
    (only,) = roll_up(sample).jobs
    return list(only.processes)


def test_processes_that_are_the_same_become_their_sum() -> None:
    """``rolledup`` counts those beside the first; the process ID is a synthetic one."""
    pid = synthetic_pid(SampleJob(7, "u"), 1, "solver")
    assert rolled(rank(11), rank(12), rank(13, cpu_time=5)) == [
        SampleProcess(cmd="solver", ppid=1, pid=pid, cpu_time=25, cpu_util=151.5,
                      resident_memory=300, rolledup=2)
    ]  # fmt: skip


def test_sums_of_decimal_fractions_are_decimal_fractions() -> None:
    """2.3 and 4.6 are 6.9, not 6.8999999999999995."""
    (only,) = rolled(rank(11, cpu_util=2.3, cpu_avg=2.3), rank(12, cpu_util=4.6, cpu_avg=4.6))
    assert (only.cpu_util, only.cpu_avg) == (6.9, 6.9)


def test_a_synthetic_pid_is_beyond_pid_max_and_the_same_in_every_sample() -> None:
    """Job, epoch, user, parent and command each make another one; it fits 31 bits."""
    base = (7, "ann", 0, 1, "solver")
    others = [base, (8, *base[1:]), (7, "bob", 0, 1, "solver"), (7, "ann", 5, 1, "solver"),
              (7, "ann", 0, 2, "solver"), (7, "ann", 0, 1, "other")]  # fmt: skip
    pids = [synthetic_pid(SampleJob(job, user, epoch), ppid, cmd)
            for job, user, epoch, ppid, cmd in others]  # fmt: skip
    assert len(set(pids)) == len(pids)
    assert all(4194304 < pid < 2**31 for pid in pids)
    assert pids[0] == 40785060  # in any process, on any machine
    first = rolled(rank(11), rank(12), rank(13))
    assert [p.pid for p in first] == [p.pid for p in rolled(rank(14), rank(15))]


def test_two_records_of_a_sample_never_share_a_synthetic_pid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where two hashes are equal, and in two jobs: Jobanalyzer keys on node and pid."""
    monkeypatch.setattr("ccpipe.formats.sonar.rollup._SYNTHETIC_PIDS", 1)
    two = (rank(11), rank(12), rank(21, ppid=2), rank(22, ppid=2))
    sample = SampleAttributes(jobs=(SampleJob(7, "u", 0, two), SampleJob(8, "u", 0, two)))
    found = [p.pid for job in roll_up(sample).jobs for p in job.processes]
    assert found == [4194305, 4194306, 4194307, 4194308]


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
    assert [p.pid > 2**22 or p.pid for p in rolled(*processes)] == [True, 12, 20]
    child = SampleJob(8, "u", 0, (rank(30, ppid=11),))
    sample = SampleAttributes(jobs=(SampleJob(7, "u", 0, (rank(11), rank(12))), child))
    assert [p.pid for p in roll_up(sample).jobs[0].processes] == [11, 12]


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
