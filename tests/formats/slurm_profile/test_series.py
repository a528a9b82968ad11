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


def test_series_types_equal_slurm() -> None:
    with open_profile(SAMPLE) as profile:
        found = {table.series: table.dtype for table in profile.tables}
    assert set(found) == set(SERIES) == {"Energy", "Filesystem", "Network", "Tasks"}
    for series in (EnergySeries, FilesystemSeries, NetworkSeries):
        assert found[series.name] == series.file_type()
    assert found["Tasks"] == TasksSeries.file_type(
        [f for f in TasksSeries.fields if f.name[:3] != "GPU"]
    )


def test_series_task_record_of_slurm_23_has_gpu_before_memory() -> None:
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
def test_series_fields_have_units(series: str, name: str, unit: str) -> None:
    field = series_type(series).field(name)
    assert field is not None
    assert field.unit == unit


def test_series_type_accepts_unknown_names() -> None:
    assert series_type("Burst").field("Bytes") is None
    assert EnergySeries.field("Voltage") is None


def test_series_type_is_registered_by_subclass(tmp_path: Path) -> None:
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
def test_difference_sums_to_counter(values: list[int]) -> None:
    """A decreased counter was reset to 0."""
    rows = np.zeros(len(values), FilesystemSeries.file_type())
    rows["Reads"] = values
    found = difference(rows, ["Reads"])["Reads"].tolist()
    expected = [new - old if new >= old else new for old, new in itertools.pairwise(values)]
    assert found == ([0, *expected] if values else [])


@given(counters)
def test_subtract_first_applies_to_all_samples(values: list[int]) -> None:
    """The document's operation for file systems; values do not wrap around below 0."""
    rows = np.zeros(len(values), FilesystemSeries.file_type())
    rows["Writes"] = values
    found = subtract_first(rows, ["Writes"])["Writes"].tolist()
    assert found == [max(value - values[0], 0) for value in values]
    assert rows["Writes"].tolist() == values


def test_task_merge_computes_changes_and_utilization() -> None:
    """Counters become changes since the previous sample."""
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
def test_make_fields_rejects_invalid_names(names: list[str]) -> None:
    with pytest.raises(EncodeError, match="cannot name a field"):
        make_fields([(name, int) for name in names])


SENTINELS = [2**64 - 1, 2**64 - 2, 17_592_186_044_415]


@pytest.mark.parametrize("value", SENTINELS)
def test_find_missing_detects_integer_and_float_sentinels(value: int) -> None:
    assert find_missing(np.array([0, value, 5], "<u8"), mebibytes=False).tolist() == [0, 1, 0]
    assert find_missing(np.array([0, value, 5], "<f8"), mebibytes=False).tolist() == [0, 1, 0]
    assert find_missing(np.array([float("nan"), float("inf")]), mebibytes=False).all()


def test_find_missing_detects_unset_memory() -> None:
    """MiB above 2^64 bytes, as left by Slurm 24.11 in GPUMemMB."""
    values = np.array([13_777_113_939_066_564_900, INFINITE_MEBIBYTES, 40_000], "<u8")
    assert find_missing(values, mebibytes=True).tolist() == [True, True, False]


@given(st.lists(st.integers(0, 2**43)), st.booleans())
def test_find_missing_accepts_all_other_numbers(values: list[int], mebibytes: bool) -> None:
    assert not find_missing(np.array(values, "<u8"), mebibytes=mebibytes).any()
    assert not find_missing(np.array(values, "<f8"), mebibytes=mebibytes).any()


numbers = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=30)


def total(values: list[int] | list[float], kind: str, cut: int = 0) -> FieldTotal:
    rows = np.zeros(len(values), [("x", kind)])
    rows["x"] = values
    return EnergySeries.total([rows[:cut], rows[cut:]], ["x"], raw=True)["x"]


@given(numbers, st.integers(0, 30))
def test_totals_of_integers_are_exact(values: list[int], cut: int) -> None:
    found = total(values, "<u8", cut)
    assert found == FieldTotal(min(values), max(values), sum(values), len(values))


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=30), st.integers(0, 30))
def test_totals_add_floats_in_sequence(values: list[float], cut: int) -> None:
    """Like sh5util, to the last digit. Maxima may be negative."""
    added = 0.0
    for value in values:
        added += value
    assert total(values, "<f8", cut) == FieldTotal(min(values), max(values), added, len(values))


@given(numbers, st.integers(0, 30))
def test_totals_of_parts_join_to_total(values: list[int], cut: int) -> None:
    parts = [total(part, "<u8") if part else FieldTotal() for part in (values[:cut], values[cut:])]
    assert parts[0].join(parts[1]) == total(values, "<u8")
    assert FieldTotal().average is None
