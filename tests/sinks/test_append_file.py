"""A file that only grows, with several processes at it."""

import multiprocessing
from pathlib import Path

import pytest

from ccpipe.sinks.disk import TORN, AppendFile
from tests.sinks.conftest import full_disk


def _append(path: Path, letter: bytes) -> None:
    file = AppendFile(path)
    for _ in range(200):
        file.append(letter * 5000 + b"\n")
    file.close()


def test_processes_do_not_mix_their_lines(tmp_path: Path) -> None:
    """Each append is one piece, whoever else appends."""
    path = tmp_path / "file"
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_append, args=(path, letter)) for letter in (b"a", b"b", b"c")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    lines = path.read_bytes().splitlines()
    assert sorted(lines) == sorted([b"a" * 5000, b"b" * 5000, b"c" * 5000] * 200)


def test_a_full_disk_leaves_nothing_of_the_append(tmp_path: Path) -> None:
    """What was there stays, and with room the file goes on."""
    file = AppendFile(tmp_path / "file")
    file.append(b"one\n")
    with full_disk(10), pytest.raises(OSError, match="File too large"):
        file.append(b"two two two\n")
    file.append(b"three\n")
    file.close()
    assert file.path.read_bytes() == b"one\nthree\n"


def test_a_torn_line_is_marked_before_the_next_append(tmp_path: Path) -> None:
    """Also where another process tore it while the file was open here."""
    file = AppendFile(tmp_path / "file")
    file.append(b"one\n")
    with file.path.open("ab") as other:
        other.write(b"tw")
    file.append(b"three\n")
    file.close()
    assert file.path.read_bytes() == b"one\ntw" + TORN + b"three\n"
