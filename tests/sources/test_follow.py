"""Rotation: whatever is done to a file, every line is read, and none twice."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.sources.follow import Chunk, FileProgress, Follower
from tests.sources.cell import HEADER, ROTATIONS, Cell


def drain(follower: Follower) -> list[Chunk]:
    stretches = []
    while chunk := follower.step():
        stretches.append(chunk)
        assert len(stretches) < 10_000
    return stretches


def lines(stretches: list[Chunk]) -> list[bytes]:
    found = b"".join(chunk.payload for chunk in stretches).split(b"\n")
    return [line for line in found if line and not line.startswith(b"#")]


def follow(cell: Cell, progress: FileProgress | None = None) -> Follower:
    return Follower(cell.path, progress or FileProgress(), grace=0, block=16)


def read_before(directory: Path) -> tuple[Cell, list[Chunk]]:
    """Return a cell of three lines, and what a follower read of it that is closed."""
    cell = Cell(directory)
    cell.append(3)
    follower = follow(cell)
    found = drain(follower)
    follower.close()
    return cell, found


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("big"), st.integers(1, 2)),
        st.tuples(st.just("half"), st.just(0)),
        st.tuples(st.sampled_from(ROTATIONS), st.just(0)),
        st.tuples(st.just("read"), st.integers(0, 3)),
        st.tuples(st.just("crash"), st.integers(0, 3)),
    ),
    max_size=25,
)


class Life:
    """A cell and who reads it, with what is read by file and offset."""

    def __init__(self, directory: Path, header: bytes) -> None:
        self.cell = Cell(directory, header=header)
        self.saved = FileProgress()
        self.follower = follow(self.cell)
        self.found: dict[tuple[str, int], bytes] = {}

    def happen(self, event: str, count: int) -> None:
        if event in {"append", "big"}:
            self.cell.append(count, size=3000 * (event == "big"))
        elif event == "half":
            self.cell.append_half()
        elif event in ROTATIONS:
            self.cell.rotate(event)
        elif event == "read":
            self.read(count, save=True)
        else:
            self.read(count, save=False)
            self.follower.close()
            self.follower = follow(self.cell, self.saved)

    def read(self, count: int, *, save: bool) -> None:
        while count and (chunk := self.follower.step()):
            offset = chunk.offset
            for line in chunk.payload.splitlines(keepends=True):
                assert self.found.setdefault((chunk.file, offset), line) == line
                offset += len(line)
            self.saved = chunk.progress if save else self.saved
            count -= 1


@settings(max_examples=80)
@given(steps, st.sampled_from([b"", HEADER]))
def test_any_course_of_events_gives_each_line_once(
    course: list[tuple[str, int]], header: bytes
) -> None:
    """Appends, halves of lines, rotations of every kind, reads and crashes in any order.

    What was read but not yet in the checkpoint when we crashed is read again, as the same
    stretch of the same file: by file and offset each line is there once, and none is missing.
    """
    with tempfile.TemporaryDirectory() as directory:
        life = Life(Path(directory), header)
        for event, count in course:
            life.happen(event, count)
        life.cell.append()
        life.read(10_000, save=True)
        life.follower.close()
    found = [line.rstrip(b"\n") for line in life.found.values() if not line.startswith(b"#")]
    assert sorted(found) == sorted(life.cell.written)


def test_a_week_away_is_caught_up_oldest_first(tmp_path: Path) -> None:
    """Several rotated files, packed and not, are read in the order in which they were written."""
    cell, found = read_before(tmp_path)
    for how in ("gzip", "rename", "gzip", "rename"):
        cell.append(4)
        cell.rotate(how)
    cell.append(1)
    follower = follow(cell, found[-1].progress)
    assert lines(found + drain(follower)) == cell.written
    follower.close()


def test_an_inode_that_is_used_again_is_another_file(tmp_path: Path) -> None:
    """The same inode and a longer file are not enough: the beginning tells."""
    cell, found = read_before(tmp_path)
    (tmp_path / "accounting.0").write_bytes(cell.path.read_bytes() + b"late\n")
    with cell.path.open("r+b") as file:  # the same inode, as after its reuse
        file.truncate()
        file.write(HEADER + b"new:%s\n" % (b"y" * 500))
    follower = follow(cell, found[-1].progress)
    assert lines(drain(follower)) == [b"late", b"new:" + b"y" * 500]
    follower.close()


def test_a_rotated_file_that_may_still_grow_is_kept_open(tmp_path: Path) -> None:
    """Until it was quiet for the grace, lines that a writer appends late are read."""
    cell = Cell(tmp_path)
    cell.append(1)
    follower = Follower(cell.path, FileProgress(), grace=3600)
    found = drain(follower)
    cell.rotate("rename")
    late = (tmp_path / "accounting.0").open("ab")
    cell.append(1)
    found += drain(follower)
    assert lines(found) == [b"0:"]
    late.write(b"late\n")
    late.close()
    found += drain(follower)
    assert lines(found) == [b"0:", b"late"]
    follower.grace = 0
    assert lines(drain(follower)) == [b"1:"]
    follower.close()


def test_a_packed_file_that_breaks_off_costs_its_end_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged gzip file is told of, and what comes after it is read."""
    cell, found = read_before(tmp_path)
    cell.append(50, size=1000)
    cell.rotate("gzip")
    packed = tmp_path / "accounting.0.gz"
    packed.write_bytes(packed.read_bytes()[:-20])
    cell.append(1)
    follower = follow(cell, found[-1].progress)
    for _ in range(3):
        found += drain(follower)
    assert lines(found)[-1] == cell.written[-1]
    assert "the rest of it is lost" in caplog.text
    follower.close()


def test_a_file_that_vanished_is_told_of_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the rotated file is nowhere, we go on with the next one and say so."""
    cell, found = read_before(tmp_path)
    cell.path.unlink()
    cell.append(1)
    follower = follow(cell, found[-1].progress)
    follower.step()
    assert lines(drain(follower)) == [b"3:"]
    assert "cannot be found" in caplog.text
    follower.close()


def test_other_files_are_no_rotated_ones(tmp_path: Path) -> None:
    """``accounting.jsonl`` and its rotated files do not belong to ``accounting``, nor back."""
    names = [
        "accounting.jsonl", "accounting.jsonl.1", "accounting.jsonl.2.gz", "accounting.bak",
        "accounting-20261120.jsonl", "accounting.0", "accounting-20261120.gz",
        "accounting_20191007_0300.txt", "reporting.0",
    ]  # fmt: skip
    for name in names:
        (tmp_path / name).write_bytes(name.encode() + b" is a record\n")
    found = {}
    for path in ("accounting", "accounting.jsonl"):
        follower = Follower(tmp_path / path, FileProgress(), grace=0)
        files = follower._scan()
        found[path] = {file.path.name for file in files if file.head or file.is_compressed}
    assert found["accounting"] == {"accounting.0", "accounting_20191007_0300.txt"}
    assert found["accounting.jsonl"] == {"accounting.jsonl.1", "accounting-20261120.jsonl"}
