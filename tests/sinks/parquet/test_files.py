"""Files: row groups, names, metadata, locks, and when small ones are joined."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ccpipe.config import Duration
from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message
from ccpipe.records import MessageRange
from ccpipe.sinks.parquet import ParquetSink, files
from ccpipe.sinks.parquet.files import (
    JOINED,
    StoredMessages,
    locked,
    metadata,
    new_name,
    parquet_files,
    read_metadata,
    remove,
    write_file,
    write_groups,
)
from ccpipe.sinks.parquet.sink import by_day
from tests.conftest import eventually
from tests.sinks.conftest import metric

NOON = 1_740_052_800 * 10**9
[PART] = by_day(to_lines([Message("m", {"cluster": "a"}, float(n), NOON + n) for n in range(10)]))
TABLE = PART.table


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader keeps one in memory at once; given groups are kept separate."""
    path = tmp_path / "x.parquet"
    monkeypatch.setattr(files, "GROUP_ROWS", 4)
    write_file(path, TABLE, "none", {})
    data = pq.ParquetFile(path).metadata
    assert [data.row_group(n).num_rows for n in range(data.num_row_groups)] == [4, 4, 2]
    given = tmp_path / "y.parquet"
    write_groups(given, [TABLE.slice(0, 1), TABLE.slice(1)], "none", {})
    assert pq.ParquetFile(given).metadata.num_row_groups == 2
    assert pq.read_table(given).to_pylist() == TABLE.to_pylist()


def test_times_have_statistics(tmp_path: Path) -> None:
    """Queries use them to skip row groups."""
    path = tmp_path / "x.parquet"
    write_file(path, TABLE, "zstd", {})
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    assert columns["time"].is_stats_set
    assert not columns["value"].is_stats_set


def test_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    """Names are new; an existing file belongs to another writer."""
    path = tmp_path / "x.parquet"
    path.write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        write_file(path, TABLE, "zstd", {})
    assert path.read_bytes() == b"theirs"


def write(path: Path, said: dict[bytes, bytes]) -> None:
    table = pa.table({"x": [1]}).replace_schema_metadata(said)
    pq.write_table(table, path)


def test_metadata_is_read_back(tmp_path: Path) -> None:
    """A file of another program has none."""
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


def test_names_sort_by_time(tmp_path: Path) -> None:
    """Unfinished files are not listed with finished ones."""
    names = [f"{new_name()}.parquet" for _ in range(50)]
    assert len(set(names)) == 50
    assert [name[:22] for name in names] == sorted(name[:22] for name in names)
    for name in (*names, ".hidden.parquet", "draft.tmp"):
        (tmp_path / name).touch()
    assert parquet_files(tmp_path) == sorted(names)
    assert parquet_files(tmp_path / "none") == []


def test_stored_messages_include_files_of_other_bridges(tmp_path: Path) -> None:
    """Each file is read once; files whose rows are in another one now are removed."""
    known = StoredMessages(tmp_path)
    assert known.refreshed() == []
    write(tmp_path / "a.parquet", metadata([MessageRange("c", 1, 3, 10, 12)]))
    write(tmp_path / "b.parquet", metadata([MessageRange("c", 4, 5, 13, 14)]))
    assert known.refreshed() == [MessageRange("c", 1, 5, 10, 14)]
    write(tmp_path / "c-joined.parquet", metadata([], ["a.parquet", "b.parquet"]))
    known.refreshed()
    assert parquet_files(tmp_path) == ["c-joined.parquet"]
    known.add("own.parquet", [MessageRange("c", 6, 6, 15, 15)])
    assert known.refreshed() == [MessageRange("c", 1, 6, 10, 15)]


def test_only_files_of_directory_are_removed(tmp_path: Path) -> None:
    """A name in metadata is untrusted: it may be a path."""
    directory = tmp_path / "directory"
    directory.mkdir()
    for path in (tmp_path / "out.parquet", directory / "in.parquet", directory / "notes.txt"):
        path.touch()
    remove(directory, ["../out.parquet", "notes.txt", "in.parquet", "gone.parquet"])
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["notes.txt", "out.parquet"]


def test_lock_has_one_holder(tmp_path: Path) -> None:
    """A timeout names the directory; afterwards it is free."""
    refused = pytest.raises(UnavailableError, match="another bridge holds the lock")
    with locked(tmp_path), refused, locked(tmp_path, seconds=0.02):
        pass
    with locked(tmp_path, seconds=0):
        pass


async def test_housekeeping_joins_files_when_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not right after a large batch, but later without another write."""
    monkeypatch.setattr(files, "MANY_ROWS", 2)
    many = to_lines([metric(1.0), metric(2.0)])
    async with ParquetSink(dir=str(tmp_path)) as sink:
        monkeypatch.setattr(files, "BUSY_SECONDS", 3600.0)
        for batch in [many, *(to_lines([metric(float(number))]) for number in range(JOINED))]:
            await sink.write(batch)
        (directory,) = tmp_path.glob("cluster=*/date=*")
        assert len(list(directory.glob("*.parquet"))) == JOINED + 1
    assert len(list(directory.glob("*.parquet"))) == JOINED + 1, (
        "closing does not wait for the time"
    )
    async with ParquetSink(dir=str(tmp_path)) as sink:
        monkeypatch.setattr(files, "BUSY_SECONDS", 0.1)
        await sink.write(many)
        await eventually(lambda: len(list(directory.glob("*.parquet"))) == 3)


async def test_housekeeping_removes_old_days(tmp_path: Path) -> None:
    """With a retention the first write removes the directories of older days."""
    old = tmp_path / "cluster=fox" / "date=2001-01-01"
    old.mkdir(parents=True)
    async with ParquetSink(dir=str(tmp_path), retention=Duration(365 * 86_400)) as sink:
        await sink.write(to_lines([metric(1.0, time=4 * 10**18)]))
        await eventually(lambda: not old.exists())


async def test_joined_files_have_bounded_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that joining takes little memory; no name is duplicated."""
    async with ParquetSink(dir=str(tmp_path), compact=False) as sink:
        for number in range(JOINED):
            rows = [metric(float(number), hostname=f"n{host}") for host in range(3)]
            await sink.write(to_lines(rows))
    (directory,) = tmp_path.glob("cluster=*/date=*")
    monkeypatch.setattr(files, "GROUP_ROWS", 10)
    assert files.join_files(tmp_path, directory, "zstd")
    (path,) = directory.glob("*.parquet")
    with pq.ParquetFile(path) as file:
        groups = [file.read_row_group(group) for group in range(file.num_row_groups)]
    assert [len(group) for group in groups] == [9] * 10 + [6]
    for group in groups:
        assert sorted(group["hostname"].chunk(0).dictionary.to_pylist()) == ["n0", "n1", "n2"]
    found = sorted(value for group in groups for value in group["value"].to_pylist())
    assert found == sorted(float(number) for number in range(JOINED) for _ in range(3))
