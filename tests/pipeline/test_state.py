"""A state file contains the committed entries, in order, and nothing else."""

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import ConfigError, CreateError, UnavailableError
from ccpipe.pipeline.state import StateStore, StateTable


def opened(
    path: Path | str, maximum: int = 3
) -> tuple[StateStore, StateTable[tuple[str, int], str]]:
    state = StateStore(str(path))
    table = state.table("one", tuple[str, int], str, maximum=maximum)
    state.open()
    return state, table


def test_state_returns_committed_entries_only(tmp_path: Path) -> None:
    """Keys are in the order in which they were last put, with their values."""
    state, table = opened(tmp_path / "state")
    for key in (("a", 1), ("b", 2), ("c", 3), ("a", 1)):
        table.put(key, key[0] * 2)
    assert table.pop(("b", 2)) == "bb"
    state.commit(is_durable=True)
    table.put(("d", 4), "dd")
    del state, table
    _, again = opened(tmp_path / "state")
    assert list(again.items()) == [(("c", 3), "cc"), (("a", 1), "aa")]


def test_table_removes_least_recently_put_entries(tmp_path: Path) -> None:
    """It never exceeds its maximum, in memory or in the file."""
    state, table = opened(tmp_path / "state")
    for number in range(5):
        table.put(("a", number), "")
    state.commit(is_durable=False)
    assert list(table) == [("a", 2), ("a", 3), ("a", 4)]
    del state, table
    with sqlite3.connect(tmp_path / "state") as file:
        assert file.execute("SELECT count(*) FROM state").fetchone() == (3,)
    file.close()


steps = st.lists(
    st.tuples(st.sampled_from(["put", "pop", "commit"]), st.integers(0, 5)), max_size=30
)


@given(steps)
def test_state_file_matches_table(tmp_path_factory: pytest.TempPathFactory,
                                            what: list[tuple[str, int]]) -> None:  # fmt: skip
    """Whatever was put, removed and committed before."""
    path = tmp_path_factory.mktemp("store") / "state"
    state, table = opened(path, maximum=4)
    for action, number in what:
        if action == "put":
            table.put(("k", number), str(number))
        elif action == "pop":
            table.pop(("k", number))
        else:
            state.commit(is_durable=False)
    state.commit(is_durable=False)
    held = list(table.items())
    del state, table
    assert list(opened(path, maximum=4)[1].items()) == held


def test_state_file_is_used_by_one_process_only(tmp_path: Path) -> None:
    """A second one is refused, with the reason."""
    state, _ = opened(tmp_path / "state")
    with pytest.raises(ConfigError, match=r"state_file: .*/state is already in use"):
        opened(tmp_path / "state")
    del state


def test_unusable_state_file_is_named(tmp_path: Path) -> None:
    """A directory in its place, a file of another kind, and one of another version."""
    (tmp_path / "directory").mkdir()
    with pytest.raises(ConfigError, match=r"state_file: .*/directory: unable to open"):
        opened(tmp_path / "directory")
    (tmp_path / "text").write_text("no database at all, but long enough to be one" * 30)
    with pytest.raises(ConfigError, match=r"state_file: .*/text: file is not a database"):
        opened(tmp_path / "text")
    with sqlite3.connect(tmp_path / "new") as file:
        file.execute("PRAGMA user_version = 7")
    file.close()
    with pytest.raises(ConfigError, match=r"state_file: .*/new is of version 7, not 2"):
        opened(tmp_path / "new")


def test_state_creates_its_missing_directory(tmp_path: Path) -> None:
    """If it cannot, the error explains what to do.

    So it does for a directory in which its user may not create or write files.
    """
    state, _ = opened(tmp_path / "not" / "yet" / "state")
    assert (tmp_path / "not" / "yet" / "state").is_file()
    del state
    (tmp_path / "text").touch()
    with pytest.raises(
        CreateError, match=r"create that directory for this user, or set state"
    ) as at:
        opened(tmp_path / "text" / "state")
    assert at.value.exit_code == 73


def test_full_disk_is_unavailable(tmp_path: Path) -> None:
    """The next successful commit writes the remaining changes."""
    state, table = opened(tmp_path / "state")
    assert state._file is not None
    state._file.execute("PRAGMA max_page_count = 5")
    table.put(("a", 1), "x" * 100_000)
    with pytest.raises(UnavailableError, match=r"state_file: .*/state: database or disk is full"):
        state.commit(is_durable=True)
    state._file.execute("PRAGMA max_page_count = 5000")
    state.commit(is_durable=True)
    del state, table
    _, again = opened(tmp_path / "state")
    assert again.get(("a", 1)) == "x" * 100_000


def test_state_without_path_writes_nothing() -> None:
    """Tables work all the same."""
    state, table = opened("")
    table.put(("a", 1), "x")
    state.commit(is_durable=True)
    assert (state.is_persistent, table.get(("a", 1)), ("a", 1) in table, len(table)) == (
        False, "x", True, 1,
    )  # fmt: skip
