"""A source that is read in the background, and metrics to send to it."""

from ccpipe.bus.mqtt.source import MqttSource
from ccpipe.message import Message, metric
from tests.conftest import eventually
from tests.reading import Reader

SECOND = 10**9
NOON = 1_740_052_800 * SECOND
TAGS = {"cluster": "fox.test", "hostname": "n1", "type": "node"}


def metrics(count: int, start: int = 0) -> list[Message]:
    return [
        metric("m", float(i), time=NOON + i * SECOND, tags=TAGS)
        for i in range(start, start + count)
    ]


async def subscribed(source: MqttSource) -> None:
    await eventually(lambda: source._session is not None and source._session.is_subscribed, 60)


async def remember(source: MqttSource) -> None:
    async with Reader(source):
        await subscribed(source)
