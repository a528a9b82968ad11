"""Which Parquet files are read."""

import time
from pathlib import Path

import pytest

from ccpipe.errors import UnavailableError, UsageError
from ccpipe.formats.lineprotocol import decode
from ccpipe.history.interfaces import MetricQuery
from ccpipe.history.parquet import ParquetHistory
from ccpipe.sinks.parquet import ParquetSink
from ccpipe.sinks.parquet.files import join_files
from tests.history.conftest import averaged

NOW = int(time.time()) // 600 * 600 - 600  # all of a day


def query(cluster: str = "fox.test") -> MetricQuery:
    return MetricQuery(cluster=cluster, nodes=["n1"], start=NOW - 600, stop=NOW + 100)


@pytest.fixture
async def parquet(tmp_path: Path) -> ParquetHistory:
    """Forty files of one value each, of a cluster with a dot."""
    async with ParquetSink(dir=str(tmp_path / "lake"), compact=False) as sink:
        for number in range(40):
            line = f"load,cluster=fox.test,hostname=n1 value={number} {NOW + number}"
            await sink.write(decode(line.encode()))
    return ParquetHistory(tmp_path / "lake", averaged)


async def test_history_reads_rows_once_while_files_are_merged(parquet: ParquetHistory) -> None:
    """A file whose rows another file replaces may still exist."""
    [directory] = parquet.directory.glob("*/*")
    before = {path: path.read_bytes() for path in directory.glob("*.parquet")}
    assert join_files(parquet.directory, directory, "zstd")
    for path, content in before.items():
        path.write_bytes(content)
    [row] = await parquet.statistics(query())
    assert (row.count, row.minimum, row.maximum) == (40, 0, 39)


async def test_older_files_are_not_opened(parquet: ParquetHistory) -> None:
    """A file's name contains its time of writing, and its rows are older."""
    file = next(parquet.directory.glob("*/*/*.parquet"))
    old = file.with_name("20200101T000000.000000-00000000.parquet")
    old.write_bytes(b"this would fail")
    [row] = await parquet.statistics(query())
    assert row.count == 40


async def test_other_days_are_not_opened(parquet: ParquetHistory) -> None:
    """A directory has one day."""
    day = parquet.directory / "cluster=fox.test" / "date=2001-09-09"
    day.mkdir()
    (day / "20300101T000000.000000-00000000.parquet").write_bytes(b"this would fail")
    [row] = await parquet.statistics(query())
    assert row.count == 40


async def test_too_many_files_are_refused(
    parquet: ParquetHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their names would not fit into memory."""
    monkeypatch.setattr("ccpipe.history.parquet.MAX_FILES", 39)
    with pytest.raises(UsageError, match="more than 39 files; select a shorter time"):
        await parquet.curves(query())


async def test_slow_query_ends_in_time(
    parquet: ParquetHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message asks for a shorter time."""
    monkeypatch.setattr("ccpipe.history.parquet.QUERY_SECONDS", 0.001)
    with pytest.raises(UnavailableError, match=r"takes more than 0 s; select a shorter time"):
        await parquet.curves(query())


async def test_broken_file_is_named(parquet: ParquetHistory) -> None:
    """With its directory."""
    file = next(parquet.directory.glob("*/*/*.parquet"))
    file.with_name(f"{file.stem}-broken.parquet").write_bytes(b"PAR1 is not all")
    with pytest.raises(UnavailableError, match=r"-broken\.parquet"):
        await parquet.curves(query())


async def test_cluster_is_never_a_path(parquet: ParquetHistory, tmp_path: Path) -> None:
    """Names of other directories find nothing, nor does a directory that is missing."""
    for cluster in ("../lake", "..", "fox", ""):
        assert (await parquet.curves(query(cluster))).curves == []
    missing = ParquetHistory(tmp_path / "none", averaged)
    assert (await missing.curves(query())).curves == []
    assert list(await missing.jobs("fox", 1, 2)) == []
