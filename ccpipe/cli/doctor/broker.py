"""What ``ccpipe doctor`` finds on the broker: its answer, clock, permissions, streams and lag."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.errors import ForbiddenError
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.streams.jetstream import age_of_newest, stream_of
from ccpipe.bus.nats.streams.reconcile import Survey, survey
from ccpipe.bus.nats.streams.stream import ABSENT, stream_name
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.check import (
    FULL_CRITICAL,
    FULL_WARNING,
    Finding,
    Status,
    compare,
    shares,
)
from ccpipe.config import Site
from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.terminal import format_duration, in_bytes, plural

ANSWER_SECONDS = 5.0
CLOCK_WARNING, CLOCK_CRITICAL = 1.0, 30.0
"""Seconds between our clock and the broker's: times of metrics, and of events, get wrong."""
LAG_WARNING, LAG_CRITICAL = 1000, 10_000
"""Messages that a bridge has not read yet, as for ``ccpipe check lag``."""
STALE_SECONDS = 300.0
"""Age of the newest metrics from which no publisher can be running."""
KINDS = ("metrics", "events", "log", "sonar", "dead", "control")


async def broker(bus: Connection, site: Site) -> AsyncIterator[Finding]:
    """Yield all findings over an open connection."""
    before = time.monotonic()
    if not await bus.answers(ANSWER_SECONDS):
        text = f"{bus.url} does not answer within {ANSWER_SECONDS:g} s"
        yield Finding("broker", Status.CRITICAL, text)
        return
    taken = (time.monotonic() - before) * 1000
    text = f"nats-server {bus.server_version} at {bus.url} answers in {taken:.1f} ms"
    yield Finding("broker", Status.OK, text)
    yield await permissions(bus, Subjects.of(site))
    if site.bus.jetstream:
        for finding in await stored(bus, site):
            yield finding


async def stored(bus: Connection, site: Site) -> list[Finding]:
    """Return what streams tell, as far as this user may read them."""
    try:
        async with bus.permissions.replying(f"{bus.api_prefix}.>", probe=True):
            found = await survey(bus, site)
            return [
                *streams(found),
                await clock(bus, found),
                await freshness(bus, site),
                await dead_letters(bus, site),
            ]
    except (DeniedError, ForbiddenError):
        text = "this user may not read streams, which needs the permissions of a bridge"
        return [Finding("streams", Status.UNKNOWN, text)]
    except UnavailableError as error:
        return [Finding("streams", Status.CRITICAL, str(error))]


async def permissions(bus: Connection, subjects: Subjects) -> Finding:
    """Return what we may subscribe to; nothing is published to find out more."""
    refused: set[str] = set()
    allowed: list[str] = []
    denied: list[str] = []
    with bus.permissions.subscribing(refused.add):
        for kind in KINDS:
            patterns = subjects.patterns((kind,))
            for pattern in patterns:
                await bus.subscribe(pattern, _ignore)
            await bus.answers(ANSWER_SECONDS)
            await asyncio.sleep(0)  # errors are reported by a task
            (denied if refused.intersection(patterns) else allowed).append(kind)
    text = f"may subscribe to {', '.join(allowed) or 'nothing'}"
    if denied:
        text += f"; not to {', '.join(denied)}"
    return Finding("permissions", Status.OK, text)


def _ignore(_: Delivery) -> None:
    """Ignore a message: only the permission matters."""


def streams(found: Survey) -> Iterator[Finding]:
    """Yield the state of streams and bridges, and differences from the configuration."""
    if not found.streams:
        yield Finding("streams", Status.OK, "none yet: the first bridge creates it")
    for stream in found.streams:
        limit = f" of {in_bytes(stream.max_bytes)}" if stream.max_bytes else ""
        text = f"{stream.name}: {plural(stream.state.messages, 'message')}, "
        text += f"{in_bytes(stream.state.bytes)}{limit}"
        yield Finding("streams", Status.OK, text)
    for each in found.differences:
        if each.now != ABSENT:
            yield Finding("streams", Status.WARNING, f"{each}: `ccpipe streams apply` changes it")
    for text in found.overlaps:
        yield Finding("streams", Status.CRITICAL, text)
    for share, consumer in zip(
        shares(found, FULL_WARNING, FULL_CRITICAL), found.consumers, strict=True
    ):
        waiting = consumer.num_pending
        status = max(share.status, compare(waiting, LAG_WARNING, LAG_CRITICAL))
        text = share.text if share.status is not Status.OK else f"{consumer.name} runs"
        yield Finding("bridges", status, f"{text}; {plural(waiting, 'unread message')}")


async def clock(bus: Connection, found: Survey) -> Finding:
    """Return the difference between our clock and the broker's, from the answer to a request."""
    if not found.streams:
        return Finding("clock", Status.UNKNOWN, "only a broker with a stream tells its time")
    before = datetime.now(UTC)
    stream = await stream_of(bus.jetstream(), found.streams[0].name)
    after = datetime.now(UTC)
    if stream is None or stream.ts is None:
        return Finding("clock", Status.UNKNOWN, "the broker does not tell its time")
    offset = clock_offset(before, stream.ts, after)
    status = compare(abs(offset), CLOCK_WARNING, CLOCK_CRITICAL)
    text = f"{abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} the broker's"
    return Finding("clock", status, text if offset else "as the broker's", offset, "s")


def clock_offset(before: datetime, theirs: datetime, after: datetime) -> float:
    """Return by how many seconds our clock is ahead of another, at least.

    That clock was read between `before` and `after`, which are ours.
    """
    return (min(max(theirs, before), after) - theirs).total_seconds()


async def freshness(bus: Connection, site: Site) -> Finding:
    age = await age_of_newest(bus.jetstream(), Subjects.of(site).patterns(["metrics"]))
    if age is None:
        text = f"no metrics of {site.cluster} are stored: does `ccpipe publish` run on a node?"
        return Finding("metrics", Status.WARNING, text)
    text = f"the newest of {site.cluster} are {format_duration(age)} old"
    return Finding("metrics", Status.WARNING if age > STALE_SECONDS else Status.OK, text, age, "s")


async def dead_letters(bus: Connection, site: Site) -> Finding:
    stream = await stream_of(bus.jetstream(), stream_name(Subjects.of(site), dead=True))
    count = stream.state.messages if stream else 0
    text = f"{plural(count, 'dead letter')}"
    if count:
        text += ": `ccpipe dead-letters list` shows why"
    return Finding("dead letters", Status.WARNING if count else Status.OK, text, count)
