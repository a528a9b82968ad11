"""JetStream's descriptions of streams and consumers, unabridged: updates lose no field."""

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import nats.errors
import nats.js.errors
from nats.js import JetStreamContext

from ccpipe.bus.nats.client import api_request
from ccpipe.bus.nats.errors import explain
from ccpipe.errors import UnavailableError

T = TypeVar("T")

NANOSECONDS = 10**9


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a stream."""

    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    first_ts: datetime
    last_ts: datetime


BATCH_LEVEL = 4
"""Level of JetStream's API from which on streams can store fast-ingest batches."""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream: its configuration on the broker, and its content."""

    config: dict[str, Any]
    state: StreamState
    ts: datetime | None = None
    """The broker's clock."""

    @property
    def name(self) -> str:
        return str(self.config["name"])

    @property
    def subjects(self) -> list[str]:
        """Subjects that it stores; empty for a mirror."""
        return list(self.config.get("subjects") or ())

    @property
    def takes_batches(self) -> bool:
        """Whether its server knows fast-ingest batches."""
        return int((self.config.get("metadata") or {}).get("_nats.level", 0)) >= BATCH_LEVEL

    @property
    def max_age(self) -> float | None:
        """Maximum age of a message, in seconds; None if unlimited."""
        return self.config.get("max_age", 0) / NANOSECONDS or None

    @property
    def max_bytes(self) -> int | None:
        """Maximum size in bytes; None if unlimited."""
        found = int(self.config.get("max_bytes", -1))
        return found if found > 0 else None

    @property
    def rate(self) -> float | None:
        """Bytes per second over the stored period; None if unknown."""
        span = (self.state.last_ts - self.state.first_ts).total_seconds()
        return self.state.bytes / span if span >= 1 and self.state.messages > 1 else None

    @property
    def headroom(self) -> float | None:
        """How long a bridge may be down without losing messages, in seconds, at the current rate.

        None if nothing limits it, or the rate is unknown.
        """
        limits = [self.max_age] if self.max_age else []
        if self.max_bytes and self.rate:
            limits.append(self.max_bytes / self.rate)
        return min(limits, default=None)

    @property
    def age(self) -> float:
        """In seconds, of the oldest message."""
        if not self.state.messages or self.ts is None:
            return 0
        return max(0.0, (self.ts - self.state.first_ts).total_seconds())


IDENTITY = "ccpipe.identity"
"""Key of a consumer's metadata that distinguishes it from a later one of the same name.

The time of its creation does not: nats-server 2.15 reports a new one when a process names the
consumer's configuration again after a restart of the server, and versions before 2.15 store it.
"""


class Position(msgspec.Struct, frozen=True):
    """Position of a consumer: in its own deliveries, and in the stream."""

    consumer_seq: int
    stream_seq: int


class Consumer(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer: its configuration on the broker, and its position."""

    stream_name: str
    name: str
    config: dict[str, Any]
    created: datetime
    delivered: Position
    ack_floor: Position
    num_pending: int = 0
    """Number of messages never delivered."""
    num_ack_pending: int = 0
    num_redelivered: int = 0
    num_waiting: int = 0
    """Number of open pull requests: more than 0 if a bridge is running."""

    @property
    def identity(self) -> str:
        found = (self.config.get("metadata") or {}).get(IDENTITY)
        return str(found or f"{self.created:%Y-%m-%dT%H:%M:%S.%fZ}")

    @property
    def subjects(self) -> list[str]:
        """Subjects that it reads; empty for all."""
        single = self.config.get("filter_subject")
        return [single] if single else list(self.config.get("filter_subjects") or ())

    def dropped(self, stream: Stream) -> int:
        """Count the messages deleted by the stream after the last one delivered."""
        return max(0, stream.state.first_seq - 1 - self.delivered.stream_seq)


async def call(
    jetstream: JetStreamContext, subject: str, request: Mapping[str, Any] | None, doing: str
) -> dict[str, Any]:
    """Return the answer to one request of JetStream's API; `doing` names the operation.

    Raises UnavailableError or DeniedError, as do all functions here.
    """
    try:
        return await api_request(jetstream, subject, request)
    except (nats.errors.Error, TimeoutError, OSError) as error:
        raise explain(error, doing) from None


async def _find(
    jetstream: JetStreamContext, subject: str, request: Mapping[str, Any] | None, doing: str
) -> dict[str, Any] | None:
    """Send a request like `call`; return None if not found."""
    try:
        return await api_request(jetstream, subject, request)
    except nats.js.errors.NotFoundError:
        return None
    except (nats.errors.Error, TimeoutError, OSError) as error:
        raise explain(error, doing) from None


async def names_of(jetstream: JetStreamContext, subject: str) -> list[str]:
    answer = await call(jetstream, "STREAM.NAMES", {"subject": subject}, "looking for a stream")
    return list(answer.get("streams") or ())


async def stream_of(jetstream: JetStreamContext, name: str) -> Stream | None:
    return await _info(jetstream, f"STREAM.INFO.{name}", Stream, f"looking at the stream {name}")


async def _time_of_last(jetstream: JetStreamContext, stream: str, subject: str) -> datetime | None:
    request = {"last_by_subj": subject}
    answer = await _find(jetstream, f"STREAM.MSG.GET.{stream}", request, f"looking at {subject}")
    return msgspec.convert(answer["message"]["time"], datetime) if answer else None


async def age_of_newest(jetstream: JetStreamContext, patterns: Iterable[str]) -> float | None:
    """Return the age in seconds of the newest message that a stream stores on subject patterns.

    None without a message. Both times are the broker's.
    """
    ages = []
    for pattern in patterns:
        for name in await names_of(jetstream, pattern):
            stored = await _time_of_last(jetstream, name, pattern)
            stream = await stream_of(jetstream, name)
            if stored is not None and stream is not None:
                now = stream.ts or datetime.now(UTC)
                ages.append(max(0.0, (now - stored).total_seconds()))
    return min(ages, default=None)


async def consumer_of(jetstream: JetStreamContext, stream: str, name: str) -> Consumer | None:
    subject = f"CONSUMER.INFO.{stream}.{name}"
    return await _info(jetstream, subject, Consumer, f"inspecting the consumer {name}")


async def all_streams(jetstream: JetStreamContext) -> AsyncIterator[Stream]:
    async for stream in _pages(jetstream, "STREAM.LIST", "streams", Stream, "listing streams"):
        yield stream


async def consumers_of(jetstream: JetStreamContext, stream: str) -> AsyncIterator[Consumer]:
    subject, doing = f"CONSUMER.LIST.{stream}", f"listing the consumers of {stream}"
    async for consumer in _pages(jetstream, subject, "consumers", Consumer, doing):
        yield consumer


async def _pages(
    jetstream: JetStreamContext, subject: str, key: str, kind: type[T], doing: str
) -> AsyncIterator[T]:
    offset, total = 0, 1
    while offset < total:
        answer = await call(jetstream, subject, {"offset": offset}, doing)
        page = _read(answer.get(key) or [], list[kind], doing)  # type: ignore[valid-type]
        for each in page:
            yield each
        total = answer.get("total", 0) if page else 0
        offset += len(page)


async def _info(jetstream: JetStreamContext, subject: str, kind: type[T], doing: str) -> T | None:
    answer = await _find(jetstream, subject, None, doing)
    return None if answer is None else _read(answer, kind, doing)


def _read(answer: Any, kind: type[T], doing: str) -> T:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise UnavailableError(f"{doing}: the answer cannot be read: {error}") from None
