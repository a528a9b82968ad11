"""When small files are joined: not while a bridge catches up."""

from pathlib import Path

from ccpipe.config import Duration
from ccpipe.sinks.parquet import ParquetSink
from ccpipe.sinks.parquet.housekeeping import JOINED, MANY_ROWS
from tests.conftest import eventually
from tests.sinks.conftest import metric


async def test_files_are_joined_when_there_is_time(tmp_path: Path) -> None:
    """Large batches in quick succession put it off; a small one lets it begin."""
    async with ParquetSink(dir=str(tmp_path)) as sink:
        for number in range(JOINED - 1):
            await sink.write([metric(float(number))])
        (folder,) = tmp_path.glob("cluster=*/date=*")
        housekeeping = sink._housekeeping
        housekeeping.look_after([folder], MANY_ROWS)
        assert housekeeping._written == {folder}
        await sink.write([metric(99.0)])
        await eventually(lambda: len(list(folder.glob("*.parquet"))) == 1)


async def test_old_days_go(tmp_path: Path) -> None:
    """With a retention the first write removes the folders of days that are older."""
    old = tmp_path / "cluster=fox" / "date=2001-01-01"
    old.mkdir(parents=True)
    async with ParquetSink(dir=str(tmp_path), retention=Duration(365 * 86_400)) as sink:
        await sink.write([metric(1.0, time=4 * 10**18)])
        await eventually(lambda: not old.exists())
