"""Records of tasks, and how several become one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.node.gather.jobacct import JobacctInfo, TaskId, aggregate, create, destroy, pack

KIB = 1024


def task(number: int, node: int = 0, /, **readings: int) -> JobacctInfo:
    info = create(TaskId(number, node))
    for name, value in readings.items():
        info.update(name.replace("_", "/"), value)
    return info


def test_a_real_step_of_four_tasks_on_two_nodes() -> None:
    """Totals are of the tasks' peaks; maximum and minimum say where they were."""
    step = create()
    peaks = (48116, 78732, 108396, 139096)
    cpus = (2040, 3000, 4000, 6268)
    for number, (rss, cpu) in enumerate(zip(peaks, cpus, strict=True)):
        info = task(number, number // 2, mem=rss * KIB, cpu=cpu)
        info.update("mem", 1000)  # the last reading is small: the peak counts
        aggregate(step, info)
    mem, cpu_usage = step.usage_in["mem"], step.usage_in["cpu"]
    assert mem.total == 374340 * KIB
    assert (mem.max, mem.max_id) == (139096 * KIB, TaskId(3, 1))
    assert (mem.min, mem.min_id) == (48116 * KIB, TaskId(0, 0))
    assert (cpu_usage.min, cpu_usage.min_id) == (2040, TaskId(0, 0))
    assert cpu_usage.total == sum(cpus)
    assert step.tasks == 4


def test_what_is_unset_does_not_count() -> None:
    """It is no 0: neither in a minimum nor in a total."""
    step = create()
    aggregate(step, task(0))
    aggregate(step, task(1, cpu=10))
    aggregate(step, None)
    assert step.usage_in["cpu"].min == 10
    assert step.usage_in["cpu"].min_id == TaskId(1, 0)
    assert "mem" not in step.usage_in
    assert step.tasks == 2


def test_counters_of_a_node_count_once_per_node() -> None:
    """Four tasks on two nodes report two nodes' energy; Slurm reports it four times."""
    step = create()
    for number in range(4):
        aggregate(step, task(number, number // 2, energy=100 + number, fs_lustre=10))
    assert step.usage_in["energy"].total == 101 + 103
    assert step.usage_in["energy"].max_id == TaskId(None, 1)
    assert step.usage_in["fs/lustre"].total == 20


def test_nodes_are_added_up_as_tasks_are() -> None:
    """Aggregating per node first, and the nodes then, gives the same as all tasks at once."""
    tasks = [
        task(n, n // 3, mem=n * 1000, cpu=n, energy=50 + n // 3, pages=n % 2) for n in range(9)
    ]
    flat, nested = create(), create()
    for info in tasks:
        aggregate(flat, info)
    for node in range(3):
        part = create()
        for info in tasks[3 * node : 3 * node + 3]:
            aggregate(part, info)
        aggregate(nested, part)
    assert flat == nested


@given(st.lists(st.tuples(st.integers(0, 2**50), st.integers(0, 3)), max_size=12))
def test_extremes_and_sums_are_those_of_all_tasks(values: list[tuple[int, int]]) -> None:
    step = create()
    for number, (value, node) in enumerate(values):
        aggregate(step, task(number, node, cpu=value))
    if values:
        numbers = [value for value, _ in values]
        usage = step.usage_in["cpu"]
        assert (usage.max, usage.min, usage.total) == (max(numbers), min(numbers), sum(numbers))
        assert usage.max_id.task == numbers.index(max(numbers))
        assert usage.min_id.task == numbers.index(min(numbers))


def test_a_copy_shares_nothing() -> None:
    info = task(0, mem=5, energy=7)
    copy = info.copy()
    assert copy == info
    before = pack(copy)
    info.update("mem", 9)
    info.update("energy", 11)
    assert pack(copy) == before


def test_a_destroyed_record_holds_nothing() -> None:
    """It is as ``create()`` makes it; None may be destroyed."""
    info = task(3, mem=5)
    destroy(info)
    assert info == create()
    destroy(None)


@pytest.mark.parametrize("resource", ["mem", "cpu"])
def test_a_maximum_does_not_fall(resource: str) -> None:
    """The total is the last reading, maximum and minimum are the largest so far."""
    info = task(0)
    for value in (3, 9, 4):
        info.update(resource, value)
    usage = info.usage_in[resource]
    assert (usage.total, usage.max, usage.min) == (4, 9, 9)


def test_the_frequency_is_weighted_by_processor_time() -> None:
    step = create()
    for milliseconds, frequency in ((1000, 1_000_000), (3000, 2_000_000)):
        info = task(0)
        info.cpu_time_weighed = milliseconds
        info.weighted_frequency = milliseconds * frequency
        aggregate(step, info)
    assert step.cpu_frequency == 1_750_000
    assert create().cpu_frequency is None
