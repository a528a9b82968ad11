"""Dead letters in a file: their format, and what a full disk means."""

import os
from pathlib import Path

import pytest

from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import decode
from ccpipe.pipeline import DeadLetter
from ccpipe.sinks.dead_letter_file import DeadLetterFile
from tests.cli.command import ccpipe
from tests.sinks.conftest import full_disk

LETTERS = [
    DeadLetter(b"m,hostname=n1 value=1 5", "no such\n  database", "fox.metrics"),
    DeadLetter(b"broken \xff", "not UTF-8 \u00fc", "a.lp", 3, 17),
]


async def test_a_letter_is_a_comment_and_its_line(tmp_path: Path) -> None:
    """Origin and reason on one line, then the original bytes; later letters are appended."""
    path = tmp_path / "new" / "dead.lp"
    sink = DeadLetterFile(path)
    await sink.write(LETTERS[:1])
    await sink.write(LETTERS[1:])
    assert path.read_bytes() == (
        b"# fox.metrics: no such database\nm,hostname=n1 value=1 5\n"
        b"# a.lp: not UTF-8 \xc3\xbc\nbroken \xff\n"
    )


async def test_the_file_is_read_by_convert(tmp_path: Path) -> None:
    """Comments are skipped, good lines converted, a line still broken reported with its number."""
    path = tmp_path / "dead.lp"
    await DeadLetterFile(path).write(LETTERS)
    records = decode(path.read_bytes())
    assert [record.name for record in records] == ["m"]
    converted = ccpipe("convert", "--to", "line", "--to-precision", "s", path)
    assert converted.code == 65
    assert converted.out == "m,hostname=n1 value=1.0 5\n"
    assert f"{path}:4: " in converted.err
    path.write_bytes(path.read_bytes().replace(b"broken \xff", b"mended value=2 6"))
    assert ccpipe("convert", "--to", "line", path).code == 0


async def test_letters_are_on_the_disk_before_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is synced, and with the first letter the folder that holds its name."""
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    sink = DeadLetterFile(tmp_path / "dead.lp")
    await sink.write(LETTERS)
    assert synced == ["dead.lp", tmp_path.name]
    await sink.write(LETTERS)
    assert synced == ["dead.lp", tmp_path.name, "dead.lp"]


async def test_a_full_disk_is_unavailable(tmp_path: Path) -> None:
    """The error names the file; once there is room again the letter can be written."""
    sink = DeadLetterFile(tmp_path / "dead.lp")
    letter = DeadLetter(b"x" * 10_000, "refused", "s")
    with full_disk(4096), pytest.raises(UnavailableError, match=r"dead\.lp: File too large"):
        await sink.write([letter])
    await sink.write([letter])
    assert sink.path.read_bytes().endswith(b"# s: refused\n" + letter.original + b"\n")


async def test_a_folder_that_cannot_be_created_is_unavailable(tmp_path: Path) -> None:
    """A file in its place is named."""
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match=r"file/dead\.lp: "):
        await DeadLetterFile(tmp_path / "file" / "dead.lp").write(LETTERS)
