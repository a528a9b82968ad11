"""Rotation: every line is read exactly once, however a file is rotated."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.sources.follow import Chunk, FileProgress, Follower
from tests.sources.cell import HEADER, ROTATIONS, Cell


def drain(follower: Follower) -> list[Chunk]:
    chunks = []
    while chunk := follower.step():
        chunks.append(chunk)
        assert len(chunks) < 10_000
    return chunks


def lines(chunks: list[Chunk]) -> list[bytes]:
    found = b"".join(chunk.payload for chunk in chunks).split(b"\n")
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


@given(steps, st.sampled_from([b"", HEADER]))
def test_follower_reads_each_line_once_in_any_sequence(
    course: list[tuple[str, int]], header: bytes
) -> None:
    """Appends, partial lines, rotations of every kind, reads and crashes in any order.

    Lines read but not yet in the checkpoint at a crash are read again, as the same chunk of the
    same file: by file and offset each line occurs once, and none is missing.
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


def test_follower_reads_rotated_files_oldest_first(tmp_path: Path) -> None:
    """Several rotated files, compressed and not, are read in the order of writing."""
    cell, found = read_before(tmp_path)
    for how in ("gzip", "rename", "gzip", "rename"):
        cell.append(4)
        cell.rotate(how)
    cell.append(1)
    follower = follow(cell, found[-1].progress)
    assert lines(found + drain(follower)) == cell.written
    follower.close()


def test_follower_detects_reused_inode(tmp_path: Path) -> None:
    """The same inode and a longer file are not enough: the beginning decides."""
    cell, found = read_before(tmp_path)
    (tmp_path / "accounting.0").write_bytes(cell.path.read_bytes() + b"late\n")
    with cell.path.open("r+b") as file:  # the same inode, as after its reuse
        file.truncate()
        file.write(HEADER + b"new:%s\n" % (b"y" * 500))
    follower = follow(cell, found[-1].progress)
    assert lines(drain(follower)) == [b"late", b"new:" + b"y" * 500]
    follower.close()


def test_follower_keeps_rotated_file_open_during_grace(tmp_path: Path) -> None:
    """Lines that a writer appends late are read."""
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


def test_follower_continues_after_truncated_gzip(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The damaged file is logged, and later files are read."""
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


def test_follower_logs_and_leaves_vanished_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the rotated file is not found, the follower continues with the next and logs it."""
    cell, found = read_before(tmp_path)
    cell.path.unlink()
    cell.append(1)
    follower = follow(cell, found[-1].progress)
    follower.step()
    assert lines(drain(follower)) == [b"3:"]
    assert "cannot be found" in caplog.text
    follower.close()


def test_follower_ignores_other_files(tmp_path: Path) -> None:
    """Rotated files of ``accounting.jsonl`` do not belong to ``accounting``, nor vice versa."""
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
