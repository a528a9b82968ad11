"""JetStream: the streams that store a cluster's messages, and the consumers that read them."""

import logging
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

import nats.errors
import nats.js.errors
from nats.js import JetStreamContext, api

from ccpipe.bus.nats.client import server_version, takes_batches
from ccpipe.bus.nats.errors import explain
from ccpipe.bus.nats.streams.jetstream import (
    IDENTITY,
    NANOSECONDS,
    Stream,
    call,
    consumer_of,
    names_of,
    stream_of,
)
from ccpipe.bus.nats.streams.partitions import partitions_of, transform
from ccpipe.bus.subjects import KEPT, Subjects, escape, matches, minimal
from ccpipe.config import Bus, Duration, Size, with_unit
from ccpipe.errors import ConfigError, UnavailableError

log = logging.getLogger(__name__)

DUPLICATE_SECONDS = 120.0
"""How long the broker detects duplicates of a message."""

DEAD_SECONDS = 30 * 86400.0
"""How long dead letters are kept."""

ABSENT = "absent"
"""The setting of a ``Difference`` that means that the stream does not exist."""

DESCRIPTION = "kept by ccpipe"

OTHER_CONSUMER = 10012
"""JetStream's error code for an existing consumer with a different configuration."""

NAME_IN_USE = 10058
"""JetStream's error code for a stream name in use with a different configuration."""


async def ensure_stream(
    jetstream: JetStreamContext, bus: Bus, subjects: Subjects, patterns: list[str]
) -> str:
    """Return the name of the stream that stores the first of `patterns`.

    Patterns that no stream stores are added to ours, which is created if necessary. A stream
    created by the site is used as it is, whatever its name; `patterns` that another stream
    stores are reported. Dead letters have a separate stream, so that metrics cannot displace them.

    Raises UnavailableError if JetStream does not answer (yet), and DeniedError.
    """
    dead = patterns == [subjects.dead()]
    batches = takes_batches(server_version(jetstream))
    if has_upstream(bus) and not dead:
        return await _ensure_downstream(jetstream, wanted_stream(bus, subjects, batches=batches))
    streams = {pattern: await find_home(jetstream, pattern) for pattern in patterns}
    homes = {pattern: stream.name for pattern, stream in streams.items() if stream}
    if missing := [pattern for pattern in patterns if pattern not in homes]:
        config = wanted_stream(bus, subjects, batches=batches, dead=dead)
        others = [each for each in config.subjects or [] if each not in homes]
        missing += [each for each in others if await find_home(jetstream, each) is None]
        ours = await _store_subjects(jetstream, config.evolve(subjects=minimal(missing)))
        homes |= dict.fromkeys(missing, ours)
    name = homes[patterns[0]]
    if stream := streams[patterns[0]]:
        for difference in differences(stream, bus, subjects):
            log.warning("%s; `ccpipe streams apply` changes it", difference)
    for other in dict.fromkeys(homes[pattern] for pattern in patterns if homes[pattern] != name):
        stored = ", ".join(pattern for pattern in patterns if homes[pattern] == other)
        log.warning(
            "only the stream %s is read; %s stores %s, which needs a bridge of its own "
            "(source.subjects)", name, other, stored,
        )  # fmt: skip
    return name


async def _ensure_downstream(jetstream: JetStreamContext, config: api.StreamConfig) -> str:
    name = str(config.name)
    if await stream_of(jetstream, name) is None:
        doing = f"creating the stream {name}"
        await call(jetstream, f"STREAM.CREATE.{name}", config.as_dict(), doing)
        log.info("the stream %s gets its messages from other streams", name)
    return name


async def find_home(jetstream: JetStreamContext, pattern: str) -> Stream | None:
    """Return the stream that stores all subjects of a pattern; raises as `ensure_stream`."""
    for name in await names_of(jetstream, pattern):
        stream = await stream_of(jetstream, name)
        if stream is not None and any(matches(subject, pattern) for subject in stream.subjects):
            return stream
    return None


def stream_name(subjects: Subjects, *, dead: bool = False) -> str:
    """Return the name of our stream for a cluster, or for its dead letters."""
    return f"ccpipe-{escape(subjects.cluster)}" + ("-dead" if dead else "")


