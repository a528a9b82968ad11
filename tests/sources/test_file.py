"""Line protocol from files and standard input."""

import asyncio
import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from ccpipe.errors import ConfigError, DataError, MissingInputError
from ccpipe.pipeline import Batch
from ccpipe.sources.file import FileSource, StdinSource

LINE = b"m,hostname=n1 value=%d 1740000000\n"


async def batches(source: FileSource) -> list[Batch[Any]]:
    return [batch async for batch in source.batches()]


async def test_source_reads_files_in_order(tmp_path: Path) -> None:
    """Plain and compressed, each line once, with its file as origin."""
    (tmp_path / "a.lp").write_bytes(LINE % 1 + b"# comment\n" + LINE % 2)
    (tmp_path / "b.lp.gz").write_bytes(gzip.compress(LINE % 3))
    paths = [str(tmp_path / "a.lp"), str(tmp_path / "b.lp.gz")]
    found = [batch for batch in await batches(FileSource(paths=paths)) if len(batch.records)]
    assert [[line.value for line in batch.records] for batch in found] == [[1, 2], [3]]
    assert [batch.origin for batch in found] == paths


async def test_batch_size_is_bounded_by_block(tmp_path: Path) -> None:
    """However large the file, a batch has some hundred kilobytes of it."""
    path = tmp_path / "large.lp"
    path.write_bytes(LINE % 7 * 100_000)
    sizes = [len(batch.records.payload) for batch in await batches(FileSource(paths=[str(path)]))]
    assert sum(sizes) == path.stat().st_size
    assert max(sizes) < 2**18 + len(LINE)


async def test_bad_line_is_rejected_alone(tmp_path: Path) -> None:
    """It is rejected with its number in the file, also where it is in a later block."""
    path = tmp_path / "a.lp"
    path.write_bytes(LINE % 1 * 20_000 + b"broken\n" + LINE % 2)
    found = await batches(FileSource(paths=[str(path)]))
    (bad,) = [bad for batch in found for bad in batch.records.rejected]
    assert (bad.line, bad.original) == (20_001, b"broken")
    assert sum(len(batch.records) for batch in found) == 20_001


async def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"none\.lp: No such file"):
        await batches(FileSource(paths=[str(tmp_path / "none.lp")]))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(os.urandom(5000))[:-100])
    with pytest.raises(DataError, match=r"cut\.gz: the compressed file is truncated"):
        await batches(FileSource(paths=[str(tmp_path / "cut.gz")]))
    with pytest.raises(ConfigError, match="cannot be read"):
        await FileSource(paths=[str(tmp_path / "none.lp")]).check()


async def test_source_ends_if_stopped_while_waiting(tmp_path: Path) -> None:
    """Also on a pipe without a writer."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    os.write(writer, LINE % 1)
    source = FileSource(paths=[str(path)])
    reading = source.batches()
    first = await anext(reading)
    assert [line.value for line in first.records] == [1]
    asyncio.get_running_loop().call_later(0.1, source.stop)
    assert [batch async for batch in reading] == []
    os.close(writer)


def test_source_rejects_invalid_options() -> None:
    with pytest.raises(ConfigError, match="paths is empty"):
        FileSource(paths=[])
    with pytest.raises(ConfigError, match="rate is -1"):
        StdinSource(rate=-1)


@pytest.mark.parametrize(
    "growth", [b"", b"tail,hostname=n1,type=node value=8 1740052800\n" * 50_000]
)
async def test_growing_file_ends_at_its_size_at_the_start(tmp_path: Path, growth: bytes) -> None:
    """Data appended meanwhile is not read, except for the rest of the last line."""
    path = tmp_path / "a.lp"
    line = b"m,hostname=n1,type=node value=%d 1740052800\n"
    text = b"".join(line % n for n in range(20_000))
    path.write_bytes(text + (line % 7)[:-15])
    other = tmp_path / "b.lp"
    other.write_bytes(line % 1)
    values: list[object] = []
    async for batch in FileSource(paths=[str(path), str(other)]).batches():
        if not values:
            for each in (path, other):
                with each.open("ab") as file:
                    file.write((line % 7)[-15:] + growth if each is path else growth)
        values += [record.value for record in batch.records]
        assert not batch.records.rejected
    assert values == [*range(20_000), 7, 1]
