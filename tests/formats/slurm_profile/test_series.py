"""The types of series: Slurm's fields, the operations of the document, and new types."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import EncodeError
from ccpipe.formats.slurm_profile.extract import extract_csv
from ccpipe.formats.slurm_profile.reader import open_profile
from ccpipe.formats.slurm_profile.series import (
    INFINITE_MEBIBYTES,
    SERIES,
    EnergySeries,
    FieldTotal,
    FilesystemSeries,
    NetworkSeries,
    ProfileSeries,
    SeriesField,
    TasksSeries,
    difference,
    find_missing,
    make_fields,
    series_type,
    subtract_first,
)
from ccpipe.formats.slurm_profile.table import NodeStep
from ccpipe.formats.slurm_profile.writer import NodeStepWriter
from tests.formats.slurm_profile.samples import DATA

SAMPLE = DATA / "node-step" / "alice" / "17_0_c1.h5"


def test_the_types_are_those_of_slurm_with_its_fields_in_its_order() -> None:
    with open_profile(SAMPLE) as profile:
        found = {table.series: table.dtype for table in profile.tables}
    assert set(found) == set(SERIES) == {"Energy", "Filesystem", "Network", "Tasks"}
    for series in (EnergySeries, FilesystemSeries, NetworkSeries):
        assert found[series.name] == series.file_type()
    assert found["Tasks"] == TasksSeries.file_type(
        [f for f in TasksSeries.fields if f.name[:3] != "GPU"]
    )


def test_the_task_record_of_slurm_23_has_the_gpu_before_the_memory() -> None:
    assert TasksSeries.file_type().names == (
        *("ElapsedTime", "EpochTime", "CPUFrequency", "CPUTime", "CPUUtilization"),
        *("GPUMemMB", "GPUUtilization", "RSS", "VMSize", "Pages", "ReadMB", "WriteMB"),
    )
    assert TasksSeries.file_type().itemsize == 96


@pytest.mark.parametrize(
    ("series", "name", "unit"),
    [
        ("Energy", "Power", "W"),
        ("Energy", "GPU3Power", "W"),
        ("Energy", "Energy", "J"),
        ("Tasks", "RSS", "KiB"),
        ("Tasks", "Pages", ""),
        ("Network", "InMB", "MiB"),
    ],
)
def test_fields_say_their_unit(series: str, name: str, unit: str) -> None:
    field = series_type(series).field(name)
    assert field is not None
    assert field.unit == unit


def test_unknown_series_and_fields_are_nothing_special() -> None:
    assert series_type("Burst").field("Bytes") is None
    assert EnergySeries.field("Voltage") is None


def test_a_new_type_is_one_class(tmp_path: Path) -> None:
    class Scratch(ProfileSeries):
        """A made-up series."""

        name = "Scratch"
        legacy_name = "Scratch"
        fields = (
            SeriesField("Files", int, ""),
            SeriesField("UsedMB", float, "MiB"),
        )

    try:
        path = tmp_path / "1_0_c1.h5"
        with NodeStepWriter(path, NodeStep(step="0", node="c1"), start=1000) as writer:
            writer.append("Scratch", {"Files": 7, "UsedMB": 1.5}, 1001)
            writer.append("Scratch", {"Files": 8}, 1002)
        with open_profile(path) as profile:
            assert profile.tables[0].type is Scratch
            text = b"".join(extract_csv(profile.tables))
        assert text == (
            b"Step,Node,ElapsedTime,EpochTime,Files,UsedMB\n"
            b"0,c1,1,1001,7,1.500000\n0,c1,2,1002,8,\n"
        )
    finally:
        del SERIES["Scratch"]


counters = st.lists(st.integers(0, 2**64 - 1), max_size=20)


@given(counters)
def test_differences_add_up_to_what_was_counted(values: list[int]) -> None:
    """Where a counter falls it was reset, and began again at 0."""
    rows = np.zeros(len(values), FilesystemSeries.file_type())
    rows["Reads"] = values
    found = difference(rows, ["Reads"])["Reads"].tolist()
    expected = [new - old if new >= old else new for old, new in itertools.pairwise(values)]
    assert found == ([0, *expected] if values else [])


@given(counters)
def test_the_first_sample_is_subtracted_from_all(values: list[int]) -> None:
    """The document's operation for file systems; no value wraps around below 0."""
    rows = np.zeros(len(values), FilesystemSeries.file_type())
    rows["Writes"] = values
    found = subtract_first(rows, ["Writes"])["Writes"].tolist()
    assert found == [max(value - values[0], 0) for value in values]
    assert rows["Writes"].tolist() == values


