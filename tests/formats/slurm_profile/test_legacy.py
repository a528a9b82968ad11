"""The layout of Slurm 2.6 to 14.11, generated here after Slurm's source."""

import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpipe.formats.slurm_profile.hdf5 import DamagedProfileError, ProfileError
from ccpipe.formats.slurm_profile.merge import merge
from ccpipe.formats.slurm_profile.reader import open_profile
from tests.formats.slurm_profile.samples import START, rows

TIMES = [("Date_Time", "S24"), ("Time", "<u8")]
ENERGY: Any = [*TIMES, ("Power", "<u8"), ("CPU_Frequency", "<u8")]
LUSTRE: Any = [
    *TIMES,
    ("Reads", "<u8"),
    ("Megabytes_Read", "<f8"),
    ("Writes", "<u8"),
    ("Megabytes_Write", "<f8"),
]
NETWORK: Any = [
    *TIMES,
    ("Packets_In", "<u8"),
    ("Megabytes_In", "<f8"),
    ("Packets_Out", "<u8"),
    ("Megabytes_Out", "<f8"),
]
TASK: Any = [
    *TIMES,
    ("CPU_Frequency", "<u8"),
    ("CPU_Time", "<u8"),
    ("CPU_Utilization", "<f8"),
    ("RSS", "<u8"),
    ("VM_Size", "<u8"),
    ("Pages", "<u8"),
    ("Read_Megabytes", "<f8"),
    ("Write_Megabytes", "<f8"),
]


def create(path: Path) -> Any:
    return h5py.File(path, "w", libver=("earliest", "v110"))


def node_step(path: Path) -> Path:
    samples = [
        ("Energy", ENERGY, ("", START, 200, 2600)),
        ("Lustre", LUSTRE, ("", START, 100, 10.0, 50, 5.0)),
        ("Network", NETWORK, ("", START, 7, 0.5, 9, 0.25)),
        ("Task_0", TASK, ("", START, 2600, 10, 10.0, 900, 1000, 1, 2.0, 1.0)),
        ("Energy", ENERGY, ("", START + 2, 210, 2700)),
        ("Lustre", LUSTRE, ("", START + 2, 130, 12.5, 50, 5.0)),
        ("Task_0", TASK, ("", START + 2, 2700, 13, 13.0, 950, 1100, 2, 2.5, 1.0)),
    ]
    with create(path) as file:
        node = file.create_group("Node_c1")
        node.attrs["Node Name"] = np.bytes_("c1")
        node.attrs.create("Number of Tasks", [1], dtype="<i4")
        node.attrs["Start Time"] = np.bytes_(time.ctime(START))
        for number, (series, fields, values) in enumerate(samples, 1):
            group = node.require_group(f"Time Series/{series}")
            group.attrs["Data Type"] = np.bytes_(series.partition("_")[0])
            name = f"{series}_{number:010d}"
            sample = group.create_group(name)
            sample[f"{name} Data"] = np.array([values], fields)
        node.create_group("Tasks/Task_0").attrs.create("Task Id", [0], dtype="<i4")
    return path


def test_legacy_reader_converts_samples_of_node_step(tmp_path: Path) -> None:
    """Tables have modern fields and are merged as the document specifies.

    File systems count from the first sample; task counters become changes since the previous
    sample, with the utilization computed from them; energy and network are unchanged.
    """
    with open_profile(node_step(tmp_path / "7_0_c1.h5")) as profile:
        assert profile.damage == []
        (step,) = profile.node_steps
        assert (step.step, step.node, step.job, step.tasks) == ("0", "c1", 7, 1)
        found = {
            table.series: (table.task, table.fields[2:], rows(table)) for table in profile.tables
        }
    assert found == {
        "Energy": (
            None,
            ("Power", "CPUFrequency"),
            [(0, START, 200, 2600), (2, START + 2, 210, 2700)],
        ),
        "Filesystem": (
            None,
            ("Reads", "ReadMB", "Writes", "WriteMB"),
            [(0, START, 0, 0.0, 0, 0.0), (2, START + 2, 30, 2.5, 0, 0.0)],
        ),
        "Network": (
            None,
            ("PacketsIn", "PacketsOut", "InMB", "OutMB"),
            [(0, START, 7, 9, 0.5, 0.25)],
        ),
        "Tasks": (
            "0",
            (
                "CPUFrequency",
                "CPUTime",
                "CPUUtilization",
                "RSS",
                "VMSize",
                "Pages",
                "ReadMB",
                "WriteMB",
            ),
            [
                (0, START, 2600, 0.0, 0.0, 900, 1000, 1, 0.0, 0.0),
                (2, START + 2, 2700, 3.0, 150.0, 950, 1100, 2, 0.5, 0.0),
            ],
        ),
    }


