"""The broker's streams and the durable consumers that read them."""

from collections.abc import Sequence

import nats.errors
from nats.js import api

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.explain import explain

MAX_STREAMS = 256
"""Maximum number of streams examined: one page of the broker's answer."""


async def streams_and_consumers(
    bus: Connection,
) -> tuple[Sequence[api.StreamInfo], Sequence[api.ConsumerInfo]]:
    """Return the broker's streams and their durable consumers.

    Raises
    ------
    UnavailableError
        if JetStream is off or does not answer.
    DeniedError
        if we may not list them.

    """
    jetstream = bus.jetstream()
    try:
        streams = (await jetstream.streams_info())[:MAX_STREAMS]
        consumers: list[api.ConsumerInfo] = []
        for stream in streams:
            if stream.state.consumer_count:
                consumers += await jetstream.consumers_info(str(stream.config.name))
    except (nats.errors.Error, TimeoutError) as error:
        raise explain(error, "inspecting streams") from None
    return streams, [each for each in consumers if each.config and each.config.durable_name]
