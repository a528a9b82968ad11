"""``NullSink``: everything is taken, nothing is kept."""

from ccpipe.sinks.null import NullSink
from tests.sinks.conftest import Given, carry, metric


async def test_it_takes_everything() -> None:
    """Every batch is acknowledged and none becomes a dead letter."""
    assert await carry(Given([metric(1.5)], [metric("text"), metric(True)], []), NullSink()) == []
