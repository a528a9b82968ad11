"""Files of one folder: their names, what their metadata says, and locks."""

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import UnavailableError
from ccpipe.records import MessageRange
from ccpipe.sinks.parquet.files import (
    StoredMessages,
    joined,
    locked,
    metadata,
    new_name,
    parquet_files,
    read_metadata,
    remove,
)


def run_of(consumer: str, first: int, size: int) -> MessageRange:
    last = first + size
    return MessageRange(consumer, first, last, 1000 + first, 1000 + last)


runs = st.builds(run_of, st.sampled_from("ab"), st.integers(1, 60), st.integers(0, 9))


def write(path: Path, said: dict[bytes, bytes]) -> None:
    table = pa.table({"x": [1]}).replace_schema_metadata(said)
    pq.write_table(table, path)


def numbers(found: list[MessageRange]) -> set[tuple[str, int]]:
    return {(run.consumer, n) for run in found for n in range(run.first, run.last + 1)}


@given(st.lists(runs, max_size=20))
def test_runs_that_follow_one_another_are_one(given_: list[MessageRange]) -> None:
    """They speak of the same messages, and no two of a consumer could be joined further."""
    found = joined(given_)
    assert numbers(found) == numbers(given_)
    for before, after in itertools.pairwise(found):
        assert before.consumer != after.consumer or after.first > before.last + 1


def test_metadata_is_read_back(tmp_path: Path) -> None:
    """And what is no file of ours says nothing."""
    path = tmp_path / "a.parquet"
    stored = [MessageRange("c", 1, 3, 10, 12)]
    write(path, metadata(stored, ["b.parquet"]))
    assert read_metadata(path) == (stored, ["b.parquet"])
    for content in (b"", b"PAR1", b"x" * 100):
        path.write_bytes(content)
        assert read_metadata(path) == ([], [])
    write(path, {b"ccpipe.messages": b"{broken"})
    assert read_metadata(path) == ([], [])
    assert read_metadata(tmp_path / "none.parquet") == ([], [])


def test_later_names_come_later(tmp_path: Path) -> None:
    """Unfinished files are not among those that are finished."""
    names = [f"{new_name()}.parquet" for _ in range(50)]
    assert len(set(names)) == 50
    assert [name[:22] for name in names] == sorted(name[:22] for name in names)
    for name in (*names, ".hidden.parquet", "draft.tmp"):
        (tmp_path / name).touch()
    assert parquet_files(tmp_path) == sorted(names)
    assert parquet_files(tmp_path / "none") == []


def test_what_others_stored_is_seen(tmp_path: Path) -> None:
    """Each file is asked once; files whose rows another one has now are removed."""
    known = StoredMessages(tmp_path)
    assert known.look() == []
    write(tmp_path / "a.parquet", metadata([MessageRange("c", 1, 3, 10, 12)]))
    write(tmp_path / "b.parquet", metadata([MessageRange("c", 4, 5, 13, 14)]))
    assert known.look() == [MessageRange("c", 1, 5, 10, 14)]
    write(tmp_path / "c-joined.parquet", metadata([], ["a.parquet", "b.parquet"]))
    known.look()
    assert parquet_files(tmp_path) == ["c-joined.parquet"]
    known.add("own.parquet", [MessageRange("c", 6, 6, 15, 15)])
    assert known.look() == [MessageRange("c", 1, 6, 10, 15)]


def test_only_files_of_the_folder_are_removed(tmp_path: Path) -> None:
    """A name in metadata is anybody's: it may be a path."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (tmp_path / "out.parquet", folder / "in.parquet", folder / "notes.txt"):
        path.touch()
    remove(folder, ["../out.parquet", "notes.txt", "in.parquet", "gone.parquet"])
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["notes.txt", "out.parquet"]


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    """Who waits too long is told which folder; afterwards it is free."""
    refused = pytest.raises(UnavailableError, match="another bridge holds the lock")
    with locked(tmp_path), refused, locked(tmp_path, seconds=0.02):
        pass
    with locked(tmp_path, seconds=0):
        pass
