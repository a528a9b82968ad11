"""``NullSink``: everything is discarded."""

from ccpipe.sinks.null import NullSink
from tests.sinks.conftest import Given, carry, metric


async def test_null_sink_acknowledges_everything() -> None:
    """Nothing becomes a dead letter."""
    assert await carry(Given([metric(1.5)], [metric("text"), metric(True)], []), NullSink()) == []
