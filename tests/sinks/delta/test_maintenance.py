"""Compaction, retention and vacuum of a table, while bridges write to it."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileSelector

from ccpipe.config import Duration
from ccpipe.formats.delta import CommitFailedError, DeltaAddress
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message
from ccpipe.sinks.delta import DeltaSink, maintenance
from ccpipe.sinks.delta.maintenance import (
    FILES,
    TableMaintenance,
    TablePartition,
    remove_unreferenced,
)
from tests.conftest import eventually
from tests.sinks.conftest import NOON, metric
from tests.sinks.delta.conftest import rows_of

DAY = date(2025, 2, 20)


async def write(place: dict[str, Any], count: int, **options: Any) -> None:
    """Write some batches of a row each."""
    async with DeltaSink(**place, **options) as sink:
        for number in range(count):
            await sink.write(to_lines([metric(float(number))]))


def files_of(place: dict[str, Any], partition: TablePartition) -> int:
    table = DeltaAddress(**place).open()
    return len(table.file_uris(file_pruning_predicate=partition.filters))


@pytest.mark.parametrize(
    "partition", [TablePartition("fox", DAY), TablePartition(None, DAY), TablePartition(None, None)]
)
async def test_partition_is_compacted_when_it_has_many_new_files(
    tmp_path: Path, partition: TablePartition
) -> None:
    """Also rows without a cluster or a time; no row is lost, and no other file is touched."""
    place: dict[str, Any] = {"url": str(tmp_path / "table")}
    tags = {} if partition.cluster is None else {"cluster": partition.cluster}
    time = None if partition.date is None else NOON
    async with DeltaSink(**place) as sink:
        await sink.write(to_lines([metric(-1.0, cluster="other")]))
        for number in range(FILES):
            await sink.write(to_lines([Message("m", tags, float(number), time)]))
        await eventually(lambda: files_of(place, partition) < FILES)
        done = files_of(place, partition)
        for number in range(5):
            await sink.write(to_lines([Message("m", tags, 100.0 + number, time)]))
        assert files_of(place, partition) == done + 5
    values = sorted(rows_of(place)["value"].to_pylist())
    assert values == [-1.0, *map(float, range(FILES)), *(100.0 + n for n in range(5))]
    assert files_of(place, TablePartition("other", DAY)) == 1


async def test_partition_is_not_compacted_if_switched_off(tmp_path: Path) -> None:
    place: dict[str, Any] = {"url": str(tmp_path / "table")}
    await write(place, FILES + 1, compact=False)
    assert files_of(place, TablePartition("fox", DAY)) == FILES + 1


async def test_files_of_former_bridges_are_compacted(tmp_path: Path) -> None:
    """Files are counted in the table, not in the process."""
    place: dict[str, Any] = {"url": str(tmp_path / "table")}
    await write(place, FILES, compact=False)
    async with DeltaSink(**place, vacuum=Duration(0)) as sink:
        await sink.write(to_lines([metric(0.0)]))
        await eventually(lambda: files_of(place, TablePartition("fox", DAY)) == 1)


async def test_compaction_by_another_bridge_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit of the second one fails; it changes nothing."""
    place: dict[str, Any] = {"url": str(tmp_path / "table")}
    await write(place, 3, compact=False)

    def conflict(*_: object) -> None:
        raise CommitFailedError("concurrent delete")

    monkeypatch.setattr(TableMaintenance, "_compact", conflict)
    async with DeltaSink(**place) as sink:
        sink._maintenance.start([TablePartition("fox", DAY)])
        assert sink._maintenance._task is not None
        await sink._maintenance._task
    assert files_of(place, TablePartition("fox", DAY)) == 3
    assert not [each for each in caplog.records if each.levelname != "DEBUG"]


async def test_older_days_are_removed(tmp_path: Path) -> None:
    """By a commit; rows without a time stay."""
    place: dict[str, Any] = {"url": str(tmp_path / "table")}
    rows = [metric(1.0), metric(2.0, time=2**62), Message("m", {}, 3.0, None)]
    async with DeltaSink(**place, retention=Duration(86_400)) as sink:
        await sink.write(to_lines(rows))
        await eventually(lambda: len(rows_of(place)) == 2)
    assert sorted(rows_of(place)["value"].to_pylist()) == [2.0, 3.0]


async def test_files_no_longer_of_the_table_are_deleted(
    place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those merged into others, and those of killed bridges, once they are old enough."""
    await write(place, 4, compact=False)
    address = DeltaAddress(**place)
    with address.files().open_output_stream("cluster=fox/date=2025-02-20/killed.parquet"):
        pass

    def count() -> int:
        found = address.files().get_file_info(FileSelector("cluster=fox", recursive=True))
        return sum(each.path.endswith(".parquet") for each in found)

    table = address.open()
    table.optimize.compact()
    remove_unreferenced(table, 86_400)
    assert count() == 6, "they are too young"
    monkeypatch.setattr(maintenance, "HOUR", 2**40)
    remove_unreferenced(table, 3600)
    assert count() == 1
    assert len(rows_of(place)) == 4
