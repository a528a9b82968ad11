"""Merging node-step files."""

import fcntl
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError, UnavailableError
from ccpipe.formats.slurm_profile import merge as merge_module
from ccpipe.formats.slurm_profile.hdf5 import DamagedProfileError, LiveProfileError, ProfileError
from ccpipe.formats.slurm_profile.merge import (
    NodeStepSpan,
    count_runs,
    delete_merged,
    exclusive_draft,
    find_node_steps,
    merge,
)
from ccpipe.formats.slurm_profile.reader import last_runs, open_profile
from ccpipe.formats.slurm_profile.table import NodeStep
from ccpipe.formats.slurm_profile.writer import NodeStepWriter
from tests.formats.slurm_profile.samples import (
    DATA,
    START,
    contents,
    read_contents,
    rows,
    write_node_step,
)

ALICE = DATA / "node-step" / "alice"
BOB = DATA / "node-step" / "bob"


def copy(directory: Path, paths: list[Path]) -> list[Path]:
    directory.mkdir(exist_ok=True)
    return [Path(shutil.copy(path, directory / path.name)) for path in paths]


@pytest.mark.parametrize("job", [3, 13, 17])
def test_merge_keeps_node_steps_unchanged(tmp_path: Path, job: int) -> None:
    report = merge(find_node_steps(ALICE, job), tmp_path / f"job_{job}.h5")
    with (
        open_profile(tmp_path / f"job_{job}.h5") as ours,
        open_profile(DATA / "merged" / f"job_{job}.h5") as theirs,
    ):
        assert contents(ours) == contents(theirs)
        assert ours.node_steps == theirs.node_steps
    assert report.changed
    assert (report.failures, len(report.node_steps)) == ([], len(report.added))


def test_merge_reopens_files_beyond_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merge(find_node_steps(ALICE, 3), tmp_path / "held.h5")
    monkeypatch.setattr(merge_module, "MAX_FILES", 1)
    merge(find_node_steps(ALICE, 3), tmp_path / "again.h5")
    assert (tmp_path / "again.h5").read_bytes() == (tmp_path / "held.h5").read_bytes()


def test_merge_writes_numbers_of_steps_and_nodes(tmp_path: Path) -> None:
    """sh5util omits the number of nodes of the last step."""
    merge(find_node_steps(ALICE, 3), tmp_path / "job_3.h5")
    with h5py.File(tmp_path / "job_3.h5") as file:
        assert file.attrs["Number of Steps"].tolist() == [7]
        nodes = {
            name: step.attrs["Number of Nodes"].tolist() for name, step in file["Steps"].items()
        }
    assert nodes == {
        name: [2 if name in "04" else 1] for name in ("0", "1", "2", "3", "4", "5", "batch")
    }


def test_merge_is_idempotent(tmp_path: Path) -> None:
    output = tmp_path / "job_3.h5"
    merge(find_node_steps(ALICE, 3), output)
    before = output.read_bytes(), output.stat().st_mtime_ns, output.stat().st_ino
    report = merge(find_node_steps(ALICE, 3), output)
    assert not report.changed
    assert len(report.node_steps) == 9
    assert (output.read_bytes(), output.stat().st_mtime_ns, output.stat().st_ino) == before
    assert [path.name for path in tmp_path.iterdir()] == ["job_3.h5"]


def test_merge_adds_later_steps(tmp_path: Path) -> None:
    all_at_once, output = tmp_path / "all.h5", tmp_path / "job_3.h5"
    paths = find_node_steps(ALICE, 3)
    merge(paths, all_at_once)
    for path in reversed(paths):
        report = merge([path], output)
        assert len(report.added) == 1
    assert read_contents(output) == read_contents(all_at_once)
    assert output.read_bytes() == all_at_once.read_bytes()


def test_merge_replaces_node_step_by_longer_file(tmp_path: Path) -> None:
    path = write_node_step(tmp_path / "5_0_c1.h5", rows=10)
    merge([path], tmp_path / "job_5.h5")
    path.unlink()
    write_node_step(path, rows=25)
    report = merge([path], tmp_path / "job_5.h5")
    assert len(report.added) == len(report.node_steps) == 1
    with open_profile(tmp_path / "job_5.h5") as profile:
        assert {len(table) for table in profile.tables} == {25}


