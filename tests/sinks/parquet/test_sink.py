"""``ParquetSink``: complete files under their names, readable by DuckDB and pyarrow alike."""

import asyncio
import importlib
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import CreateError, MissingExtra, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message
from ccpipe.sinks.parquet import NULL, PATH_COLUMNS, ParquetSink
from ccpipe.sinks.parquet.files import LEFTOVER_AGE
from tests.sinks.conftest import (
    NOON,
    SECOND,
    Given,
    carry,
    carry_again,
    forbidden,
    full_disk,
    messages_with,
    metric,
    names,
)

DAY = 86400 * SECOND


def by_duckdb(directory: Path, columns: str) -> Counter[tuple[Any, ...]]:
    rows = duckdb.sql(
        "FROM read_parquet($files, hive_partitioning = true, hive_types = {'cluster': VARCHAR})",
        params={"files": f"{directory}/**/*.parquet"},
    )
    assert rows is not None
    return Counter(rows.select(columns).fetchall())


def by_pyarrow(directory: Path, *columns: str) -> Counter[tuple[Any, ...]]:
    dataset = ds.dataset(directory, partitioning=ds.partitioning(PATH_COLUMNS, flavor="hive"))
    table = dataset.to_table(columns=[*columns, "ns"])
    if "time" in columns:
        place = table.schema.get_field_index("time")
        micros = table["time"].cast(pa.int64())
        times = pc.add(pc.multiply(micros, 1000), table["ns"])
        table = table.set_column(place, "time", times)
    return Counter(zip(*(table[column].to_pylist() for column in columns), strict=True))


async def write(directory: Path, *batches: list[Message]) -> list[Path]:
    async with ParquetSink(dir=str(directory)) as sink:
        for batch in batches:
            await sink.write(to_lines(batch))
    return sorted(path.relative_to(directory) for path in directory.rglob("*") if path.is_file())


clusters = names | st.sampled_from(
    ["..", ".", "../../x", "/", "NULL", "007", "a=b", "*", "[a]", "%41"]
)


@given(st.lists(messages_with(cluster=clusters), min_size=1, max_size=5))
def test_parquet_files_are_read_by_duckdb_and_pyarrow(messages: list[Message]) -> None:
    """Both find every row with its cluster and day, for any cluster name.

    No name leads out of the directory: each file is two directories below.
    """
    expected = Counter(
        (m.tags.get("cluster"), m.name, m.time, m.value if isinstance(m.value, str) else None)
        for m in messages
    )
    days = Counter(m.time // DAY for m in messages if m.time is not None)
    with tempfile.TemporaryDirectory() as parent:
        directory = Path(parent) / "store"
        files = asyncio.run(write(directory, messages))
        assert list(Path(parent).iterdir()) == [directory]
        assert all(len(path.parts) == 3 and path.suffix == ".parquet" for path in files)
        assert by_pyarrow(directory, "cluster", "name", "time", "text") == expected
        assert (
            by_duckdb(directory, "cluster, name, epoch_us(time)::HUGEINT * 1000 + ns, text")
            == expected
        )
        assert by_duckdb(directory, "date - DATE '1970-01-01'") == Counter(
            {(day,): count for day, count in days.items()}
        )


async def test_parquet_layout_is_one_file_per_cluster_and_day(tmp_path: Path) -> None:
    """In UTC, for each batch; missing values have Hive's name."""
    midnight = NOON + DAY // 2
    untagged = Message("m", {"hostname": "n1"}, 1.0, NOON)
    files = await write(
        tmp_path,
        [
            metric(1.0, time=midnight - 1),
            metric(2.0, time=midnight, cluster="a/b c"),
            metric(3.0, time=midnight),
            metric(4.0, time=midnight + 1),
            untagged,
            Message("m", {"cluster": "fox"}, 1.0, None),
        ],
    )
    assert [str(path.parent) for path in files] == [
        f"cluster={NULL}/date=2025-02-20",
        "cluster=a%2Fb%20c/date=2025-02-21",
        "cluster=fox/date=2025-02-20",
        "cluster=fox/date=2025-02-21",
        f"cluster=fox/date={NULL}",
    ]
    assert len(pq.ParquetFile(tmp_path / files[3]).read()) == 2


async def test_readers_infer_clusters_and_days_from_hive_layout(tmp_path: Path) -> None:
    await write(tmp_path, [metric(1.0), metric(2.0, cluster="e d")])
    guessed = duckdb.read_parquet(f"{tmp_path}/**/*.parquet", hive_partitioning=True)
    assert sorted(guessed.select("cluster, date::VARCHAR, value").fetchall()) == [
        ("e d", "2025-02-20", 2.0),
        ("fox", "2025-02-20", 1.0),
    ]
    table = ds.dataset(tmp_path, partitioning="hive").to_table(["cluster", "date", "value"])
    assert sorted(table.to_pydict()["cluster"]) == ["e d", "fox"]


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "none"])
async def test_parquet_compression_is_as_configured(tmp_path: Path, compression: Any) -> None:
    async with ParquetSink(dir=str(tmp_path), compression=compression) as sink:
        await sink.write(to_lines([metric(1.0)]))
    (path,) = tmp_path.rglob("*.parquet")
    used = pq.ParquetFile(path).metadata.row_group(0).column(0).compression
    assert used == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


