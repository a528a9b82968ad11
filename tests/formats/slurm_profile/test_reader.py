"""Opening profiles: contents, other files and damage."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.slurm_profile.hdf5 import (
    DamagedProfileError,
    ForeignProfileError,
    ProfileError,
)
from ccpipe.formats.slurm_profile.reader import Profile, open_profile
from ccpipe.formats.slurm_profile.table import NodeStep
from tests.formats.slurm_profile.samples import DATA, MERGED, read_contents, write_node_step

SAMPLE = DATA / "node-step" / "alice" / "3_0_c1.h5"


def flatten(group: dict[str, Any], path: str = "") -> dict[str, list[list[float]]]:
    found = {f"{path}/{name}": item["rows"] for name, item in group["datasets"].items()}
    for name, inner in group["groups"].items():
        found |= flatten(inner, f"{path}/{name}")
    return found


def test_profile_reads_node_step_from_name_and_attributes() -> None:
    with open_profile(SAMPLE) as profile:
        assert profile.node_steps == [
            NodeStep(
                step="0",
                node="c1",
                job=3,
                node_index=0,
                tasks=2,
                cpus_per_task=1,
                start_time="Fri Nov 20 10:33:34 2026",
            )
        ]
        names = [(table.series, table.task, len(table)) for table in profile.tables]
        assert names == [
            ("Energy", None, 29),
            ("Filesystem", None, 29),
            ("Network", None, 29),
            ("Tasks", "0", 29),
            ("Tasks", "1", 28),
        ]
        assert (profile.damage, profile.closed) == ([], None)


@pytest.mark.parametrize(
    ("path", "oracle", "cut"),
    [(SAMPLE, "3_0_c1.json", "/Steps/0/Nodes"), (DATA / "merged" / "job_17.h5", "job_17.json", "")],
)
def test_profile_rows_equal_dump(path: Path, oracle: str, cut: str) -> None:
    expected = flatten(json.loads((DATA / "json" / oracle).read_text()))
    with open_profile(path) as profile:
        found = {
            table.path.removeprefix(cut): [list(row) for row in table.read().tolist()]
            for table in profile.tables
        }
    assert found == expected


def test_profile_lists_steps_in_order_of_names() -> None:
    """Like libhdf5; steps without a series have no table of it."""
    with open_profile(DATA / "merged" / "job_3.h5") as profile:
        steps = [(step.step, step.node, step.job) for step in profile.node_steps]
        without = {table.node_step.step for table in profile.tables if table.task is None} - {
            table.node_step.step for table in profile.tables if table.task is not None
        }
    assert steps == [
        ("0", "c1", None),
        ("0", "c2", None),
        ("1", "c1", None),
        ("2", "c1", None),
        ("3", "c2", None),
        ("4", "c1", None),
        ("4", "c2", None),
        ("5", "c1", None),
        ("batch", "c1", None),
    ]
    assert without == {"4", "5"}


def test_profile_lists_node_step_without_samples() -> None:
    with open_profile(DATA / "requeue-before" / "22_0_c1.h5") as profile:
        assert [step.start_time for step in profile.node_steps] == ["Fri Nov 20 10:37:11 2026"]
        assert profile.tables == []


def test_profile_rejects_other_hdf5_files(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w", libver=("earliest", "v110")) as file:
        file.create_group("results")["x"] = np.arange(5)
    with pytest.raises(ForeignProfileError, match="/results/x: not a time series"):
        open_profile(tmp_path / "other.h5")
    with h5py.File(tmp_path / "other.h5", "w", libver=("earliest", "v110")) as file:
        file.create_group("results")
    with pytest.raises(ForeignProfileError, match="not a profile"):
        open_profile(tmp_path / "other.h5")


def test_profile_reads_tables_next_to_damage(tmp_path: Path) -> None:
    with h5py.File(SAMPLE) as file:
        energy = h5py.h5o.get_info(file["c1/Energy"].id).addr
    data = bytearray(SAMPLE.read_bytes())
    data[energy] = 99
    (tmp_path / "3_0_c1.h5").write_bytes(data)
    with open_profile(tmp_path / "3_0_c1.h5") as profile:
        assert [table.series for table in profile.tables] == [
            *("Filesystem", "Network", "Tasks", "Tasks")
        ]
        (error,) = profile.damage
    assert isinstance(error, DamagedProfileError)
    assert error.where == "/c1/Energy"


def test_profile_reports_missing_chunks_and_reads_others(tmp_path: Path) -> None:
    whole = read_contents(SAMPLE)
    data = SAMPLE.read_bytes()
    (tmp_path / "3_0_c1.h5").write_bytes(data[:-300])
    with open_profile(tmp_path / "3_0_c1.h5") as profile:
        assert profile.damage
        assert "rows are missing" in str(profile.damage[0])
        for table in profile.tables:
            assert whole[f"0 {table.path}"][1].startswith(table.read().tobytes())


@given(
    st.sampled_from([SAMPLE, MERGED[1]]),
    st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 255)), max_size=6),
    st.integers(0, 40_000),
)
def test_profile_raises_only_profile_errors_for_damaged_files(
    source: Path, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(source.read_bytes())
    for place, value in changes:
        data[place % len(data)] = value
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "3_0_c1.h5"
        path.write_bytes(data[: len(data) - (cut if cut % 3 == 0 else 0)])
        try:
            profile: Profile | None = open_profile(path)
        except ProfileError:
            profile = None
        for table in profile.tables if profile else ():
            damage: list[DamagedProfileError] = []
            rows = sum(len(block) for block in table.blocks(damage=damage))
            assert rows <= len(table)


def test_profile_is_not_affected_by_truncation_of_open_file(tmp_path: Path) -> None:
    """Slurm truncates files when a job is requeued."""
    path = write_node_step(tmp_path / "5_0_c1.h5")
    before = read_contents(path)
    with open_profile(path) as profile:
        path.write_bytes(b"")
        rows = {f"0 {table.path}": table.read().tobytes() for table in profile.tables}
    assert rows == {name: data for name, (_, data) in before.items()}


def test_profile_of_unknown_name_has_no_step(tmp_path: Path) -> None:
    shutil.copy(SAMPLE, tmp_path / "copy.h5")
    with open_profile(tmp_path / "copy.h5") as profile:
        assert [(step.step, step.node, step.job) for step in profile.node_steps] == [
            ("", "c1", None)
        ]
