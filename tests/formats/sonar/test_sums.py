"""Sums over a job's processes: growth of counters, levels, and roll-up."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ccpipe.errors import DataError
from ccpipe.formats.sonar import SampleAttributes, SampleJob, SampleProcess, SampleProcessGpu, sums
from ccpipe.formats.sonar.sums import Growth, inherited, roll_up, shares, synthetic_pid


def process(
    pid: int, time: int, read: int = 0, written: int = 0, *, cmd: str = "x", ppid: int = 1
) -> SampleProcess:
    """Return a process that used ten percent of a core on average."""
    return SampleProcess(
        cmd=cmd, pid=pid, ppid=ppid, cpu_time=time, cpu_avg=10.0, data_read=read,
        data_written=written,
    )  # fmt: skip


def growth(before: tuple[SampleProcess, ...], now: tuple[SampleProcess, ...]) -> Growth:
    """Return the growth from one sample to the next."""
    return grown(grown(sums.ProcessSnapshot(), before)[0], now)[1]


def grown(
    before: sums.ProcessSnapshot, now: tuple[SampleProcess, ...]
) -> tuple[sums.ProcessSnapshot, Growth]:
    seen = sums.snapshot(now, before)
    return seen, sums.growth(before, seen, now)


def test_levels_count_rolled_up_processes() -> None:
    """Memory is in bytes; each process has a main thread that ``num_threads`` does not count."""
    one = SampleProcess(resident_memory=3, virtual_memory=5, num_threads=2, pid=1)
    assert sums.levels((one, replace(one, pid=2, rolledup=4))) == (6 * 1024, 10 * 1024, 6, 10)
    assert sums.levels(()) == (0, 0, 0, 0)
    assert sums.levels((replace(one, rolledup=-3),)) == (3 * 1024, 5 * 1024, 1, 3)


def test_snapshot_rejects_number_beyond_64_bits() -> None:
    with pytest.raises(DataError, match="exceeds 64 bits"):
        sums.snapshot((process(1, 2**64),), sums.ProcessSnapshot())


def test_growth_finds_processes_in_any_order() -> None:
    """A new process counts in full, an ended one without parent not at all."""
    before = process(1, 10, 5, 7, ppid=0), process(2, 100, ppid=0), process(3, 1000, ppid=0)
    now = process(3, 1002, ppid=0), process(4, 9, 3, 1, ppid=0), process(1, 11, 6, 9, ppid=0)
    assert growth(before, now) == ((3, 1, 2), (9, 3, 1), 10.0)


def test_growth_counts_ended_child_once() -> None:
    """Its parent's counters grew by all of it; its previous usage is already counted."""
    before = process(1, 10, 20, 30), process(2, 4000, 500, 600)
    assert growth(before, (process(1, 4200, 525, 640),)).lasting == (190, 5, 10)


def test_growth_counts_ended_grandchild_once() -> None:
    """Its parent ended, too."""
    before = process(1, 0), process(2, 10), process(3, 100, ppid=2)
    assert growth(before, (process(1, 115),)).lasting == (5, 0, 0)


def test_growth_is_never_negative() -> None:
    """A parent that does not wait for its children does not get their time."""
    assert growth((process(1, 10), process(2, 100)), (process(1, 15),)).lasting == (0, 0, 0)


def test_growth_of_reused_pid_is_whole_new_process() -> None:
    """CPU time never decreases: it is another process."""
    before = process(1, 5), process(2, 10, 7, 7)
    now = process(1, 16), process(2, 9, 100, 100)
    assert growth(before, now) == ((1, 0, 0), (9, 100, 100), 10.0)


def test_growth_of_another_program_is_new() -> None:
    """A process keeps its counters at exec; a zombie is still the same program."""
    before = process(1, 10, cmd="sh"), process(2, 5, cmd="a")
    now = process(1, 30, cmd="python"), process(2, 6, cmd="a <defunct>")
    assert growth(before, now) == ((1, 0, 0), (20, 0, 0), 10.0)


def test_growth_ignores_decreased_bytes() -> None:
    """The kernel subtracts cancelled writes; time still counts."""
    assert growth((process(9, 10, 5, 5),), (process(9, 12, 4, 6),)).lasting == (2, 0, 1)