def test_merge_separates_runs_of_requeued_job(tmp_path: Path) -> None:
    """sh5util mixes both runs' nodes in a step; the last run is where it looks."""
    merge(find_node_steps(BOB, 22), tmp_path / "job_22.h5")
    with open_profile(tmp_path / "job_22.h5") as profile:
        found = {(step.run, step.step, step.node) for step in profile.node_steps}
        last = {table.node_step.node for table in last_runs(profile.tables)}
        both = {table.node_step.node for table in profile.tables}
    assert found == {(0, "0", "c3"), (0, "batch", "c3"), (1, "0", "c1"), (1, "batch", "c1")}
    assert (last, both) == ({"c1"}, {"c1", "c3"})
    with h5py.File(tmp_path / "job_22.h5") as file:
        assert list(file["Steps/0/Nodes"]) == ["c1"]
        assert list(file["Runs/0/Steps/0/Nodes"]) == ["c3"]


def test_merge_moves_earlier_run_aside(tmp_path: Path) -> None:
    output = tmp_path / "job_22.h5"
    merge([BOB / "22_0_c3.h5", BOB / "22_batch_c3.h5"], output)
    assert {step.run for step in merge([], output).node_steps} == {0}
    merge([BOB / "22_0_c1.h5", BOB / "22_batch_c1.h5"], output)
    merge(find_node_steps(BOB, 22), tmp_path / "all.h5")
    assert read_contents(output) == read_contents(tmp_path / "all.h5")


def test_merge_keeps_earlier_run_on_same_node(tmp_path: Path) -> None:
    """The writer renames the file of the first run; Slurm overwrites it."""
    path = tmp_path / "5_0_c1.h5"
    write_node_step(path, rows=3)
    write_node_step(path, rows=4, start=START + 1000)
    merge(find_node_steps(tmp_path, 5), tmp_path / "job_5.h5")
    with open_profile(tmp_path / "job_5.h5") as profile:
        lengths = {table.node_step.run: len(table) for table in profile.tables}
    assert lengths == {0: 3, 1: 4}


def test_merge_skips_unreadable_file(tmp_path: Path) -> None:
    paths = copy(tmp_path / "in", find_node_steps(ALICE, 3))
    shutil.copy(DATA / "live" / "35_0_c1.h5", paths[0])
    paths[1].write_bytes(b"garbage")
    report = merge([*paths, tmp_path / "in" / "3_9_c1.h5"], tmp_path / "job_3.h5")
    assert len(report.added) == 7
    live, foreign, missing = report.failures
    assert isinstance(live, LiveProfileError)
    assert isinstance(foreign, ProfileError)
    assert isinstance(missing, FileNotFoundError)


def test_merge_keeps_intact_parts_of_damaged_file(tmp_path: Path) -> None:
    path = write_node_step(tmp_path / "5_0_c1.h5", rows=50, tasks=1)
    whole = read_contents(path)
    with h5py.File(path) as file:
        bad = file["c1/Energy"].id.get_chunk_info(2)
    data = bytearray(path.read_bytes())
    data[bad.byte_offset + 20] ^= 255
    path.write_bytes(data)
    report = merge([path], tmp_path / "job_5.h5", delete_inputs=True)
    assert [str(error).split(": ")[1:3] for error in report.failures] == [["/c1/Energy", "row 20"]]
    with open_profile(tmp_path / "job_5.h5") as profile:
        power = profile.tables[0].read()["Power"].tolist()
        tasks = profile.tables[1]
        assert power == [*range(100, 120), *range(130, 150)]
        assert tasks.read().tobytes() == whole["0 /Steps/0/Nodes/c1/Tasks/0"][1]
    assert path.exists()


def test_merge_without_input_writes_no_file(tmp_path: Path) -> None:
    """Unlike sh5util, which leaves an empty output for a running job."""
    report = merge([DATA / "live" / "35_0_c1.h5"], tmp_path / "job_35.h5")
    assert (report.changed, len(report.failures)) == (False, 1)
    assert list(tmp_path.iterdir()) == []


def test_merge_rejects_files_of_two_jobs(tmp_path: Path) -> None:
    """Array tasks and components of a het job have a file each."""
    with pytest.raises(DataError, match=r"jobs \[3, 17\]"):
        merge([ALICE / "3_0_c1.h5", ALICE / "17_0_c1.h5"], tmp_path / "job.h5")


