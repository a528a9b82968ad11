"""Records of tasks: get, set, pack, aggregate, and sacct's columns."""

import contextlib
import csv
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError, EncodeError
from ccpipe.formats.nodelist import expand
from ccpipe.node.gather.jobacct import (
    DataType,
    JobacctError,
    JobacctInfo,
    Rusage,
    TaskId,
    Usage,
    aggregate,
    create,
    destroy,
    get_info,
    pack,
    set_info,
    to_sacct,
    unpack,
)

NUMBERS = [kind for kind in DataType if kind.value.startswith(("max", "min", "tot_"))]


@pytest.mark.parametrize("kind", NUMBERS, ids=lambda kind: str(kind.value))
def test_get_info_returns_what_set_info_set(kind: DataType) -> None:
    info = create()
    assert get_info(info, kind) is None
    value: Any = TaskId(3, 1) if kind.value.endswith("_id") else 12345
    set_info(info, kind, value)
    assert get_info(info, kind) == value


def test_total_is_copied_by_get_and_set() -> None:
    info, other = create(TaskId(1, 0)), create()
    info.update("mem", 5)
    set_info(other, DataType.TOTAL, info)
    taken = get_info(info, DataType.TOTAL)
    info.update("mem", 9)
    assert get_info(other, DataType.MAX_RSS) == taken.usage_in["mem"].max == 5


def test_pipe_transfers_record() -> None:
    info, other = create(TaskId(1, 0)), create()
    info.update("mem", 5)
    reader, writer = os.pipe()
    set_info(info, DataType.PIPE, writer)
    assert get_info(other, DataType.PIPE, reader) == info
    os.close(writer)
    with pytest.raises(JobacctError, match="ended within a record"):
        get_info(other, DataType.PIPE, reader)
    os.close(reader)


def test_rusage_raises_polled_values() -> None:
    info = create(TaskId(0, 0))
    info.user, info.system = 500_000, 400_000
    info.update("cpu", 900)
    info.update("mem", 50)
    set_info(info, DataType.RUSAGE, Rusage(1_500_000, 100_000, 70, 3))
    assert get_info(info, DataType.RUSAGE) == Rusage(1_500_000, 400_000)
    assert info.usage_in["cpu"].total == 1900
    assert (info.usage_in["mem"].max, info.usage_in["mem"].total) == (70, 50)
    assert info.usage_in["pages"].total == 3


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (DataType.TOTAL, 5),
        (DataType.RUSAGE, (1, 2)),
        (DataType.MAX_RSS, "5"),
        (DataType.MAX_RSS, -1),
        (DataType.MAX_RSS_ID, 3),
        (DataType.PIPE, None),
        (DataType.PIPE, 2**20),
    ],
)
def test_set_info_refuses_invalid_data(kind: DataType, data: Any) -> None:
    info = create()
    with pytest.raises(JobacctError):
        set_info(info, kind, data)
    assert info == create()


def test_get_info_refuses_invalid_bytes_in_pipe() -> None:
    for data, reason in ((b"\x02\0\0\0xx", "not a packed record"), (b"\xff" * 4, "too long")):
        reader, writer = os.pipe()
        os.write(writer, data)
        with pytest.raises(JobacctError, match=reason):
            get_info(create(), DataType.PIPE, reader)
        os.close(writer)
        os.close(reader)


COUNTS = st.integers(0, 2**64 - 1)
RESOURCES = st.sampled_from(["cpu", "mem", "energy", "fs/disk", "gres/gpumem"])


@st.composite
def records(draw: st.DrawFn) -> JobacctInfo:
    info = create(TaskId(draw(st.none() | st.integers(0, 2**32)), draw(st.integers(0, 2**20))))
    info.user, info.system, info.pid = draw(COUNTS), draw(COUNTS), draw(st.integers(0, 2**22))
    for resource in draw(st.sets(RESOURCES)):
        info.update(resource, draw(COUNTS), out=draw(st.booleans()))
    return info


@given(records())
def test_record_survives_pack_and_unpack(info: JobacctInfo) -> None:
    """With every count of 64 bits."""
    assert unpack(pack(info)) == info


