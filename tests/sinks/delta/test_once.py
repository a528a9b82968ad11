"""Messages that are delivered again, also to another bridge, are in the table once."""

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import to_lines
from ccpipe.records import MessageRange
from ccpipe.sinks.delta import DeltaSink
from ccpipe.sinks.delta.messages import CommittedMessages, application
from tests.deliveries import delivered
from tests.sinks.delta.conftest import stored
from tests.sinks.kills import LINES
from tests.sinks.parquet.test_sink_once import delivery


async def write(sink: DeltaSink, *numbers: int) -> None:
    await sink.write(to_lines(delivered(*delivery(*numbers))))


def once(*numbers: int) -> Counter[int]:
    return Counter(dict.fromkeys(numbers, LINES))


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=8, unique=True), max_size=4),
    st.booleans(),
)
def test_messages_are_stored_once_in_any_batches(
    batches: Sequence[Sequence[int]], again: bool
) -> None:
    """Halved, joined or in another order, by one bridge or several: each is stored once."""

    async def run(place: dict[str, Any]) -> None:
        sink = await DeltaSink(**place).__aenter__()
        for numbers in batches:
            sink = DeltaSink(**place) if again else sink
            await write(sink, *numbers)

    with tempfile.TemporaryDirectory() as directory:
        place: dict[str, Any] = {"url": f"{directory}/table"}
        asyncio.run(run(place))
        assert stored(place) == once(*(n for batch in batches for n in batch))


async def test_messages_committed_meanwhile_by_another_bridge_are_skipped(
    place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other bridge commits after ours has read the table: our commit fails, and is redone."""
    async with DeltaSink(**place) as first, DeltaSink(**place) as second:
        await write(first, 0)
        current = first._current

        def overtaken() -> Any:
            table = current()
            monkeypatch.undo()
            second._write(to_lines(delivered(*delivery(2, 3))))
            return table

        monkeypatch.setattr(first, "_current", overtaken)
        await write(first, 1, 2)
    assert stored(place) == once(0, 1, 2, 3)


async def test_bridges_that_create_a_table_at_once_store_messages_once(
    place: dict[str, Any],
) -> None:
    """Each gets the same messages: one of them stores them."""
    sinks = [DeltaSink(**place) for _ in range(4)]
    await asyncio.gather(*(write(sink, 1, 2) for sink in sinks))
    assert stored(place) == once(1, 2)


async def test_restarted_bridge_reads_all_commits_of_its_consumer(place: dict[str, Any]) -> None:
    """Commits of files, and of other consumers, lie between; older ones are not read."""
    async with DeltaSink(**place) as sink:
        await write(sink, 1)
        await write(sink, 2)
        records, provenance = delivery(1)
        provenance.consumers = ["other"]
        await sink.write(to_lines(delivered(records, provenance)))
        table = sink._current()
        assert table.transaction_version(application("c")) == 2
        known = CommittedMessages(sink.address.files())
        messages = [MessageRange("c", 9, 9, 1000, 1000)]
        assert known.overlapping(table, messages) == [MessageRange("c", 1, 2, 1001, 1002)]
        assert known._first == 1, "the commit that created the table was not read"
        assert known.overlapping(table, [MessageRange("new", 1, 1, 1000, 1000)]) == []
    async with DeltaSink(**place) as sink:
        await write(sink, 1, 2, 3)
    assert stored(place) == once(1, 2, 3) + once(1)


async def test_commits_before_a_message_are_not_searched(tmp_path: Path) -> None:
    """A message cannot be in a commit that is older than itself."""
    place: dict[str, Any] = {"url": str(tmp_path / "table")}
    async with DeltaSink(**place) as sink:
        for number in range(5):
            await write(sink, number)
        known = CommittedMessages(sink.address.files())
        later = 2**62
        assert len(known.overlapping(sink._current(), [MessageRange("c", 9, 9, later, later)])) == 1
        assert known._first == 5


async def test_truncated_log_ends_the_search(tmp_path: Path) -> None:
    """Commits older than a checkpoint may be removed."""
    place: dict[str, Any] = {"url": str(tmp_path / "table")}
    async with DeltaSink(**place) as sink:
        for number in range(3):
            await write(sink, number)
        sink._current().create_checkpoint()
        for version in (0, 1, 2):
            os.unlink(tmp_path / f"table/_delta_log/{version:020}.json")  # noqa: PTH108
    async with DeltaSink(**place) as sink:
        await write(sink, 2, 3)
    assert stored(place) == once(0, 1, 2, 3)


async def test_records_without_message_are_stored_as_often_as_they_are_written(
    tmp_path: Path,
) -> None:
    """Files and standard input are read by one reader, and delivered once."""
    place: dict[str, Any] = {"url": str(tmp_path / "table")}
    records, _ = delivery(1)
    async with DeltaSink(**place) as sink:
        await sink.write(to_lines(records))
        await sink.write(to_lines(records))
    assert stored(place) == once(1) + once(1)