def wanted_stream(
    bus: Bus, subjects: Subjects, *, batches: bool, dead: bool = False
) -> api.StreamConfig:
    """Return the configuration of our stream; `batches` if the server knows fast-ingest batches."""
    max_age = DEAD_SECONDS if dead else float(bus.stream_max_age)
    name = stream_name(subjects, dead=dead)
    upstream = has_upstream(bus) and not dead
    stored = [subjects.dead()] if dead else minimal(subjects.patterns(KEPT))
    sources = [_upstream(bus, name, each) for each in bus.stream_sources]
    return api.StreamConfig(
        name=name,
        subjects=None if upstream else stored,
        sources=sources if upstream and not bus.stream_mirror else None,
        mirror=_upstream(bus, name, bus.stream_mirror) if upstream and bus.stream_mirror else None,
        retention=api.RetentionPolicy.LIMITS,
        storage=api.StorageType.FILE,
        discard=api.DiscardPolicy.OLD if dead else api.DiscardPolicy(bus.stream_discard),
        max_age=max_age,
        max_bytes=int(bus.stream_max_bytes),
        compression=api.StoreCompression(bus.stream_compression),
        num_replicas=bus.stream_replicas,
        subject_transform=None if dead or upstream else _partitioned(bus.stream_partitions),
        duplicate_window=min(DUPLICATE_SECONDS, max_age or DUPLICATE_SECONDS),
        description=DESCRIPTION,
        allow_batched=(batches and not upstream) or None,
    )


def has_upstream(bus: Bus) -> bool:
    """Return whether our stream copies its messages from other streams, and stores no subject."""
    return bool(bus.stream_sources or bus.stream_mirror)


def _upstream(bus: Bus, name: str, source: str) -> api.StreamSource:
    """Return a stream of another domain, by default of the same name."""
    domain, _, other = source.partition("/")
    wanted = _partitioned(bus.stream_partitions)
    return api.StreamSource(
        name=other or name,
        external=api.ExternalStream(api=f"$JS.{domain}.API"),
        subject_transforms=[wanted] if wanted else None,
    )


def _upstream_text(sources: list[dict[str, Any]] | dict[str, Any] | None) -> str:
    """Format the source of a stream's messages: ``rack1/ccpipe-fritz``, and its partitions."""
    each = sources if isinstance(sources, list) else [sources] if sources else []
    texts = []
    for one in each:
        api_prefix = (one.get("external") or {}).get("api", "")
        domain = api_prefix.removeprefix("$JS.").removesuffix(".API")
        count = partitions_of({"mirror": one})
        parts = f" in {count} partitions" if count > 1 else ""
        texts.append(f"{domain}/{one['name']}{parts}")
    return ", ".join(sorted(texts)) or "none"


def _partitioned(count: int) -> api.SubjectTransform | None:
    wanted = transform(count)
    return api.SubjectTransform(**wanted) if wanted else None


class Difference(NamedTuple):
    """A setting of a stream that differs from the configuration."""

    stream: str
    setting: str
    key: str
    """The key of ``[bus]`` that configures it; empty for a constant."""
    now: str
    wanted: str

    def __str__(self) -> str:
        if self.now == ABSENT:
            return f"stream {self.stream} does not exist yet; it will store {self.wanted}"
        if self.setting == "subjects":
            return f"stream {self.stream} does not store {self.wanted}"
        reason = f"bus.{self.key}" if self.key else "ccpipe's own setting"
        return f"stream {self.stream}: {self.setting} is {self.now}, not {self.wanted} ({reason})"


SETTINGS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "max_age": ("stream_max_age", lambda value: str(with_unit(Duration(value / NANOSECONDS)))),
    "max_bytes": ("stream_max_bytes", lambda value: str(with_unit(Size(value)))),
    "discard": ("stream_discard", lambda value: api.DiscardPolicy(value).value),
    "compression": (
        "stream_compression",
        lambda value: api.StoreCompression(value or api.StoreCompression.NONE).value,
    ),
    "num_replicas": ("stream_replicas", str),
    "sources": ("stream_sources", _upstream_text),
    "mirror": ("stream_mirror", _upstream_text),
    "allow_batched": ("", lambda value: "on" if value else "off"),
    "subject_transform": (
        "stream_partitions",
        lambda value: str(partitions_of({"subject_transform": value})),
    ),
}
"""Settings that are kept as configured: the key of ``[bus]``, and the format of a value."""


