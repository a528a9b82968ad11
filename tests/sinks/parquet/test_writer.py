"""Tables to complete files: row groups, metadata, and nothing half-written under a name."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message
from ccpipe.sinks.parquet import table as writer
from ccpipe.sinks.parquet.table import by_day, write_file, write_groups

NOON = 1_740_052_800 * 10**9
[PART] = by_day(to_lines([Message("m", {"cluster": "a"}, float(n), NOON + n) for n in range(10)]))
TABLE = PART.table


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader holds one at once; those that are given are kept apart."""
    path = tmp_path / "x.parquet"
    monkeypatch.setattr(writer, "GROUP_ROWS", 4)
    write_file(path, TABLE, "none", {})
    data = pq.ParquetFile(path).metadata
    assert [data.row_group(n).num_rows for n in range(data.num_row_groups)] == [4, 4, 2]
    given = tmp_path / "y.parquet"
    write_groups(given, [TABLE.slice(0, 1), TABLE.slice(1)], "none", {})
    assert pq.ParquetFile(given).metadata.num_row_groups == 2
    assert pq.read_table(given).to_pylist() == TABLE.to_pylist()


def test_times_have_statistics(tmp_path: Path) -> None:
    """What queries skip row groups by."""
    path = tmp_path / "x.parquet"
    write_file(path, TABLE, "zstd", {})
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    assert columns["time"].is_stats_set
    assert not columns["value"].is_stats_set


def test_no_file_is_written_over(tmp_path: Path) -> None:
    """Names are new; one that is there belongs to somebody else."""
    path = tmp_path / "x.parquet"
    path.write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        write_file(path, TABLE, "zstd", {})
    assert path.read_bytes() == b"theirs"
