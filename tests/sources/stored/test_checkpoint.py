"""The file that says up to where a backfill has written everything."""

from pathlib import Path

import pytest

from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.sources.stored.checkpoint import BackfillCheckpoint, BackfillSelection

SELECTION = BackfillSelection(10, 90, frozenset({"n1"}))


def test_it_is_taken_up_where_it_was(tmp_path: Path) -> None:
    """Its time is what counts; the end may have moved on where a bridge writes to the store."""
    path = tmp_path / "x.json"
    first = BackfillCheckpoint(path, "a to b", SELECTION, 10)
    first.state.done = 50
    first.write()
    later = BackfillCheckpoint(path, "a to b", BackfillSelection(10, 200, SELECTION.nodes), 10)
    assert (later.state.done, later.state.end) == (50, 200)


@pytest.mark.parametrize(
    ("name", "selection"),
    [
        ("a to c", SELECTION),
        ("a to b", BackfillSelection(10, 90)),
        ("a to b", BackfillSelection(10, 90, frozenset("x"))),
    ],
)
def test_that_of_another_backfill_is_refused(
    tmp_path: Path, name: str, selection: BackfillSelection
) -> None:
    """Taken up, it would leave out what was never written."""
    path = tmp_path / "x.json"
    BackfillCheckpoint(path, "a to b", SELECTION, 10).write()
    with pytest.raises(ConfigError, match="another backfill"):
        BackfillCheckpoint(path, name, selection, 10)


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"done":"x"}', b"\xff"])
def test_a_file_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    """To start over would write everything twice, silently."""
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"x\.json"):
        BackfillCheckpoint(path, "a to b", SELECTION, 10)


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a backfill begins at its begin each time."""
    monkeypatch.chdir(tmp_path)
    BackfillCheckpoint(None, "a to b", SELECTION, 10).write()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    """As what may pass: what was written is not lost, but may be written again."""
    checkpoint = BackfillCheckpoint(tmp_path / "gone" / "x.json", "a to b", SELECTION, 10)
    with pytest.raises(UnavailableError, match=r"x\.json"):
        checkpoint.write()
