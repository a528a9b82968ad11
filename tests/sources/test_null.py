"""The source of generated metrics."""

import pytest

from ccpipe.errors import ConfigError
from ccpipe.message import Message
from ccpipe.sources.null import NullSource


async def test_source_yields_configured_number_of_valid_metrics() -> None:
    """Batches of lines that break no rule, counting up over all of them."""
    batches = [batch async for batch in NullSource(batches=3, lines=2).batches()]
    records = [record for batch in batches for record in batch.records]
    assert [len(batch.records) for batch in batches] == [2, 2, 2]
    assert [record.value for record in records] == [0, 1, 2, 3, 4, 5]
    assert all(isinstance(record, Message) and not record.problems() for record in records)


async def test_stop_ends_source_after_current_batch() -> None:
    source = NullSource(batches=1000)
    seen = 0
    async for _ in source.batches():
        seen += 1
        if seen == 2:
            source.stop()
    assert seen == 2


def test_source_rejects_negative_number() -> None:
    with pytest.raises(ConfigError, match="batches is -1"):
        NullSource(batches=-1)