def test_merge_leaves_damaged_output_unchanged(tmp_path: Path) -> None:
    output = tmp_path / "job_3.h5"
    merge(find_node_steps(ALICE, 3), output)
    data = output.read_bytes()[:-70_000]
    output.write_bytes(data)
    with pytest.raises(DamagedProfileError):
        merge([ALICE / "3_0_c1.h5"], output)
    assert output.read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["job_3.h5"]


def test_merge_reports_node_step_of_unknown_step(tmp_path: Path) -> None:
    shutil.copy(ALICE / "3_0_c1.h5", tmp_path / "copy.h5")
    report = merge([tmp_path / "copy.h5"], tmp_path / "job_3.h5")
    assert "identify the step" in str(report.failures[0])


CHILD = """
import sys
from pathlib import Path
from ccpipe.formats.slurm_profile.merge import merge
inputs = sorted(Path(sys.argv[1]).iterdir())
print("ready", flush=True)
merge(inputs, sys.argv[2])
"""


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.06, 0.1])
def test_merge_killed_leaves_output_complete(tmp_path: Path, delay: float) -> None:
    """The output is new or as before, never partial; and the next merge succeeds."""
    (tmp_path / "in").mkdir()
    for step in range(4):
        write_node_step(tmp_path / "in" / f"5_{step}_c1.h5", rows=400, tasks=8)
    output = tmp_path / "job_5.h5"
    merge([tmp_path / "in" / "5_0_c1.h5"], output)
    before = read_contents(output)
    command = [sys.executable, "-c", CHILD, str(tmp_path / "in"), str(output)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        time.sleep(delay)
        process.kill()
    assert process.returncode in (-signal.SIGKILL, 0)
    found = read_contents(output)
    merge(sorted((tmp_path / "in").iterdir()), output)
    after = read_contents(output)
    assert len(after) == 4 * len(before)
    assert found in (before, after)


def test_merge_deletes_inputs_only_on_request(tmp_path: Path) -> None:
    paths = copy(tmp_path / "in", find_node_steps(ALICE, 3))
    merge(paths, tmp_path / "job_3.h5")
    assert all(path.exists() for path in paths)
    report = merge(paths, tmp_path / "job_3.h5", delete_inputs=True)
    assert (report.deleted, report.kept) == (paths, {})
    assert list((tmp_path / "in").iterdir()) == []
    with open_profile(DATA / "merged" / "job_3.h5") as theirs:
        assert read_contents(tmp_path / "job_3.h5") == contents(theirs)


def test_merge_output_mode_follows_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        merge(find_node_steps(ALICE, 17), tmp_path / "job_17.h5")
    finally:
        os.umask(old)
    assert (tmp_path / "job_17.h5").stat().st_mode & 0o777 == 0o640


def test_merge_copies_large_tables_in_blocks(tmp_path: Path) -> None:
    path = write_node_step(tmp_path / "5_0_c1.h5", rows=70_000, tasks=1)
    merge([path], tmp_path / "job_5.h5")
    assert read_contents(tmp_path / "job_5.h5") == read_contents(path)
    with open_profile(tmp_path / "job_5.h5") as profile:
        assert rows(profile.tables[0])[-1] == (69_999, START + 69_999, 70_099)


def span(step: str, node: str, start: float, end: float, index: int | None = 0) -> NodeStepSpan:
    return NodeStepSpan(NodeStep(step=step, node=node, node_index=index), start, end)


def test_count_runs_groups_nodes_of_step() -> None:
    """Their clocks may differ a little, and a node may take part only briefly."""
    spans = [
        span("0", "c1", 100, 101, 0),
        span("0", "c2", 95, 95, 1),
        span("0", "c3", 109, 200, 2),
        span("7", "c1", 900, 950, 0),
    ]
    assert count_runs(spans) == [0, 0, 0, 0]


def test_count_runs_splits_at_repeated_index_without_batch_step() -> None:
    """A step has each index once, even if the second run began immediately."""
    spans = [
        span("0", "c1", 100, 150, 0),
        span("0", "c2", 100, 150, 1),
        span("0", "c3", 140, 250, 0),
        span("0", "c4", 141, 250, 1),
    ]
    assert count_runs(spans) == [0, 0, 1, 1]


def test_count_runs_splits_at_late_start_without_indices() -> None:
    spans = [span("0", "c1", 100, 150, None), span("0", "c2", 300, 400, None)]
    assert count_runs(spans) == [0, 1]


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.randoms())
def test_count_runs_does_not_depend_on_order(
    runs: int, nodes: int, steps: int, dice: random.Random
) -> None:
    expected: dict[NodeStepSpan, int] = {}
    for run in range(runs):
        begin = run * 10_000.0
        expected[span("batch", f"n{run}0", begin, begin + 5000)] = run
        for step in range(steps):
            for node in range(nodes):
                start = begin + 100 * step + node
                expected[span(str(step), f"n{run}{node}", start, start + 50, node)] = run
    spans = list(expected)
    dice.shuffle(spans)
    assert count_runs(spans) == [expected[one] for one in spans]


