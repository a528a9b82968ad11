"""Comparing streams with the configuration, and changing them accordingly."""

from typing import NamedTuple

from ccpipe.bus.nats.client import server_version, takes_batches
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.streams.claims import owners_of
from ccpipe.bus.nats.streams.jetstream import (
    Consumer,
    Stream,
    call,
    consumers_of,
    names_of,
    stream_of,
)
from ccpipe.bus.nats.streams.partitions import StreamPartition, with_former
from ccpipe.bus.nats.streams.stream import (
    ABSENT,
    SETTINGS,
    Difference,
    differences,
    has_upstream,
    stream_name,
    wanted_stream,
)
from ccpipe.bus.subjects import KEPT, Subjects, matches, minimal
from ccpipe.config import Site
from ccpipe.errors import ConfigError


class Survey(NamedTuple):
    """The streams of a cluster and their differences from the configuration."""

    streams: list[Stream]
    consumers: list[Consumer]
    differences: list[Difference]
    """Changed by ``apply``."""
    overlaps: list[str]
    """Conflicts it cannot resolve: subjects that a site's own stream stores in part."""
    owners: dict[str, str]
    """The reading process of each partition, by the name of its consumer."""


async def survey(bus: Connection, site: Site) -> Survey:
    """Examine all streams that store subjects of a cluster.

    Raises UnavailableError or DeniedError.
    """
    jetstream = bus.jetstream()
    subjects = Subjects.of(site)
    kept = [] if has_upstream(site.bus) else minimal(subjects.patterns(KEPT))
    patterns = [*kept, subjects.dead()]
    names = [stream_name(subjects), stream_name(subjects, dead=True)]
    found: dict[str, Stream] = {}
    for pattern in patterns:
        names += await names_of(jetstream, pattern)
    for name in dict.fromkeys(names):
        if stream := await stream_of(jetstream, name):
            found[name] = stream
    consumers = [
        each
        for name in found
        for each in [c async for c in consumers_of(jetstream, name)]
        if each.config.get("durable_name")  # others belong to `ccpipe tail`, for as long as it runs
    ]
    wrong = [each for stream in found.values() for each in differences(stream, site.bus, subjects)]
    overlaps: list[str] = []
    for dead, wanted in ((False, patterns[:-1]), (True, patterns[-1:])):
        own = stream_name(subjects, dead=dead)
        missing = [p for p in wanted if not _stores(found, p)]
        overlaps += [text for p in missing for text in _overlaps(found, p, own)]
        if free := [p for p in missing if not any(_overlaps(found, p, own))]:
            now = ", ".join(found[own].subjects) if own in found else ABSENT
            wrong.append(Difference(own, "subjects", "subjects", now, ", ".join(free)))
    own = stream_name(subjects)
    if has_upstream(site.bus) and own not in found:
        upstream = ", ".join([*site.bus.stream_sources, site.bus.stream_mirror]).strip(", ")
        wrong.append(Difference(own, "sources", "stream_sources", ABSENT, upstream))
    durables = dict.fromkeys(filter(None, (StreamPartition.durable_of(c.name) for c in consumers)))
    owners = await owners_of(jetstream, subjects, durables)
    return Survey(list(found.values()), consumers, wrong, overlaps, owners)


def _stores(streams: dict[str, Stream], pattern: str) -> bool:
    return any(matches(s, pattern) for stream in streams.values() for s in stream.subjects)


def _overlaps(streams: dict[str, Stream], pattern: str, own: str) -> list[str]:
    """Name foreign streams that store a pattern in part: no second stream may then store it."""
    return [
        f"{pattern} is stored in part only: the stream {stream.name} stores {subject}"
        for stream in streams.values()
        for subject in stream.subjects
        if stream.name != own and matches(pattern, subject)
    ]


async def check_streams(bus: Connection, site: Site) -> None:
    """Raise ConfigError if streams exist and differ from the configuration.

    Missing streams are allowed: the first bridge creates them.
    """
    found = await survey(bus, site)
    wrong = [str(each) for each in found.differences if each.now != ABSENT]
    if found.overlaps or wrong:
        cure = "; `ccpipe streams apply` changes it" if wrong else ""
        raise ConfigError("; ".join([*found.overlaps, *wrong]) + cure)


async def apply(bus: Connection, site: Site, found: Survey, *, drop: bool) -> None:
    """Change our streams to match the configuration; a site's own streams are not touched.

    Raises UnavailableError, DeniedError, and unless `drop` ConfigError if stored messages would
    exceed new limits.
    """
    jetstream = bus.jetstream()
    subjects = Subjects.of(site)
    there = {stream.name: stream for stream in found.streams}
    if not drop:
        for stream in found.streams:
            _refuse_to_drop(stream, [d for d in found.differences if d.stream == stream.name], site)
    for name in dict.fromkeys(each.stream for each in found.differences):
        dead = name == stream_name(subjects, dead=True)
        batches = takes_batches(server_version(jetstream))
        wanted = wanted_stream(site.bus, subjects, batches=batches, dead=dead).as_dict()
        own = [each for each in found.differences if each.stream == name]
        added = [s for each in own if each.setting == "subjects" for s in each.wanted.split(", ")]
        if name in there:
            kept = there[name].config
            changed = {key: wanted.get(key) for key in SETTINGS}
            window = min(kept["duplicate_window"], wanted["duplicate_window"])
            update = {**kept, **changed, "duplicate_window": window}
            if any(each.setting in ("subject_transform", "sources") for each in own):
                update["metadata"] = with_former(kept)
            stored = minimal([*there[name].subjects, *added])
            update["subjects"] = None if has_upstream(site.bus) and not dead else stored
            await call(jetstream, f"STREAM.UPDATE.{name}", update, f"changing the stream {name}")
        else:
            create = {**wanted, "subjects": minimal(added) or None}
            await call(jetstream, f"STREAM.CREATE.{name}", create, f"creating the stream {name}")


def _refuse_to_drop(stream: Stream, own: list[Difference], site: Site) -> None:
    settings = {each.setting for each in own}
    if "max_bytes" in settings and stream.state.bytes > site.bus.stream_max_bytes:
        reason = f"it stores {stream.state.bytes} bytes"
    elif "max_age" in settings and 0 < float(site.bus.stream_max_age) < stream.age:
        reason = f"its oldest message is {stream.age:.0f} s old"
    else:
        return
    raise ConfigError(
        f"stream {stream.name}: {reason}, so that the configured limit would delete messages now: "
        "run `ccpipe streams apply --drop` to allow it"
    )