def test_none_packs_as_empty_record() -> None:
    """As Slurm packs a null structure."""
    assert unpack(pack(None)) == create()


@given(st.binary(max_size=200) | records().map(pack).map(lambda data: data[:-3] + b"\xc1" * 3))
def test_unpack_parses_any_bytes_or_raises_dataerror(data: bytes) -> None:
    with contextlib.suppress(DataError):
        assert isinstance(unpack(data), JobacctInfo)


@pytest.mark.parametrize(
    ("packed", "reason"),
    [([2, {"anything": 1}], "version 2 .expected 1"), ([1, {"user": -5}], "user")],
)
def test_unpack_refuses_other_version_and_negative_counts(packed: object, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        unpack(msgspec.msgpack.encode(packed))


def test_unpack_ignores_field_of_later_release() -> None:
    """Fields may be added without a new version."""
    data = msgspec.msgpack.encode([1, {"user": 5, "later": [1]}])
    assert unpack(data) == JobacctInfo(user=5)


def test_pack_refuses_count_beyond_64_bits() -> None:
    with pytest.raises(EncodeError):
        pack(JobacctInfo(user=2**64))


KIB = 1024


def task(number: int, node: int = 0, /, **readings: int) -> JobacctInfo:
    info = create(TaskId(number, node))
    for name, value in readings.items():
        info.update(name.replace("_", "/"), value)
    return info


def test_aggregate_matches_real_step_of_four_tasks_on_two_nodes() -> None:
    """Totals are of the tasks' peaks; maximum and minimum have their task and node."""
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


def test_aggregate_ignores_unset_values() -> None:
    """They are not 0, neither in a minimum nor in a total."""
    step = create()
    aggregate(step, task(0))
    aggregate(step, task(1, cpu=10))
    aggregate(step, None)
    assert step.usage_in["cpu"].min == 10
    assert step.usage_in["cpu"].min_id == TaskId(1, 0)
    assert "mem" not in step.usage_in
    assert step.tasks == 2


def test_aggregate_counts_node_counters_once_per_node() -> None:
    """Four tasks on two nodes report two nodes' energy; Slurm reports it four times."""
    step = create()
    for number in range(4):
        aggregate(step, task(number, number // 2, energy=100 + number, fs_lustre=10))
    assert step.usage_in["energy"].total == 101 + 103
    assert step.usage_in["energy"].max_id == TaskId(None, 1)
    assert step.usage_in["fs/lustre"].total == 20


def test_aggregate_is_independent_of_grouping_by_node() -> None:
    """Aggregating per node first, and the nodes then, equals aggregating all tasks at once."""
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
def test_aggregate_computes_extremes_and_sums_of_all_tasks(values: list[tuple[int, int]]) -> None:
    step = create()
    for number, (value, node) in enumerate(values):
        aggregate(step, task(number, node, cpu=value))
    if values:
        numbers = [value for value, _ in values]
        usage = step.usage_in["cpu"]
        assert (usage.max, usage.min, usage.total) == (max(numbers), min(numbers), sum(numbers))
        assert usage.max_id.task == numbers.index(max(numbers))
        assert usage.min_id.task == numbers.index(min(numbers))


def test_copy_is_independent() -> None:
    info = task(0, mem=5, energy=7)
    copy = info.copy()
    assert copy == info
    before = pack(copy)
    info.update("mem", 9)
    info.update("energy", 11)
    assert pack(copy) == before


def test_destroy_resets_record() -> None:
    """To the state after ``create()``; None is accepted."""
    info = task(3, mem=5)
    destroy(info)
    assert info == create()
    destroy(None)


@pytest.mark.parametrize("resource", ["mem", "cpu"])
def test_update_keeps_maximum(resource: str) -> None:
    """The total is the last reading, maximum and minimum are the largest so far."""
    info = task(0)
    for value in (3, 9, 4):
        info.update(resource, value)
    usage = info.usage_in[resource]
    assert (usage.total, usage.max, usage.min) == (4, 9, 9)


def test_frequency_is_weighted_by_processor_time() -> None:
    step = create()
    for milliseconds, frequency in ((1000, 1_000_000), (3000, 2_000_000)):
        info = task(0)
        info.cpu_time_weighed = milliseconds
        info.weighted_frequency = milliseconds * frequency
        aggregate(step, info)
    assert step.cpu_frequency == 1_750_000
    assert create().cpu_frequency is None


DATA = Path(__file__).parents[3] / "data" / "gather" / "sacct_steps.txt"
ROWS = list(csv.DictReader(DATA.read_text().splitlines(), delimiter="|"))
SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def _value(text: str) -> int:
    if ":" in text:
        hours, minutes, seconds = map(int, text.split(":"))
        return (hours * 3600 + minutes * 60 + seconds) * 1000
    found = re.fullmatch(r"([\d.]+)([KMG]?)", text)
    assert found, text
    return round(float(found[1]) * SIZES[found[2]])


def _list(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split(",") if pair)


def _record(row: dict[str, str], nodes: list[str]) -> JobacctInfo:
    info = create()
    info.tasks = int(row["NTasks"])
    for direction, usages in (("In", info.usage_in), ("Out", info.usage_out)):
        columns = {
            name: _list(row[f"TRESUsage{direction}{name}"])
            for name in ("Max", "MaxNode", "MaxTask", "Min", "MinNode", "MinTask", "Tot")
        }
        for resource, total in columns["Tot"].items():
            cells = {name: column.get(resource, "") for name, column in columns.items()}
            if not cells["Max"]:
                continue
            usages[resource] = Usage(
                max=_value(cells["Max"]),
                max_id=_id(cells["MaxTask"], cells["MaxNode"], nodes),
                min=_value(cells["Min"]),
                min_id=_id(cells["MinTask"], cells["MinNode"], nodes),
                total=_value(total),
            )
    return info


def _id(task: str, node: str, nodes: list[str]) -> TaskId:
    return TaskId(int(task) if task else None, nodes.index(node) if node else None)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["JobID"]))
def test_columns_equal_real_sacct(row: dict[str, str]) -> None:
    """To the last digit, except for node counters, which Slurm counts once per task."""
    nodes = list(expand(row["NodeList"]))
    found = to_sacct(_record(row, nodes), nodes)
    wrong = {"AveCPUFreq", "ConsumedEnergy", "ConsumedEnergyRaw"}
    compared = [name for name in row if name in found and name not in wrong]
    assert len(compared) > 35
    for name in compared:
        if name == "AveCPU":
            continue  # of milliseconds, which the lists do not show
        ours, theirs = found[name], row[name]
        if name.startswith("TRESUsageInAve"):
            ours, theirs = (re.sub(r"cpu=[\d:]+", "", text) for text in (ours, theirs))
        assert ours == theirs, name


def test_times_are_formatted_as_by_sacct() -> None:
    info = create(TaskId(0, 0))
    info.user, info.system = 14_493_999, 942_000
    info.update("cpu", (86400 + 3661) * 1000 + 999)
    row = to_sacct(info, ["c1"])
    assert row["UserCPU"] == "00:14.493"
    assert row["TotalCPU"] == "00:15.435"
    assert row["AveCPU"] == row["MinCPU"] == "1-01:01:01"
    info.user = 3_600_000_000
    assert to_sacct(info)["UserCPU"] == "01:00:00"


def test_frequency_and_energy_have_decimal_units() -> None:
    info = create(TaskId(0, 0))
    info.cpu_time_weighed, info.weighted_frequency = 10, 10 * 2_596_120
    info.update("energy", 10767)
    row = to_sacct(info, ["c1"])
    assert (row["AveCPUFreq"], row["ConsumedEnergy"]) == ("2.60G", "10.77K")
    assert row["ConsumedEnergyRaw"] == "10767"
    raw = to_sacct(info, ["c1"], convert=False)
    assert (raw["AveCPUFreq"], raw["ConsumedEnergy"]) == ("2596120", "10767")


def test_unset_values_are_empty_columns() -> None:
    """A step shorter than one poll has no 0 if nothing was measured."""
    row = to_sacct(create(TaskId(0, 0)), ["c1"])
    assert {row[name] for name in ("MaxRSS", "MaxRSSNode", "MaxRSSTask", "AveCPU")} == {""}
    assert row["TRESUsageInMax"] == ""
