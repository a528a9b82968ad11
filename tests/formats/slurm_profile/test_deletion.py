"""Input of a merge that must not be deleted."""

import fcntl
from pathlib import Path

import pytest

from ccpipe.formats.slurm_profile import NodeStep, open_profile
from ccpipe.formats.slurm_profile.deletion import delete_merged
from ccpipe.formats.slurm_profile.merge import merge
from ccpipe.formats.slurm_profile.output.writer import NodeStepWriter
from tests.formats.slurm_profile.samples import START, write_node_step


@pytest.fixture
def merged(tmp_path: Path) -> tuple[Path, Path]:
    """Make a node-step file and its merge."""
    path = write_node_step(tmp_path / "5_0_c1.h5")
    merge([path], tmp_path / "job_5.h5")
    return path, tmp_path / "job_5.h5"


def why_kept(path: Path, output: Path, *, touched: bool = False) -> str:
    """Ask for a deletion; return why it was not done."""
    with open_profile(path) as profile, open_profile(output) as job:
        identity = profile.identity
        if touched:
            identity = (*identity[:3], 0)
        return delete_merged(path, identity, job)


def test_what_is_in_the_output_to_the_last_bit_goes(merged: tuple[Path, Path]) -> None:
    """Every table was read back and compared."""
    assert why_kept(*merged) == ""
    assert not merged[0].exists()


def test_a_file_that_is_being_written_stays(tmp_path: Path) -> None:
    """By ccpipe's writer, which marks it when it is complete."""
    path = tmp_path / "5_0_c1.h5"
    with NodeStepWriter(path, NodeStep(step="0", node="c1"), start=START) as writer:
        writer.append("Energy", {"Power": 1}, START)
        writer.flush()
        report = merge([path], tmp_path / "job_5.h5", delete_inputs=True)
    assert report.kept == {path: "its writer has not finished it"}
    assert path.exists()


def test_a_locked_file_stays(merged: tuple[Path, Path]) -> None:
    """libhdf5 in Slurm's plug-in locks what it writes."""
    with merged[0].open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert why_kept(*merged) == "a process has it open for writing"
    assert merged[0].exists()


def test_a_file_that_changed_since_it_was_merged_stays(merged: tuple[Path, Path]) -> None:
    """Even where all its rows are there."""
    assert why_kept(*merged, touched=True) == "it was written to meanwhile"
    assert merged[0].exists()


@pytest.mark.parametrize("rows", [29, 31])
def test_other_rows_than_those_of_the_output_stay(merged: tuple[Path, Path], rows: int) -> None:
    """More of them, or less, of the same step."""
    merged[0].unlink()
    write_node_step(merged[0], rows=rows)
    assert "other rows in /Steps/0/Nodes/c1/Energy" in why_kept(*merged)
    assert merged[0].exists()


def test_a_step_that_the_output_does_not_have_stays(merged: tuple[Path, Path]) -> None:
    """Another node, or the same at another time."""
    other = write_node_step(merged[0].with_name("5_0_c2.h5"))
    assert why_kept(other, merged[1]) == "the output does not have step 0 of c2"
    later = write_node_step(merged[0], start=START + 500)
    assert why_kept(later, merged[1]) == "the output does not have step 0 of c1"
    assert other.exists()
    assert later.exists()


def test_steps_that_were_not_chosen_stay(tmp_path: Path) -> None:
    """They are in no output."""
    paths = [write_node_step(tmp_path / f"5_{step}_c1.h5") for step in range(2)]
    report = merge(paths, tmp_path / "job_5.h5", steps=["1"], delete_inputs=True)
    assert report.deleted == [paths[1]]
    assert report.kept == {paths[0]: "the output does not have step 0 of c1"}
