"""JetStream: the streams that store a cluster's messages, and the consumers that read them."""

import logging

import nats.errors
import nats.js.errors
from nats.js import JetStreamContext, api

from ccpipe.bus.subjects import Subjects, escape, minimal
from ccpipe.config import Bus
from ccpipe.errors import ConfigError, DeniedError, UnavailableError

log = logging.getLogger(__name__)

KEPT = ("metrics", "events", "log", "sonar")
"""What the stream of a cluster stores. Control is request and reply: nothing to store."""

DUPLICATE_SECONDS = 120.0
"""How long the broker recognises a message that is published again."""


DEAD_SECONDS = 30 * 86400.0
"""How long dead letters are kept."""

OTHER_CONSUMER = 10012
"""JetStream's error code for a consumer that exists and reads in another way."""

NAME_IN_USE = 10058
"""JetStream's error code for a stream whose name is taken by one that is not the same."""


async def ensure_stream(
    jetstream: JetStreamContext, bus: Bus, subjects: Subjects, patterns: list[str]
) -> str:
    """Return the name of the stream that stores `patterns`; create it where there is none.

    A stream that a site made itself is used as it is, whatever its name. Dead letters have a
    stream of their own, so that metrics cannot push them out.

    Raises
    ------
    UnavailableError
        where JetStream does not answer (yet).
    DeniedError
        where we may not see or make a stream.

    """
    try:
        return await jetstream.find_stream_name_by_subject(patterns[0])
    except nats.js.errors.NotFoundError:
        pass
    except (nats.errors.Error, TimeoutError) as error:
        raise explain(error, "looking for a stream") from None
    dead = patterns == [subjects.dead()]
    config = api.StreamConfig(
        name=f"ccpipe-{escape(subjects.cluster)}" + ("-dead" if dead else ""),
        subjects=minimal(patterns if dead else [*subjects.patterns(KEPT), *patterns]),
        retention=api.RetentionPolicy.LIMITS,
        storage=api.StorageType.FILE,
        discard=api.DiscardPolicy.OLD,
        max_age=DEAD_SECONDS if dead else float(bus.stream_age),
        max_bytes=int(bus.stream_size),
        duplicate_window=min(DUPLICATE_SECONDS, float(bus.stream_age)),
        description="kept by ccpipe",
    )
    try:
        return await _make(jetstream, config)
    except (nats.errors.Error, TimeoutError) as error:
        raise explain(error, f"making the stream {config.name}") from None


async def _make(jetstream: JetStreamContext, config: api.StreamConfig) -> str:
    """Create a stream, or add subjects to the one of that name."""
    assert config.name is not None
    try:
        await jetstream.add_stream(config)
    except nats.js.errors.BadRequestError as error:
        if error.err_code != NAME_IN_USE:
            raise
        there = (await jetstream.stream_info(config.name)).config
        both = minimal([*(there.subjects or []), *(config.subjects or [])])
        config = there.evolve(subjects=both)
        await jetstream.update_stream(config)
    log.info("the stream %s stores %s", config.name, ", ".join(config.subjects or []))
    return str(config.name)


async def ensure_consumer(
    jetstream: JetStreamContext,
    stream: str,
    durable: str,
    patterns: list[str],
    ack_wait: float,
    *,
    owner: str = "",
) -> str:
    """Create the durable consumer that remembers how far a bridge has read, or find it.

    Returns what tells it from any other, one of its name that comes later included.

    Raises
    ------
    UnavailableError, DeniedError
        as ``ensure_stream`` does.
    ConfigError
        where a consumer of that name exists and reads other subjects in another way.

    """
    config = api.ConsumerConfig(
        durable_name=durable,
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=ack_wait,
        max_ack_pending=-1,  # what is unacknowledged is bounded by the pipe's own memory
        filter_subjects=patterns,
        description=owner or "a ccpipe bridge",
    )
    try:
        info = await jetstream.add_consumer(stream, config)
    except nats.js.errors.BadRequestError as error:
        raise ConfigError(f"consumer {durable!r} of stream {stream}: {error.description}") from None
    except nats.js.errors.ServerError as error:
        if error.err_code != OTHER_CONSUMER:
            raise explain(error, f"making the consumer {durable}") from None
        raise ConfigError(f"consumer {durable!r} of stream {stream}: {error.description}") from None
    except (nats.errors.Error, TimeoutError) as error:
        raise explain(error, f"making the consumer {durable}") from None
    made = f" {info.created:%Y-%m-%dT%H:%M:%S.%fZ}" if info.created else ""
    return f"{stream} {durable}{made}"


async def refuse_others(
    jetstream: JetStreamContext, stream: str, durable: str, owner: str = ""
) -> None:
    """Refuse a durable consumer that belongs to another process.

    Before the consumer is ours (`owner` is empty) that is one with an open pull request: the
    broker drops the request with the connection, so that a bridge which was killed does not keep
    its successor out. Afterwards it is one whose description names another owner.

    Raises
    ------
    ConfigError
        where it does.
    UnavailableError, DeniedError
        as ``ensure_stream`` does.

    """
    try:
        info = await jetstream.consumer_info(stream, durable)
    except nats.js.errors.NotFoundError:
        return
    except (nats.errors.Error, TimeoutError) as error:
        raise explain(error, f"looking at the consumer {durable}") from None
    other = info.config.description if info.config else ""
    if other != owner if owner else info.num_waiting:
        raise ConfigError(
            f"the durable name {durable!r} is in use by {other}, and a translator of this recipe "
            "must see all messages: stop the other bridge, or choose another `durable`"
        )


def explain(error: Exception, doing: str) -> UnavailableError | DeniedError:
    """Turn an error of the client into ours; `doing` says what failed."""
    text = str(error) or type(error).__name__
    if isinstance(error, nats.js.errors.ServiceUnavailableError | nats.errors.NoRespondersError):
        text = "JetStream does not answer; is it on? (else set bus.jetstream = false)"
    elif isinstance(error, nats.js.errors.NoStreamResponseError):
        text = "no stream keeps this subject yet"
    elif isinstance(error, TimeoutError | nats.errors.TimeoutError):
        text = "the server did not answer in time"
    elif isinstance(error, nats.js.errors.APIError) and error.code in (401, 403):
        return DeniedError(f"{doing}: {error.description}")
    return UnavailableError(f"{doing}: {text}")
