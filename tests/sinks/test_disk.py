"""Files and directories that survive a crash, with several processes at them."""

import multiprocessing
from pathlib import Path

import pytest

from ccpipe.errors import CreateError
from ccpipe.sinks.disk import TORN, AppendFile, check_directory, make_directory
from tests.sinks.conftest import forbidden


def test_check_creates_nothing(tmp_path: Path) -> None:
    """A missing directory is accepted if it could be created."""
    check_directory(tmp_path)
    check_directory(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_file_in_place_of_directory_is_named(tmp_path: Path) -> None:
    """At any level, with the error of a bridge that cannot create the directory."""
    (tmp_path / "file").touch()
    with pytest.raises(CreateError, match=r"file is not a directory"):
        check_directory(tmp_path / "file" / "a" / "b")


def test_missing_permissions_are_named(tmp_path: Path) -> None:
    """Also if a directory below the forbidden one is to be created."""
    with forbidden(tmp_path / "directory") as directory:
        for path in (directory, directory / "a"):
            with pytest.raises(CreateError, match="no write permission"):
                check_directory(path)


def test_every_new_directory_is_synced_to_disk(tmp_path: Path, synced: list[str]) -> None:
    """The parent of each contains its name; an existing directory needs nothing."""
    make_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert synced == [tmp_path.name, "a"]
    make_directory(tmp_path / "a" / "b")
    assert len(synced) == 2


def _append(path: Path, letter: bytes) -> None:
    file = AppendFile(path)
    for _ in range(200):
        file.append(letter * 5000 + b"\n")
    file.close()


def test_appends_of_processes_do_not_interleave(tmp_path: Path) -> None:
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


def test_torn_line_is_marked_before_next_append(tmp_path: Path) -> None:
    """Also if another process tore it while the file was open here."""
    file = AppendFile(tmp_path / "file")
    file.append(b"one\n")
    with file.path.open("ab") as other:
        other.write(b"tw")
    file.append(b"three\n")
    file.close()
    assert file.path.read_bytes() == b"one\ntw" + TORN + b"three\n"
