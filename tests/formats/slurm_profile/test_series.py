"""The types of series: Slurm's fields, the operations of the document, and new types."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import EncodeError
from ccpipe.formats.slurm_profile import NodeStep, extract_csv, open_profile
from ccpipe.formats.slurm_profile.output.writer import NodeStepWriter
from ccpipe.formats.slurm_profile.series import (
    SERIES,
    EnergySeries,
    FilesystemSeries,
    NetworkSeries,
    ProfileSeries,
    SeriesField,
    TasksSeries,
    difference,
    make_fields,
    series_type,
    subtract_first,
)
from tests.formats.slurm_profile.samples import DATA

SAMPLE = DATA / "node-step" / "alice" / "17_0_c1.h5"


def test_the_types_are_those_of_slurm_with_its_fields_in_its_order() -> None:
    """Records of real files have the registered fields, in the same order and types."""
    with open_profile(SAMPLE) as profile:
        found = {table.series: table.dtype for table in profile.tables}
    assert set(found) == set(SERIES) == {"Energy", "Filesystem", "Network", "Tasks"}
    for series in (EnergySeries, FilesystemSeries, NetworkSeries):
        assert found[series.name] == series.file_type()
    assert found["Tasks"] == TasksSeries.file_type(
        [f for f in TasksSeries.fields if f.name[:3] != "GPU"]
    )


def test_the_task_record_of_slurm_23_has_the_gpu_before_the_memory() -> None:
    """As Slurm 24.11 writes it."""
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
    """The sensors of a node's power have names of their own."""
    field = series_type(series).field(name)
    assert field is not None
    assert field.unit == unit


def test_unknown_series_and_fields_are_nothing_special() -> None:
    """They are read and extracted all the same."""
    assert series_type("Burst").field("Bytes") is None
    assert EnergySeries.field("Voltage") is None


def test_a_new_type_is_one_class(tmp_path: Path) -> None:
    """It is written, read and extracted without any other change."""

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
    """Before anything is written."""
    with pytest.raises(EncodeError, match="cannot name a field"):
        make_fields([(name, int) for name in names])
