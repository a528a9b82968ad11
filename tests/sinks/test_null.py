"""``NullSink``: everything is discarded."""

from ccpipe.sinks.null import NullSink
from tests.sinks.conftest import Given, carry, metric


async def test_everything_is_acknowledged() -> None:
    """Every batch is acknowledged and none becomes a dead letter."""
    assert await carry(Given([metric(1.5)], [metric("text"), metric(True)], []), NullSink()) == []