def test_growth_identifies_rolled_up_processes_by_parent_and_command() -> None:
    """Their ID may be 0, synthetic or real."""
    a, b = (SampleProcess(ppid=1, cmd=cmd, cpu_time=5) for cmd in "ab")
    assert growth((a, b), (replace(b, cpu_time=7), replace(a, cpu_time=6))).lasting[0] == 3
    assert growth((a, replace(a, cpu_time=50)), (a, replace(a, cpu_time=51))).lasting[0] == 1
    rolled = replace(a, pid=4194305, rolledup=2, cpu_time=15)
    assert growth((a,), (rolled,)).lasting[0] == 10
    assert growth((rolled,), (replace(a, pid=7, cpu_time=16),)).lasting[0] == 1
    zombie = replace(a, pid=9, cmd="a <defunct>", cpu_time=5)
    assert growth((rolled,), (replace(rolled, cpu_time=11), zombie)).lasting[0] == 1


@st.composite
def histories(
    draw: st.DrawFn, steps: tuple[str, ...]
) -> list[tuple[tuple[SampleProcess, ...], int]]:
    """Return samples of a job's processes, and the time that they really used until then."""
    tree = {1: process(1, 0, cmd="sh", ppid=0)}
    used, pids, samples = 0, 1, []
    for step in draw(st.lists(st.sampled_from(steps))):
        pid = draw(st.sampled_from(sorted(tree)))
        it = tree[pid]
        if step == "fork":
            pids += 1
            tree[pids] = process(pids, 0, cmd=draw(st.sampled_from("ab")), ppid=pid)
        elif step == "run":
            seconds = draw(st.integers(0, 50))
            used += seconds
            tree[pid] = replace(it, cpu_time=it.cpu_time + seconds)
        elif step == "exec":
            tree[pid] = replace(it, cmd=draw(st.sampled_from("abc")))
        elif step == "end" and pid != 1 and pid not in {p.ppid for p in tree.values()}:
            parent = tree[it.ppid]
            tree[it.ppid] = replace(parent, cpu_time=parent.cpu_time + it.cpu_time)
            del tree[pid]
        elif step == "sample":
            samples.append((tuple(tree.values()), used))
    return samples


STEPS = ("fork", "run", "end", "sample")


@given(histories((*STEPS, "exec")))
def test_growth_adds_up_to_usage(
    samples: list[tuple[tuple[SampleProcess, ...], int]],
) -> None:
    """However processes fork, run, call exec, and end."""
    assert_adds_up(samples, rollup=False)


@given(histories(STEPS))
def test_growth_adds_up_to_usage_when_rolled_up(
    samples: list[tuple[tuple[SampleProcess, ...], int]],
) -> None:
    """Without exec: processes in a rolled-up record cannot be identified."""
    assert_adds_up(samples, rollup=True)


def assert_adds_up(samples: list[tuple[tuple[SampleProcess, ...], int]], *, rollup: bool) -> None:
    """Compare the sum of the growth with the usage, after each sample."""
    before, total = sums.ProcessSnapshot(), 0
    for sampled, used in samples:
        job = SampleJob(job=7, user="ann", processes=sampled)
        if rollup:
            (job,) = roll_up(SampleAttributes(jobs=(job,))).jobs
        now, part = grown(before, job.processes)
        total += part.lasting[0] + part.new[0]
        assert total == used
        before = now


def test_inherited_ends_with_cycle_of_parents() -> None:
    """PIDs that are reused during sampling could form one."""
    assert inherited({1: (5,)}, {1: 2, 2: 3, 3: 2}, {7}) == {}


def test_gpu_is_summed_over_processes() -> None:
    """By UUID, for any index, without binary rounding errors."""
    on = SampleProcessGpu(uuid="GPU-1", gpu_util=2.3, gpu_memory=512, gpu_memory_util=5.0)
    other = replace(on, uuid="GPU-2", gpu_util=1.0)
    cards = sums.gpu_sums(
        (SampleProcess(pid=1, gpus=(on, other)), SampleProcess(gpus=(replace(on, gpu_util=4.6),)))
    )
    assert {uuid: list(card) for uuid, card in cards.items()} == {
        "GPU-1": [6.9, 1024.0, 10.0],
        "GPU-2": [1.0, 512.0, 5.0],
    }