@pytest.fixture
def merged(tmp_path: Path) -> tuple[Path, Path]:
    path = write_node_step(tmp_path / "5_0_c1.h5")
    merge([path], tmp_path / "job_5.h5")
    return path, tmp_path / "job_5.h5"


def reason_kept(path: Path, output: Path, *, touched: bool = False) -> str:
    with open_profile(path) as profile, open_profile(output) as job:
        identity = profile.identity
        if touched:
            identity = (*identity[:3], 0)
        return delete_merged(path, identity, job)


def test_delete_merged_keeps_file_being_written(tmp_path: Path) -> None:
    path = tmp_path / "5_0_c1.h5"
    with NodeStepWriter(path, NodeStep(step="0", node="c1"), start=START) as writer:
        writer.append("Energy", {"Power": 1}, START)
        writer.flush()
        report = merge([path], tmp_path / "job_5.h5", delete_inputs=True)
    assert report.kept == {path: "its writer has not finished it"}
    assert path.exists()


def test_delete_merged_keeps_locked_file(merged: tuple[Path, Path]) -> None:
    """libhdf5 in Slurm's plug-in locks files it writes."""
    with merged[0].open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert reason_kept(*merged) == "a process has it open for writing"
    assert merged[0].exists()


def test_delete_merged_keeps_file_changed_since_merge(merged: tuple[Path, Path]) -> None:
    assert reason_kept(*merged, touched=True) == "it was written to meanwhile"
    assert merged[0].exists()


@pytest.mark.parametrize("rows", [29, 31])
def test_delete_merged_keeps_file_with_other_rows(merged: tuple[Path, Path], rows: int) -> None:
    merged[0].unlink()
    write_node_step(merged[0], rows=rows)
    assert "other rows in /Steps/0/Nodes/c1/Energy" in reason_kept(*merged)
    assert merged[0].exists()


def test_delete_merged_keeps_file_with_missing_step(merged: tuple[Path, Path]) -> None:
    other = write_node_step(merged[0].with_name("5_0_c2.h5"))
    assert reason_kept(other, merged[1]) == "the output does not have step 0 of c2"
    later = write_node_step(merged[0], start=START + 500)
    assert reason_kept(later, merged[1]) == "the output does not have step 0 of c1"
    assert other.exists()
    assert later.exists()


def test_merge_keeps_inputs_of_unselected_steps(tmp_path: Path) -> None:
    paths = [write_node_step(tmp_path / f"5_{step}_c1.h5") for step in range(2)]
    report = merge(paths, tmp_path / "job_5.h5", steps=["1"], delete_inputs=True)
    assert report.deleted == [paths[1]]
    assert report.kept == {paths[0]: "the output does not have step 0 of c1"}


def test_merge_excludes_concurrent_merge(tmp_path: Path) -> None:
    """Otherwise the second to finish would drop the additions of the first."""
    with exclusive_draft(tmp_path / "job") as draft:
        with (
            pytest.raises(UnavailableError, match="another process is merging"),
            exclusive_draft(tmp_path / "job"),
        ):
            pass
        assert draft.exists()
    with exclusive_draft(tmp_path / "job"):
        pass


def test_merge_does_not_follow_link(tmp_path: Path) -> None:
    """A planted link would overwrite another file."""
    (tmp_path / "precious").write_text("x")
    (tmp_path / ".job.merging").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic link"), exclusive_draft(tmp_path / "job"):
        pass
    assert (tmp_path / "precious").read_text() == "x"
