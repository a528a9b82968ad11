"""JetStream streams to measure bridges with: few and many lines a message, and new series."""

from collections.abc import Iterator

import nats
import nats.js.errors
from nats.aio.client import Client

from benchmarks.payloads import new_series, payload, realistic

NEW = "new"
"""The stream of which every line has a series of its own, 500 to a message."""
FEW_NEW = "few-new"
"""The same, of fewer lines: a stream for stores that take long."""
EMPTY = "empty"
"""The stream without messages, for the cost of a start."""


def payloads(row: str, count: int) -> Iterator[bytes]:
    """Yield the messages of one stream, of `count` lines together."""
    if row in (NEW, FEW_NEW):
        for start in range(0, count, 500):
            yield payload(list(new_series(start, min(start + 500, count))))
    elif row != EMPTY:
        size = int(row)
        lines = realistic(50_000)
        usual = [payload(lines[at : at + size]) for at in range(0, len(lines) - size + 1, size)]
        for number in range(count // size):
            yield usual[number % len(usual)]


def subject(row: str) -> str:
    """Return the subject of a stream's messages."""
    return f"bench.{row}"


def stream(row: str) -> str:
    """Return the name of a stream."""
    return f"s{row}"


async def publish(url: str, row: str, count: int) -> None:
    """Store `count` lines in a stream of their own."""
    connection = await nats.connect(url)
    jetstream = connection.jetstream()
    await jetstream.add_stream(name=stream(row), subjects=[subject(row)], max_bytes=4 * 2**30)
    for number, message in enumerate(payloads(row, count)):
        await connection.publish(subject(row), message)
        if number % 500 == 0:
            await connection.flush(60)
    await connection.drain()


async def drop(url: str, row: str) -> None:
    """Delete a stream."""
    connection = await nats.connect(url)
    await connection.jetstream().delete_stream(stream(row))
    await connection.close()


async def unread(connection: Client, row: str, durable: str) -> int:
    """Return the messages of a stream that a consumer, which may not exist yet, has to do."""
    jetstream = connection.jetstream()
    try:
        consumer = await jetstream.consumer_info(stream(row), durable)
    except nats.js.errors.NotFoundError:
        return 1
    return (consumer.num_pending or 0) + (consumer.num_ack_pending or 0)