def test_legacy_task_samples_become_changes_with_their_utilization() -> None:
    """What a task has used so far becomes what it used since the sample before."""
    rows = np.zeros(4, TasksSeries.file_type())
    rows["EpochTime"] = [10, 12, 12, 16]
    rows["CPUTime"] = [5, 6, 7, 9]
    rows["CPUUtilization"] = [5, 6, 7, 9]
    rows["ReadMB"] = [1.0, 1.5, 1.5, 4.0]
    rows["RSS"] = [100, 90, 80, 70]
    found = TasksSeries.merge(rows)
    assert found["CPUTime"].tolist() == [0, 1, 1, 2]
    assert found["CPUUtilization"].tolist() == [0, 50, 0, 50]
    assert found["ReadMB"].tolist() == [0, 0.5, 0, 2.5]
    assert found["RSS"].tolist() == [100, 90, 80, 70]


@pytest.mark.parametrize("names", [[""], ["a,b"], ["x", "x"], ["EpochTime"], ["tab\t"]])
def test_fields_need_names_that_a_table_can_have(names: list[str]) -> None:
    with pytest.raises(EncodeError, match="cannot name a field"):
        make_fields([(name, int) for name in names])


SENTINELS = [2**64 - 1, 2**64 - 2, 17_592_186_044_415]


@pytest.mark.parametrize("value", SENTINELS)
def test_sentinels_are_missing_as_integers_and_as_floating_point_numbers(value: int) -> None:
    assert find_missing(np.array([0, value, 5], "<u8"), mebibytes=False).tolist() == [0, 1, 0]
    assert find_missing(np.array([0, value, 5], "<f8"), mebibytes=False).tolist() == [0, 1, 0]
    assert find_missing(np.array([float("nan"), float("inf")]), mebibytes=False).all()


def test_memory_that_was_never_set_is_missing() -> None:
    """A number of MiB above all bytes there can be, as Slurm 24.11 left it in GPUMemMB."""
    values = np.array([13_777_113_939_066_564_900, INFINITE_MEBIBYTES, 40_000], "<u8")
    assert find_missing(values, mebibytes=True).tolist() == [True, True, False]


@given(st.lists(st.integers(0, 2**43)), st.booleans())
def test_all_other_numbers_are_values(values: list[int], mebibytes: bool) -> None:
    assert not find_missing(np.array(values, "<u8"), mebibytes=mebibytes).any()
    assert not find_missing(np.array(values, "<f8"), mebibytes=mebibytes).any()


numbers = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=30)


def total(values: list[int] | list[float], kind: str, cut: int = 0) -> FieldTotal:
    rows = np.zeros(len(values), [("x", kind)])
    rows["x"] = values
    return EnergySeries.total([rows[:cut], rows[cut:]], ["x"], raw=True)["x"]


@given(numbers, st.integers(0, 30))
def test_integers_are_exact(values: list[int], cut: int) -> None:
    found = total(values, "<u8", cut)
    assert found == FieldTotal(min(values), max(values), sum(values), len(values))


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=30), st.integers(0, 30))
def test_floating_point_numbers_are_added_one_after_another(values: list[float], cut: int) -> None:
    """As sh5util adds them: the last digits are the same. Negative maxima are what they are."""
    added = 0.0
    for value in values:
        added += value
    assert total(values, "<f8", cut) == FieldTotal(min(values), max(values), added, len(values))


@given(numbers, st.integers(0, 30))
def test_totals_of_parts_join_to_that_of_the_whole(values: list[int], cut: int) -> None:
    parts = [total(part, "<u8") if part else FieldTotal() for part in (values[:cut], values[cut:])]
    assert parts[0].join(parts[1]) == total(values, "<u8")
    assert FieldTotal().average is None
