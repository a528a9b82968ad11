"""Age of the newest message on a subject."""

from collections.abc import Iterable
from datetime import UTC, datetime

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.streams.jetstream import names_of, stream_of, time_of_last


async def newest(bus: Connection, patterns: Iterable[str]) -> float | None:
    """Return the age in seconds of the newest message that a stream stores on subjects.

    Subjects may have wildcards; None if there is no message. Both times are the broker's.

    Raises
    ------
    UnavailableError, DeniedError
        if JetStream does not answer, or denies access.

    """
    jetstream = bus.jetstream()
    ages = []
    for pattern in patterns:
        for name in await names_of(jetstream, pattern):
            stored = await time_of_last(jetstream, name, pattern)
            stream = await stream_of(jetstream, name)
            if stored is not None and stream is not None:
                now = stream.ts or datetime.now(UTC)
                ages.append(max(0.0, (now - stored).total_seconds()))
    return min(ages, default=None)