def job(path: Path, date: bytes) -> Path:
    with create(path) as file:
        node = file.create_group("Step_3/Nodes/c1")
        node.attrs["Start Time"] = np.bytes_(time.ctime(START))
        series = node.create_group("Time Series/Energy")
        series["Energy Data"] = np.array([(date, 0, 200, 5), (b"", 4, 220, 6)], ENERGY)
        totals = node.create_group("Totals/Energy")
        totals["Energy Data"] = np.zeros(1, [("Start Time", "S24"), ("Elapsed Time", "<u8")])
    return path


@pytest.mark.parametrize("date", [time.strftime("%F %T", time.localtime(START)).encode(), b""])
def test_legacy_reader_takes_times_of_job_file_from_first_sample(
    tmp_path: Path, date: bytes
) -> None:
    with open_profile(job(tmp_path / "job_7.h5", date)) as profile:
        (table,) = profile.tables
        assert table.path == "/Steps/3/Nodes/c1/Energy"
        assert rows(table) == [(0, START, 200, 5), (4, START + 4, 220, 6)]


def test_legacy_reader_reports_unknown_series_and_reads_others(tmp_path: Path) -> None:
    path = node_step(tmp_path / "7_0_c1.h5")
    with h5py.File(path, "r+") as file:
        other = file.create_group("Node_c1/Time Series/Disco")
        other.create_group("Disco_1")["Disco_1 Data"] = np.zeros(1, [("x", "<u8")])
        task = file.create_group("Node_c1/Time Series/Task_1")
        task.create_group("Task_1_2")["Task_1_2 Data"] = np.zeros(1, [("x", "<u8")])
    with open_profile(path) as profile:
        assert len(profile.tables) == 4
        assert [type(error) for error in profile.damage] == [DamagedProfileError] * 2
        assert "'Disco' is unknown" in str(profile.damage[0])
        assert "without a time" in str(profile.damage[1])


def test_merge_converts_legacy_node_steps(tmp_path: Path) -> None:
    path = node_step(tmp_path / "7_0_c1.h5")
    with open_profile(path) as profile:
        before = {table.path: rows(table) for table in profile.tables}
    merge([path], tmp_path / "job_7.h5")
    with open_profile(tmp_path / "job_7.h5") as profile:
        assert {table.path: rows(table) for table in profile.tables} == before


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("legacy")
    paths = node_step(directory / "7_0_c1.h5"), job(directory / "job_7.h5", b"2014-01-02 03:04:05")
    return {path.name: path.read_bytes() for path in paths}


@given(
    st.sampled_from(["7_0_c1.h5", "job_7.h5"]),
    st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 255)), min_size=1, max_size=8),
)
@example("7_0_c1.h5", [(65, 65)])  # the root becomes a table
def test_legacy_reader_raises_only_profile_errors_for_damaged_files(
    intact: dict[str, bytes], name: str, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(intact[name])
    for place, value in changes:
        data[place % len(data)] = value
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / name
        path.write_bytes(data)
        with contextlib.suppress(ProfileError), open_profile(path) as profile:
            for table in profile.tables:
                assert table.read().dtype.names == table.fields
