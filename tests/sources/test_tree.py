"""``TreeSource``: all envelopes of a tree, each once."""

import asyncio
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccpipe.config import Interval
from ccpipe.errors import ConfigError, EncodeError, MissingInputError
from ccpipe.formats.sonar import (
    Envelope,
    SampleAttributes,
    SampleData,
    SampleEnvelope,
    encode,
    timestamp,
)
from ccpipe.formats.sonar.file_tree import path_of
from ccpipe.pipeline import Batch
from ccpipe.sinks.tree import TreeSink
from ccpipe.sources.tree import TreeSource
from tests.formats.sonar.strategies import envelopes
from tests.reading import read_all

SECOND = 10**9
DAY = 86400 * SECOND
NOON = 1740052800 * SECOND
"""2025-02-20T12:00:00Z"""
SOON = Interval(0.01)


def sample(time: int = NOON, node: str = "n1") -> Envelope:
    attributes = SampleAttributes(time=timestamp.write(time), cluster="fox", node=node)
    return SampleEnvelope(data=SampleData(attributes=attributes))


def put(root: Path, *found: Envelope) -> Path:
    for envelope in found:
        path = root / path_of(envelope)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(encode(envelope))
    return path


def has_file(envelope: Envelope) -> bool:
    try:
        path_of(envelope)
    except EncodeError:
        return False
    return True


@settings(
    max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(st.lists(envelopes.filter(has_file), max_size=5), st.booleans())
def test_source_reads_what_sink_wrote(found: list[Envelope], cluster_directories: bool) -> None:
    """Every envelope that has a file, equal, and nothing else."""

    async def there_and_back(root: str) -> list[Envelope]:
        async with TreeSink(
            dir=root, cluster_directories=cluster_directories, profile="spec"
        ) as sink:
            await sink.write(found)
        return await read_all(TreeSource(dir=root, cluster_directories=cluster_directories))

    with tempfile.TemporaryDirectory() as root:
        back = asyncio.run(there_and_back(root))
    assert sorted(map(encode, back)) == sorted(map(encode, found))
    assert all(envelope in back for envelope in found)


async def test_source_reads_range_of_days(tmp_path: Path) -> None:
    days = [sample(NOON + day * DAY) for day in range(4)]
    put(tmp_path, *reversed(days))
    assert await read_all(TreeSource(dir=str(tmp_path))) == days
    some = TreeSource(dir=str(tmp_path), start="2025-02-21", end="2025-02-22")
    assert await read_all(some) == days[1:3]


async def test_invalid_envelope_is_rejected(tmp_path: Path) -> None:
    """With its position; the others of the file are read, and memory is bounded by blocks."""
    path = put(tmp_path, *[sample(NOON + n * SECOND) for n in range(5000)])
    with path.open("ab") as file:
        file.write(b"broken\n")
    put(tmp_path, sample())
    batches = [batch async for batch in TreeSource(dir=str(tmp_path)).batches()]
    assert sum(len(batch.records) for batch in batches) == 5001
    assert len(batches) > 1
    (bad,) = [bad for batch in batches for bad in batch.records.rejected]
    assert (bad.line, bad.original) == (5001, b"broken")
    assert {batch.origin for batch in batches} == {str(path)}


async def test_unreadable_file_is_skipped(tmp_path: Path) -> None:
    (put(tmp_path, sample()).parent / "0+sample-a.json").mkdir()
    reading = TreeSource(dir=str(tmp_path)).batches()
    assert list((await anext(reading)).records) == [sample()]
    with pytest.raises(MissingInputError, match=r"1 files .*0\+sample-a\.json: Is a directory"):
        await anext(reading)


async def test_source_follows_appended_data(tmp_path: Path) -> None:
    """Only complete envelopes, also in new files."""
    today = int(datetime.now(UTC).timestamp()) * SECOND
    whole = encode(sample(today, "n2"))
    path = put(tmp_path, sample(today), sample(today, "n2"))
    source = TreeSource(dir=str(tmp_path), follow=True, poll_interval=SOON)
    reading = source.batches()

    async def next_ones() -> list[Envelope]:
        batch: Batch[Any] = await asyncio.wait_for(anext(reading), 30)
        assert batch.ack
        await batch.ack()
        return list(batch.records)

    assert await next_ones() == [sample(today)]
    assert await next_ones() == [sample(today, "n2")]
    with path.open("ab", buffering=0) as file:
        file.write(whole[:40])
        put(tmp_path, sample(today, "n3"))
        assert await next_ones() == [sample(today, "n3")]
        file.write(whole[40:])
        assert await next_ones() == [sample(today, "n2")]
    source.stop()
    assert [batch async for batch in reading] == []


@pytest.mark.parametrize("age", [0, 400])
async def test_source_skips_acknowledged_data_after_restart(tmp_path: Path, age: int) -> None:
    """In today's directory and in an old one."""
    root, state = tmp_path / "data", str(tmp_path / "state")
    time = int((datetime.now(UTC) - timedelta(age)).timestamp()) * SECOND
    put(root, sample(time, "n1"), sample(time, "n2"))

    async def some(count: int, *, acknowledged: bool) -> list[Envelope]:
        found: list[Envelope] = []
        async with TreeSource(
            dir=str(root), follow=True, poll_interval=SOON, state_file=state
        ) as source:
            async with asyncio.timeout(30):
                async for batch in source.batches():
                    found += list(batch.records)
                    if acknowledged:
                        assert batch.ack
                        await batch.ack()
                    if len(found) == count:
                        source.stop()
        return found

    assert await some(1, acknowledged=True) == [sample(time, "n1")]
    assert await some(1, acknowledged=False) == [sample(time, "n2")]
    assert await some(1, acknowledged=True) == [sample(time, "n2")]
    now = int(datetime.now(UTC).timestamp()) * SECOND
    put(root, sample(now, "n4"))
    assert await some(1, acknowledged=True) == [sample(now, "n4")]


async def test_completed_days_are_forgotten(tmp_path: Path) -> None:
    put(tmp_path, *[sample(NOON + day * DAY) for day in range(20)])
    source = TreeSource(dir=str(tmp_path), follow=True, poll_interval=SOON)
    count = 0
    async with asyncio.timeout(30):
        async for batch in source.batches():
            assert batch.ack
            await batch.ack()
            assert len(source._done) <= 1
            assert len(source._read) <= 1
            count += 1
            if count == 20:
                source.stop()
    assert count == 20


async def test_source_rejects_invalid_options(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="start: not a day: 'monday'"):
        TreeSource(dir="x", start="monday")
    with pytest.raises(ConfigError, match="after end"):
        TreeSource(dir="x", start="2025-02-21", end="2025-02-20")
    with pytest.raises(ConfigError, match="state_file is for follow"):
        TreeSource(dir="x", state_file="y")
    with pytest.raises(ConfigError, match="is not a directory"):
        await TreeSource(dir=str(tmp_path / "none")).check()
    with pytest.raises(MissingInputError, match="is not a directory"):
        await read_all(TreeSource(dir=str(tmp_path / "none")))
