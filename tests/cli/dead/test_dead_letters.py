"""The dead letters that a command is about: filters, and those of a file."""

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from ccpipe.cli.dead.dead_letters import FileDeadLetters, Filter
from ccpipe.errors import CreateError, MissingInputError, UsageError
from ccpipe.formats.dead_letters import StoredDeadLetter, encode

LETTERS = [
    StoredDeadLetter("1", 5, "no such table", b"a", "fox.metrics.n1"),
    StoredDeadLetter("2", 6, "not a line", b"b", "fox.metrics.n2"),
    StoredDeadLetter("3", 7, "not a line", b"c", "fox.sonar.job"),
]


async def letters() -> AsyncIterator[StoredDeadLetter]:
    for letter in LETTERS:
        yield letter


@pytest.mark.parametrize(
    ("chosen", "ids"),
    [
        (Filter(), ["1", "2", "3"]),
        (Filter(id=["3", "1"]), ["1", "3"]),
        (Filter(reason="a line"), ["2", "3"]),
        (Filter(origin="metrics.n?"), ["1", "2"]),
        (Filter(reason="a line", origin="metrics"), ["2"]),
        (Filter(count=2), ["1", "2"]),
        (Filter(reason="a line", count=1), ["2"]),
    ],
)
async def test_all_filters_must_match_and_the_count_is_of_what_does(
    chosen: Filter, ids: list[str]
) -> None:
    """A text anywhere in reason or origin, or a shell pattern of a part of it."""
    assert [letter.id async for letter in chosen.apply(letters())] == ids


async def test_a_count_of_none_is_refused() -> None:
    """It would replay nothing and seem to have worked."""
    with pytest.raises(UsageError, match="--count"):
        [letter async for letter in Filter(count=0).apply(letters())]


async def read(path: Path) -> tuple[list[bytes], FileDeadLetters]:
    kept = FileDeadLetters(path)
    found = [letter.original async for letter in kept.read()]
    kept.close()
    return found, kept


def write(path: Path, payloads: Sequence[bytes]) -> None:
    with path.open("ab") as file:
        for payload in payloads:
            file.write(encode(payload, "no", time=1))


async def test_what_was_replayed_is_not_read_again(tmp_path: Path) -> None:
    """It is remembered beside the file, which itself is never changed."""
    path = tmp_path / "dead.lp"
    write(path, [b"a", b"b"])
    content = path.read_bytes()
    kept = FileDeadLetters(path)
    first = await anext(kept.read())
    await kept.remove([first])
    kept.close()
    found, again = await read(path)
    assert (found, again.replayed, again.damaged) == ([b"b"], 1, 0)
    assert path.read_bytes() == content


async def test_what_is_damaged_is_reported_and_the_others_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its place in the file."""
    path = tmp_path / "dead.lp"
    path.write_bytes(b"junk\n")
    write(path, [b"a"])
    found, kept = await read(path)
    assert (found, kept.damaged) == ([b"a"], 1)
    assert f"{path}: at byte 0: not a letter" in capsys.readouterr().err


async def test_a_file_that_is_missing_and_a_journal_that_cannot_be_read(tmp_path: Path) -> None:
    """Both are missing input: without the second, letters would be replayed twice."""
    path = tmp_path / "dead.lp"
    with pytest.raises(MissingInputError, match="No such file"):
        FileDeadLetters(path)
    write(path, [b"a"])
    (tmp_path / "dead.lp.replayed").mkdir()
    with pytest.raises(MissingInputError, match="replayed"):
        FileDeadLetters(path)


async def test_a_journal_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """As any file that a command cannot write."""
    path = tmp_path / "dead.lp"
    write(path, [b"a"])
    kept = FileDeadLetters(path)
    [letter] = [letter async for letter in kept.read()]
    (tmp_path / "dead.lp.replayed").mkdir()
    with pytest.raises(CreateError, match="replayed: Is a directory"):
        await kept.remove([letter])
    kept.close()


def test_only_a_regular_file_holds_dead_letters(tmp_path: Path) -> None:
    """Positions in it are their IDs; a pipe or a device would never end."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(MissingInputError, match="not a regular file"):
            FileDeadLetters(path)
