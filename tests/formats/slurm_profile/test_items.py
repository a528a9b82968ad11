"""One field of all tables side by side."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm_profile import items as items_module
from ccpipe.formats.slurm_profile.items import (
    ItemRow,
    align_item,
    find_peaks,
    item_csv,
    list_names,
    sh5util_item_csv,
    zip_item,
)
from ccpipe.formats.slurm_profile.reader import open_profile
from ccpipe.formats.slurm_profile.table import Table
from tests.formats.slurm_profile.samples import DATA, START, table_of


def power(node: str, values: dict[int, int], step: str = "0") -> Table:
    times = [START + second for second in values]
    columns = {"Power": list(values.values()), "EpochTime": times, "ElapsedTime": list(values)}
    return table_of("Energy", columns, node=node, step=step)


def summary(row: ItemRow) -> tuple[object, ...]:
    return (
        row.elapsed,
        row.min_table,
        row.min,
        row.max_table,
        row.max,
        row.sum,
        row.average,
        row.count,
    )


def test_item_rows_are_aligned_by_time() -> None:
    tables = [power("c1", {0: 10, 1: 20, 2: 30}), power("c2", {1: 5, 3: 7})]
    assert [summary(row) for row in align_item(tables, "power")] == [
        (0, "c1", 10, "c1", 10, 10, 10.0, 1),
        (1, "c2", 5, "c1", 20, 25, 12.5, 2),
        (2, "c1", 30, "c1", 30, 30, 30.0, 1),
        (3, "c2", 7, "c2", 7, 7, 7.0, 1),
    ]


def test_item_interval_joins_samples_out_of_phase() -> None:
    begin = -START % 30
    tables = [power("c1", {begin: 1, begin + 30: 2}), power("c2", {begin + 7: 3, begin + 37: 4})]
    rows = list(align_item(tables, "Power", interval=30))
    assert [(row.time, row.sum, row.count) for row in rows] == [
        (START + begin, 4, 2),
        (START + begin + 30, 6, 2),
    ]


def test_item_uses_last_non_missing_sample() -> None:
    """Most tables have duplicates at both ends."""
    table = table_of("Energy", {"Power": [1, 2, 2**64 - 1], "EpochTime": [START, START, START + 1]})
    assert [(row.time, row.values) for row in align_item([table], "Power")] == [(START, {"c1": 2})]


def test_item_csv_has_column_per_table_of_all_steps() -> None:
    tables = [power("c1", {0: 10, 1: 20}), power("c2", {1: 5}), power("c9", {0: 1}, step="batch")]
    lines = b"".join(item_csv(align_item(tables, "Power"), list_names(tables))).decode()
    assert lines.splitlines() == [
        "Step,ElapsedTime,EpochTime,MinNode,MinValue,MaxNode,MaxValue,Sum,Avg,NumNodes,c1,c2,c9",
        f"0,0,{START},c1,10,c1,10,10,10.000000,1,10,,",
        f"0,1,{START + 1},c2,5,c1,20,25,12.500000,2,20,5,",
        f"batch,0,{START},c9,1,c9,1,1,1.000000,1,,,1",
    ]


def test_item_rows_can_be_zipped_like_sh5util() -> None:
    """By row number, regardless of time; an ended table shows 0 and does not count."""
    tables = [power("c1", {0: 10, 1: 20, 2: 30}), power("c2", {1: 5, 3: 7})]
    assert b"".join(sh5util_item_csv(zip_item(tables, "Power"), tables)).decode().splitlines() == [
        "Step,ElaspedTime,MinNode,MinValue,MaxNode,MaxValue,Sum,Avg,NumNodes,Energy c1,Energy c2",
        "0,1,c2,5,c1,10,15,7.500000,2,10,5",
        "0,3,c2,7,c1,20,27,13.500000,2,20,7",
        "0,2,c1,30,c1,30,30,30.000000,1,30,0",
    ]


def test_item_names_tasks_with_node() -> None:
    with open_profile(DATA / "merged" / "job_3.h5") as profile:
        tables = [t for t in profile.tables if t.task and t.node_step.step == "0"]
        assert list_names(tables) == ["0 c1", "1 c1", "2 c2", "3 c2"]
        extracted = csv.DictReader(
            (DATA / "csv" / "job_3.E.Tasks.step0.csv").read_text().splitlines()
        )
        expected = {
            (int(row["EpochTime"]), f"{row['Series']} {row['Node']}"): float(row["CPUTime"])
            for row in extracted
            if row["Step"] == "0"
        }
        found = {
            (row.time, name): round(value, 6)
            for row in align_item(tables, "CPUTIME")
            for name, value in row.values.items()
        }
        assert found == expected
        last = list(zip_item(tables, "RSS"))[-1]
        assert (last.count, last.values["1 c1"]) == (2, 0)


def test_item_peaks_print_like_sh5util() -> None:
    tables = [power("c1", {0: 10, 1: 20, 2: 15}), power("c1", {0: 0}, step="1")]
    assert [peak.text("Power") for peak in find_peaks(zip_item(tables, "Power"))] == [
        "    Step 0 Maximum accumulated Power Value (20) occurred at Time=1, Ave Node 20.000000",
        "    Step 1 Maximum accumulated Power Value (0) occurred at Time=0, Ave Node 0.000000",
    ]


def test_item_rejects_unknown_field() -> None:
    with pytest.raises(DataError, match="no table has the field 'Nonexist'"):
        list(align_item([power("c1", {0: 1})], "Nonexist"))
    other = table_of("Energy", {"Power": [1.5]}, node="c2")
    with pytest.raises(DataError, match="integer in some tables"):
        list(zip_item([power("c1", {0: 1}), other], "Power"))
    assert list(align_item([], "Power")) == []


values = st.integers(0, 2**63).filter(lambda value: value != 17_592_186_044_415)  # a sentinel
samples = st.dictionaries(st.integers(0, 400), values, max_size=40)


@given(st.lists(samples, min_size=1, max_size=4), st.integers(1, 50))
def test_item_rows_do_not_depend_on_block_size(nodes: list[dict[int, int]], interval: int) -> None:
    tables = [power(f"c{n}", dict(sorted(node.items()))) for n, node in enumerate(nodes)]
    expected: dict[int, dict[str, int]] = {}
    for number, node in enumerate(nodes):
        for second, value in sorted(node.items()):
            slot = (START + second) // interval * interval
            expected.setdefault(slot, {})[f"c{number}"] = value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(items_module, "MIN_BLOCK", 3)
        patch.setattr(items_module, "ROWS_IN_MEMORY", 1)
        rows = list(align_item(tables, "Power", interval=interval))
    assert [(row.time, row.values) for row in rows] == sorted(expected.items())
    for row in rows:
        assert row.sum == sum(row.values.values())
        assert (row.min, row.max) == (min(row.values.values()), max(row.values.values()))
