"""The dead letters that a command is about: filters, and those of a file."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ccpipe.cli.dead.dead_letters import FileDeadLetters, Filter
from ccpipe.errors import CreateError, MissingInputError
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


def write(path: Path, payload: bytes) -> None:
    path.write_bytes(encode(payload, "no", time=1))


def test_a_journal_that_cannot_be_read_is_missing_input(tmp_path: Path) -> None:
    """Without it, letters would be replayed twice."""
    path = tmp_path / "dead.lp"
    write(path, b"a")
    (tmp_path / "dead.lp.replayed").mkdir()
    with pytest.raises(MissingInputError, match="replayed"):
        FileDeadLetters(path)


async def test_a_journal_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """As any file that a command cannot write."""
    path = tmp_path / "dead.lp"
    write(path, b"a")
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
