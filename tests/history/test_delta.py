"""History from a Delta table while bridges write to it."""

from pathlib import Path

import pytest

from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.history.interfaces import MetricQuery
from ccpipe.history.open import open_history
from ccpipe.history.parquet import ParquetHistory
from ccpipe.sinks.delta import DeltaSink
from tests.history.conftest import averaged
from tests.sinks.conftest import NOON, SECOND, metric

START = NOON / SECOND
QUERY = MetricQuery(cluster="fox", nodes=["n1"], start=START, stop=START + 60)


async def test_rows_committed_later_are_found(tmp_path: Path) -> None:
    """A table may also be created, or compacted, while its history is open."""
    (tmp_path / "_delta_log").mkdir()
    history = open_history(str(tmp_path), averaged)
    assert await history.statistics(QUERY) == []
    async with DeltaSink(url=str(tmp_path)) as sink:
        for number in range(3):
            await sink.write(to_lines([metric(float(number), time=NOON + number * SECOND)]))
            [row] = await history.statistics(QUERY)
            assert (row.count, row.maximum) == (number + 1, number)
        sink._current().optimize.compact()
        [row] = await history.statistics(QUERY)
        assert row.count == 3
    await history.close()


async def test_files_of_other_days_are_not_opened(tmp_path: Path) -> None:
    """And none of another time of the same day, by the log's statistics."""
    async with DeltaSink(url=str(tmp_path)) as sink:
        for seconds in (0, 7200, 86_400):
            await sink.write(to_lines([metric(1.0, time=NOON + seconds * SECOND)]))
    for path in tmp_path.rglob("*.parquet"):
        [row] = await _times(path)
        if row != NOON // 1000:
            path.write_bytes(b"this would fail")
    history = open_history(str(tmp_path), averaged)
    [found] = await history.statistics(QUERY)
    assert found.count == 1
    await history.close()


async def _times(path: Path) -> list[int]:
    import pyarrow.parquet as pq

    return [int(time) for time in pq.read_table(path)["time"].cast("int64").to_pylist()]


async def test_directory_that_becomes_a_table_is_unavailable(tmp_path: Path) -> None:
    """Its files have rows of other versions, too."""
    history = ParquetHistory(tmp_path, averaged)
    async with DeltaSink(url=str(tmp_path)) as sink:
        await sink.write(to_lines([metric(1.0)]))
    with pytest.raises(UnavailableError, match="has become a Delta table"):
        await history.statistics(QUERY)