def differences(stream: Stream, bus: Bus, subjects: Subjects) -> list[Difference]:
    """Return how our own stream differs from the configuration; a site's own is not compared."""
    dead = stream.name == stream_name(subjects, dead=True)
    if not dead and stream.name != stream_name(subjects):
        return []
    wanted = wanted_stream(bus, subjects, batches=stream.takes_batches, dead=dead).as_dict()
    return [
        Difference(
            stream.name,
            setting,
            "" if dead and setting in ("max_age", "discard") else key,
            write(stream.config.get(setting, 0)),
            write(wanted.get(setting)),
        )
        for setting, (key, write) in SETTINGS.items()
        if write(stream.config.get(setting, 0)) != write(wanted.get(setting))
    ]


async def _store_subjects(jetstream: JetStreamContext, config: api.StreamConfig) -> str:
    """Create our stream, or add subjects to it; its other settings stay as they are."""
    name, subjects = str(config.name), list(config.subjects or ())
    try:
        await jetstream.add_stream(config)
    except nats.js.errors.BadRequestError as error:
        if error.err_code != NAME_IN_USE:
            raise explain(error, f"creating the stream {name} for {', '.join(subjects)}") from None
        there = await stream_of(jetstream, name)
        subjects = minimal([*(there.subjects if there else ()), *subjects])
        update = {**(there.config if there else {}), "subjects": subjects}
        await call(jetstream, f"STREAM.UPDATE.{name}", update, f"changing the stream {name}")
    except (nats.errors.Error, TimeoutError) as error:
        raise explain(error, f"creating the stream {name}") from None
    log.info("the stream %s stores %s", name, ", ".join(subjects))
    return name


async def require_unpartitioned(jetstream: JetStreamContext, name: str) -> None:
    """Raise ConfigError if a stream has partitions, which a single consumer cannot read."""
    stream = await stream_of(jetstream, name)
    if stream is not None and (count := partitions_of(stream.config)) > 1:
        raise ConfigError(
            f"the stream {name} has {count} partitions: set bus.stream_partitions = {count}"
        )


async def ensure_consumer(
    jetstream: JetStreamContext,
    stream: str,
    durable: str,
    patterns: list[str],
    ack_wait: float,
    *,
    owner: str = "",
) -> str:
    """Find or create the durable consumer that keeps a bridge's position.

    Returns an identifier of the consumer, distinct from a later one of the same name, and
    the same for all bridges that share it, however often they and the broker start. Raises as
    ``ensure_stream`` does, and ConfigError if it exists with other subjects or settings.
    """
    found = await consumer_of(jetstream, stream, durable)
    config = api.ConsumerConfig(
        durable_name=durable,
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=ack_wait,
        max_ack_pending=-1,  # the pipe itself limits what is unacknowledged
        filter_subjects=patterns,
        description=owner or "a ccpipe bridge",
        metadata={IDENTITY: found.identity if found else secrets.token_hex(8)},
    )
    try:
        await jetstream.add_consumer(stream, config)
    except (nats.errors.Error, TimeoutError) as error:
        is_other = getattr(error, "err_code", None) == OTHER_CONSUMER
        if is_other or isinstance(error, nats.js.errors.BadRequestError):
            reason = getattr(error, "description", "")
            raise ConfigError(f"consumer {durable!r} of stream {stream}: {reason}") from None
        raise explain(error, f"creating the consumer {durable}") from None
    made = await consumer_of(jetstream, stream, durable)  # maybe by another bridge meanwhile
    if made is None:
        raise UnavailableError(f"the consumer {durable} of stream {stream} was deleted")
    return f"{stream} {durable} {made.identity}"


async def refuse_others(
    jetstream: JetStreamContext, stream: str, durable: str, owner: str = ""
) -> None:
    """Raise ConfigError if a durable consumer belongs to another reader.

    Before the consumer is ours (`owner` is empty) that is one with an open pull request: the
    broker drops the request with the connection, so that a killed bridge does not block its
    successor. Afterwards it is one whose description names another owner.
    """
    found = await consumer_of(jetstream, stream, durable)
    if found is None:
        return
    other = found.config.get("description", "")
    if other != owner if owner else found.num_waiting:
        raise ConfigError(
            f"the durable name {durable!r} is in use by {other}, and a translator of this recipe "
            "must see all messages: stop the other bridge, or choose another `durable`"
        )
