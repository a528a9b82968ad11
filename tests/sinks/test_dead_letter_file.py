"""Dead letters in a file: their format, and what a full disk means."""

from pathlib import Path

import pytest

from ccpipe.errors import UnavailableError
from ccpipe.formats import dead_letters
from ccpipe.formats.dead_letters import Damaged, StoredDeadLetter
from ccpipe.formats.lineprotocol import decode
from ccpipe.pipeline import DeadLetter
from ccpipe.sinks.dead_letter_file import DeadLetterFile
from tests.cli.command import ccpipe
from tests.sinks.conftest import full_disk

DEAD_LETTERS = [
    DeadLetter(b"m,hostname=n1 value=1 5", "no such\n  database", "fox.metrics"),
    DeadLetter(b"broken \xff", "not UTF-8 \u00fc", "a.lp", 3, 17),
]


def stored(path: Path) -> list[tuple[bytes, str, str, int, int]]:
    """Read a file back; it must contain dead letters only."""
    with path.open("rb") as file:
        found = list(dead_letters.read(file))
    assert all(isinstance(letter, StoredDeadLetter) for letter in found), found
    return [
        (letter.original, letter.reason, letter.origin, letter.line, letter.offset)
        for letter in found
        if isinstance(letter, StoredDeadLetter)
    ]


async def test_dead_letter_is_comment_and_its_line(tmp_path: Path) -> None:
    """Its description on one line, then the original bytes; later ones are appended."""
    path = tmp_path / "new" / "dead.lp"
    sink = DeadLetterFile(path)
    await sink.write(DEAD_LETTERS[:1])
    await sink.write(DEAD_LETTERS[1:])
    assert stored(path) == [
        (b"m,hostname=n1 value=1 5", "no such database", "fox.metrics", 0, 0),
        (b"broken \xff", "not UTF-8 \u00fc", "a.lp", 3, 17),
    ]
    lines = path.read_bytes().split(b"\n")
    assert lines[1::2] == [DEAD_LETTERS[0].original, DEAD_LETTERS[1].original]
    assert all(line.startswith(b"# dead letter {") for line in lines[:-1:2])


async def test_dead_letter_file_is_readable_by_owner_only(tmp_path: Path) -> None:
    """It contains received data: a file of an earlier version is restricted too."""
    path = tmp_path / "dead.lp"
    sink = DeadLetterFile(path)
    await sink.write(DEAD_LETTERS[:1])
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    await sink.write(DEAD_LETTERS[1:])
    assert path.stat().st_mode & 0o777 == 0o600


async def test_torn_dead_letter_is_reported_as_damaged(tmp_path: Path) -> None:
    """Neither ``dead`` nor ``convert`` reads 47 for 4711234, wherever it was cut."""
    path = tmp_path / "dead.lp"
    sink = DeadLetterFile(path)
    await sink.write([DeadLetter(b"m,hostname=n1 value=4711234", "no", "s")])
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole[:cut])
        await sink.write(DEAD_LETTERS[:1])
        with path.open("rb") as file:
            torn, letter = dead_letters.read(file)
        assert isinstance(torn, Damaged)
        assert isinstance(letter, StoredDeadLetter)
        assert letter.original == DEAD_LETTERS[0].original
        assert [line.value for line in decode(path.read_bytes())] == [1]


async def test_dead_letter_file_is_read_by_convert(tmp_path: Path) -> None:
    """Comments are skipped, good lines converted, a line still broken reported with its number."""
    path = tmp_path / "dead.lp"
    await DeadLetterFile(path).write(DEAD_LETTERS)
    records = decode(path.read_bytes())
    assert [record.name for record in records] == ["m"]
    converted = ccpipe("convert", "--to", "line", "--to-precision", "s", path)
    assert converted.code == 65
    assert converted.out == "m,hostname=n1 value=1.0 5\n"
    assert f"{path}:4: " in converted.err
    path.write_bytes(path.read_bytes().replace(b"broken \xff", b"mended value=2 6"))
    assert ccpipe("convert", "--to", "line", path).code == 0


async def test_dead_letters_are_synced_before_write_returns(
    tmp_path: Path, synced: list[str]
) -> None:
    """The file, and the directory that contains it."""
    sink = DeadLetterFile(tmp_path / "dead.lp")
    await sink.write(DEAD_LETTERS)
    assert synced == [tmp_path.name, "dead.lp"]


async def test_full_disk_is_unavailable(tmp_path: Path) -> None:
    """The error names the file; with free space it can be written again."""
    sink = DeadLetterFile(tmp_path / "dead.lp")
    letter = DeadLetter(b"x" * 10_000, "refused", "s")
    with full_disk(4096), pytest.raises(UnavailableError, match=r"dead\.lp: File too large"):
        await sink.write([letter])
    await sink.write([letter])
    assert stored(sink.path) == [(letter.original, "refused", "s", 0, 0)]


async def test_dead_letter_file_does_not_exceed_its_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A node whose every line is rejected does not fill its disk; it is logged."""
    sink = DeadLetterFile(tmp_path / "dead.lp", max_bytes=1000)
    for _ in range(100):
        await sink.write(DEAD_LETTERS)
    assert 1000 <= (tmp_path / "dead.lp").stat().st_size < 2000
    assert "dead.lp is full" in caplog.text
    assert len(stored(tmp_path / "dead.lp")) >= len(DEAD_LETTERS)


async def test_directory_that_cannot_be_created_is_unavailable(tmp_path: Path) -> None:
    """A file in its place is named."""
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match=r"file/dead\.lp: "):
        await DeadLetterFile(tmp_path / "file" / "dead.lp").write(DEAD_LETTERS)
