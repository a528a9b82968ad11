"""Recent messages of a stream, read once without side effects."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import nats.errors
import nats.js.errors
from nats.js import JetStreamContext, api

from ccpipe.bus.nats.connection import Connection, Delivery
from ccpipe.bus.nats.explain import explain
from ccpipe.bus.nats.protocol.frames import write_header
from ccpipe.bus.nats.streams.jetstream import names_of, stream_of
from ccpipe.bus.nats.streams.partitions import published, stored

FETCH = 500
FETCH_SECONDS = 2.0
ABANDONED_SECONDS = 30.0
"""Time after which the broker removes a consumer whose reader died."""


async def replay(
    bus: Connection, pattern: str, *, since: float, maximum: int
) -> AsyncIterator[Sequence[Delivery]]:
    """Yield what the stream of `pattern` stores since a time (seconds since the epoch), in order.

    At most `maximum` messages, the oldest first; none if no stream stores the subject. Nothing is
    acknowledged, and bridges are not affected.

    Raises
    ------
    UnavailableError
        if JetStream does not answer.
    DeniedError
        if access is denied.

    """
    jetstream = bus.jetstream()
    patterns = await _stored(jetstream, pattern)
    config = api.ConsumerConfig(
        deliver_policy=api.DeliverPolicy.BY_START_TIME,
        opt_start_time=datetime.fromtimestamp(since, UTC),
        ack_policy=api.AckPolicy.NONE,
        inactive_threshold=ABANDONED_SECONDS,
        mem_storage=True,
        filter_subjects=patterns if len(patterns) > 1 else None,
        description="a reader of recent messages",
    )
    try:
        subscription = await jetstream.pull_subscribe(pattern, config=config)
    except nats.js.errors.NotFoundError:
        return  # no stream stores it
    except (nats.errors.Error, TimeoutError) as error:
        raise explain(error, f"reading {pattern}") from None
    consumer: api.ConsumerInfo | None = None
    try:
        consumer = await subscription.consumer_info()
        left = min(consumer.num_pending or 0, maximum)
        while left > 0:
            messages = await subscription.fetch(min(left, FETCH), timeout=FETCH_SECONDS)
            left -= len(messages)
            subject_of = published if len(patterns) > 1 else str
            yield [
                Delivery(subject_of(m.subject), m.data, write_header(m.headers or {}), m.reply)
                for m in messages
            ]
    except (nats.errors.Error, TimeoutError) as error:
        raise explain(error, f"reading {pattern}") from None
    finally:
        with contextlib.suppress(nats.errors.Error, TimeoutError):
            await subscription.unsubscribe()
            if consumer is not None:
                await jetstream.delete_consumer(consumer.stream_name, consumer.name)


async def _stored(jetstream: JetStreamContext, pattern: str) -> list[str]:
    """Return the pattern as the stream stores it: with each number of partitions it has had."""
    names = await names_of(jetstream, pattern)
    stream = await stream_of(jetstream, names[0]) if names else None
    return stored(stream.config, pattern) if stream else [pattern]