def test_shares_are_growth_in_percent_of_time() -> None:
    """None if a counter decreased or their number changed."""
    assert shares((10, 25), (0, 5), 50) == ([20.0, 40.0], 60.0)
    assert shares((2**64 - 1,), (2**64 - 3,), 200) == ([1.0], 1.0)
    assert shares((69,), (0,), 1000) == ([6.9], 6.9)
    assert shares((1, 1), (1, 2), 50) is None
    assert shares((1, 1), (1,), 50) is None
    assert shares((), (), 50) == ([], 0.0)


def rank(pid: int, **changes: Any) -> SampleProcess:
    fields = {"cmd": "solver", "ppid": 1, "cpu_time": 10, "cpu_util": 50.5, "resident_memory": 100}
    return SampleProcess(pid=pid, **{**fields, **changes})


def rolled(*processes: SampleProcess, job: int = 7, epoch: int = 0) -> list[SampleProcess]:
    sample = SampleAttributes(jobs=(SampleJob(job, "u", epoch, processes),))
    (only,) = roll_up(sample).jobs
    return list(only.processes)


def test_roll_up_merges_equal_processes() -> None:
    """``rolledup`` is their number minus one; the process ID is synthetic."""
    pid = synthetic_pid(SampleJob(7, "u"), 1, "solver")
    assert rolled(rank(11), rank(12), rank(13, cpu_time=5)) == [
        SampleProcess(cmd="solver", ppid=1, pid=pid, cpu_time=25, cpu_util=151.5,
                      resident_memory=300, rolledup=2)
    ]  # fmt: skip


def test_roll_up_sums_without_binary_rounding_errors() -> None:
    """2.3 and 4.6 are 6.9, not 6.8999999999999995."""
    (only,) = rolled(rank(11, cpu_util=2.3, cpu_avg=2.3), rank(12, cpu_util=4.6, cpu_avg=4.6))
    assert (only.cpu_util, only.cpu_avg) == (6.9, 6.9)


def test_synthetic_pid_is_stable_and_beyond_pid_max() -> None:
    """It depends on job, epoch, user, parent and command, and fits 31 bits."""
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


def test_synthetic_pid_is_unique_in_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where two hashes are equal, and in two jobs: Jobanalyzer keys on node and pid."""
    monkeypatch.setattr("ccpipe.formats.sonar.sums._SYNTHETIC_PIDS", 1)
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
def test_roll_up_requires_each_condition(two: dict[str, Any]) -> None:
    """Batch system, nonzero job, equal command, equal parent."""
    processes = two.pop("processes")
    assert rolled(*processes, **two) == processes


def test_roll_up_skips_processes_with_children() -> None:
    """Also if the child belongs to another job."""
    processes = [rank(11), rank(12), rank(13), rank(20, ppid=12, cmd="child")]
    assert [p.pid > 2**22 or p.pid for p in rolled(*processes)] == [True, 12, 20]
    child = SampleJob(8, "u", 0, (rank(30, ppid=11),))
    sample = SampleAttributes(jobs=(SampleJob(7, "u", 0, (rank(11), rank(12))), child))
    assert [p.pid for p in roll_up(sample).jobs[0].processes] == [11, 12]


def test_roll_up_sums_each_gpu() -> None:
    """In order of first occurrence."""
    a, b = SampleProcessGpu(0, "a", 10.0, 5), SampleProcessGpu(1, "b", 20.0, 6)
    (found,) = rolled(rank(11, gpus=(b,)), rank(12, gpus=(a, b)))
    assert found.gpus == (SampleProcessGpu(1, "b", 40.0, 12), a)


def test_roll_up_sets_in_container_only_if_all_are() -> None:
    assert rolled(rank(11, in_container=True), rank(12, in_container=True))[0].in_container
    assert not rolled(rank(11, in_container=True), rank(12))[0].in_container


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from("ab"), st.integers(0, 9)), max_size=12)
)
def test_roll_up_is_lossless_and_idempotent(kinds: list[tuple[int, str, int]]) -> None:
    """The sums of the measures and the number of processes are unchanged."""
    processes = [
        rank(100 + i, ppid=ppid, cmd=cmd, cpu_time=time)
        for i, (ppid, cmd, time) in enumerate(kinds)
    ]
    found = rolled(*processes)
    assert sum(p.cpu_time for p in found) == sum(p.cpu_time for p in processes)
    assert sum(p.rolledup + 1 for p in found) == len(processes)
    assert len(found) == len({(p.ppid, p.cmd) for p in processes})
    assert rolled(*found) == found
