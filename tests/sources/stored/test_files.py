"""Files of line protocol as a source that resumes."""

from pathlib import Path

import pytest

from ccpipe.errors import MissingInputError
from ccpipe.sources.stored.backfill import BackfillSelection, FilesSource
from tests.reading import read_all

SECOND = 10**9
LINES = "".join(f"m,hostname=n{n % 3} value={n} {n}\n" for n in range(1, 10))


def written(directory: Path, *contents: str) -> list[Path]:
    paths = [directory / f"{number}.lp" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_text(content)
    return paths


async def read(source: FilesSource, *, ack: bool = True) -> list[float]:
    return [message.value for message in await read_all(source, acknowledge=ack)]


async def test_source_reads_files_in_order(tmp_path: Path) -> None:
    paths = written(tmp_path, "m value=1 1\nbroken\n", "m value=2 2\n")
    assert await read(FilesSource(paths, name="x")) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("selection", "values"),
    [
        (BackfillSelection(3 * SECOND, 6 * SECOND), [3, 4, 5]),
        (BackfillSelection(0, 99 * SECOND, frozenset({"n1"})), [1, 4, 7]),
        (BackfillSelection(2 * SECOND, 8 * SECOND, frozenset({"n0", "n2"})), [2, 3, 5, 6]),
    ],
)
async def test_source_reads_only_selection(
    tmp_path: Path, selection: BackfillSelection, values: list[int]
) -> None:
    """The end is exclusive; a line without a time is in no range."""
    paths = written(tmp_path, LINES, "m,hostname=n1 value=99\n")
    assert await read(FilesSource(paths, selection, name="x")) == values


async def test_source_skips_acknowledged_lines(tmp_path: Path) -> None:
    """The position counts the lines of all files, also invalid ones; the others are read again."""
    paths = written(tmp_path, "m value=1 1\nbroken\n", "m value=2 2\n")
    checkpoint = tmp_path / "x.json"

    def source() -> FilesSource:
        return FilesSource(paths, name="x", checkpoint=checkpoint)

    assert await read(source(), ack=False) == [1.0, 2.0]
    assert await read(source()) == [1.0, 2.0]
    assert await read(source()) == []
    paths[1].write_text("m value=2 2\nm value=3 3\n")  # the file grew
    assert 3.0 in await read(source())


def test_missing_file_is_named_before_reading(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"gone\.lp"):
        FilesSource([*written(tmp_path, LINES), tmp_path / "gone.lp"], name="x")
