"""When small files are joined: not while a bridge catches up."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ccpipe.config import Duration
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.sinks.parquet import ParquetSink, housekeeping
from ccpipe.sinks.parquet.housekeeping import JOINED
from tests.conftest import eventually
from tests.sinks.conftest import metric


async def test_files_are_joined_when_there_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a large batch not at once, but then without another write."""
    monkeypatch.setattr(housekeeping, "MANY_ROWS", 2)
    many = to_lines([metric(1.0), metric(2.0)])
    async with ParquetSink(dir=str(tmp_path)) as sink:
        monkeypatch.setattr(housekeeping, "BUSY_SECONDS", 3600.0)
        for batch in [many, *(to_lines([metric(float(number))]) for number in range(JOINED))]:
            await sink.write(batch)
        (folder,) = tmp_path.glob("cluster=*/date=*")
        assert len(list(folder.glob("*.parquet"))) == JOINED + 1
    assert len(list(folder.glob("*.parquet"))) == JOINED + 1, "closing does not wait for the time"
    async with ParquetSink(dir=str(tmp_path)) as sink:
        monkeypatch.setattr(housekeeping, "BUSY_SECONDS", 0.1)
        await sink.write(many)
        await eventually(lambda: len(list(folder.glob("*.parquet"))) == 3)


async def test_old_days_go(tmp_path: Path) -> None:
    """With a retention the first write removes the folders of days that are older."""
    old = tmp_path / "cluster=fox" / "date=2001-01-01"
    old.mkdir(parents=True)
    async with ParquetSink(dir=str(tmp_path), retention=Duration(365 * 86_400)) as sink:
        await sink.write(to_lines([metric(1.0, time=4 * 10**18)]))
        await eventually(lambda: not old.exists())


async def test_row_groups_of_joined_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay within the bound, so that joining takes little memory; no name comes twice."""
    async with ParquetSink(dir=str(tmp_path), compact=False) as sink:
        for number in range(JOINED):
            rows = [metric(float(number), hostname=f"n{host}") for host in range(3)]
            await sink.write(to_lines(rows))
    (folder,) = tmp_path.glob("cluster=*/date=*")
    monkeypatch.setattr(housekeeping, "GROUP_ROWS", 10)
    assert housekeeping.join_files(tmp_path, folder, "zstd")
    (path,) = folder.glob("*.parquet")
    with pq.ParquetFile(path) as file:
        groups = [file.read_row_group(group) for group in range(file.num_row_groups)]
    assert [len(group) for group in groups] == [9] * 10 + [6]
    for group in groups:
        assert sorted(group["hostname"].chunk(0).dictionary.to_pylist()) == ["n0", "n1", "n2"]
    found = sorted(value for group in groups for value in group["value"].to_pylist())
    assert found == sorted(float(number) for number in range(JOINED) for _ in range(3))