async def test_rows_with_too_long_cluster_name_are_rejected(tmp_path: Path) -> None:
    """They are named; other rows are written."""
    records = [
        metric(1.0),
        metric(2.0, cluster="ü" * 50),
        metric(3.0),
        metric(4.0, cluster="x" * 247),
    ]
    with pytest.raises(RejectedError, match="too long") as caught:
        await write(tmp_path, records)
    assert caught.value.indices == [1]
    letters = await carry(Given(records), ParquetSink(dir=str(tmp_path)))
    assert ["value=2.0" in str(letter.original) for letter in letters] == [True]
    assert by_pyarrow(tmp_path, "value") == Counter([(1.0,), (3.0,), (4.0,)])


async def test_full_disk_leaves_no_file_of_batch(tmp_path: Path) -> None:
    chance = random.Random(1)  # compresses to nothing small
    many = [metric(1.0, cluster="a"), *(metric(chance.random()) for _ in range(50_000))]
    async with ParquetSink(dir=str(tmp_path)) as sink:
        with full_disk(2**16), pytest.raises(UnavailableError, match="too large"):
            await sink.write(to_lines(many))
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
        await sink.write(to_lines(many))
    assert by_pyarrow(tmp_path, "cluster") == Counter({("a",): 1, ("fox",): 50_000})


async def test_unfinished_files_of_dead_writers_are_removed_at_start(tmp_path: Path) -> None:
    """Only those too old to have a writer."""
    (finished,) = await write(tmp_path, [metric(1.0)])
    directory = (tmp_path / finished).parent
    old = time.time() - LEFTOVER_AGE - 1
    kept = [directory / name for name in (".young.tmp", "mine.tmp", ".hidden", "notes.txt")]
    for path in [*kept, directory / ".old.tmp"]:
        path.touch()
        if path.name != ".young.tmp":
            os.utime(path, (old, old))
    assert set(await write(tmp_path)) == {p.relative_to(tmp_path) for p in kept} | {finished}
    assert by_duckdb(tmp_path, "value") == Counter([(1.0,)])


async def test_write_is_retried_if_its_unfinished_file_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by another bridge that mistook it for a leftover.

    No file of the batch stays, not even one that had its name already.
    """
    rename = Path.rename

    def come_too_late(path: Path, target: Path) -> Path:
        if list(tmp_path.rglob("*.parquet")):
            path.unlink()
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", come_too_late)
        with pytest.raises(UnavailableError, match="No such file"):
            await write(tmp_path, [metric(1.0), metric(2.0, cluster="second")])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_parquet_file_is_synced_before_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The complete file before it gets its name, and the name before ``write()`` returns."""
    synced: list[tuple[Path, int, list[Path]]] = []
    fsync = os.fsync

    def watch(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path, path.stat().st_size, list(tmp_path.rglob("*.parquet"))))
        fsync(descriptor)

    async with ParquetSink(dir=str(tmp_path)) as sink:
        await sink.write(to_lines([metric(1.0)]))  # makes the directories
        (first,) = tmp_path.rglob("*.parquet")
        monkeypatch.setattr(os, "fsync", watch)
        await sink.write(to_lines([metric(2.0)]))
    (second,) = set(tmp_path.rglob("*.parquet")) - {first}
    aside = second.with_name(f".{second.stem}.tmp")
    assert [(path, first in names, second in names) for path, _, names in synced] == [
        (aside, True, False),
        (second.parent, True, True),
    ]
    assert synced[0][1] == second.stat().st_size


async def test_parquet_sink_is_retried_after_failure(tmp_path: Path) -> None:
    """A directory that is lost for a while gets every batch afterwards, each of them once."""
    directory = tmp_path / "store"

    def break_it() -> None:
        directory.rmdir()
        directory.touch()

    source = Given([metric(1.0)], [metric(2.0)], first=break_it)
    await carry_again(source, ParquetSink(dir=str(directory)), directory.unlink)
    assert by_pyarrow(directory, "value") == Counter([(1.0,), (2.0,)])


async def test_check_tests_directory_without_creating_it(tmp_path: Path) -> None:
    await ParquetSink(dir=str(tmp_path / "new" / "store")).check()
    assert list(tmp_path.iterdir()) == []
    with forbidden(tmp_path / "directory") as directory:
        sink = ParquetSink(dir=str(directory / "store"))
        with pytest.raises(CreateError, match="no write permission"):
            await sink.check()
        with pytest.raises(CreateError, match="Permission denied"):
            async with sink:
                pass


def test_sink_names_what_to_install_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in [name for name in sys.modules if name.startswith("ccpipe.sinks.parquet")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match=r"pip install 'ccpipe\[parquet\]'"):
        importlib.import_module("ccpipe.sinks.parquet")
