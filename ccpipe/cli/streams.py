"""``ccpipe streams``: JetStream's streams of a cluster, compared with the configuration."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from cyclopts import App

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.streams.jetstream import Consumer, Stream
from ccpipe.bus.nats.streams.partitions import partitions_of, undivided
from ccpipe.bus.nats.streams.reconcile import Survey, apply, survey
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.console.options import SiteOptions
from ccpipe.cli.console.output import Output, print_json, print_table
from ccpipe.config import Site
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import format_duration, in_bytes, note, printable, working

streams = App(
    name="streams",
    help="""Show and configure the cluster's JetStream streams.

Examples: ccpipe streams show
          ccpipe streams show -o json | jq '.streams[].headroom_seconds'
          ccpipe streams apply --dry-run""",
    help_format="plaintext",
)


@streams.command
async def show(*, output: Output = "table", where: SiteOptions = SiteOptions()) -> None:
    """Show streams, consumers and differences from the configuration.

    HEADROOM is how long a bridge can be down without losing messages, at the
    average message rate so far. DROPPED counts messages that the stream deleted
    after the last one that the consumer received. BRIDGES names the process that
    reads a partition, or shows whether any bridge is reading.

    Examples: ccpipe streams show
              ccpipe streams show --cluster fritz --server nats://10.0.0.1:4222
              ccpipe streams show -o json | jq '.consumers[].pending'
    """
    async with _surveyed(where) as (_, site, found):
        if output == "json":
            print_json(_as_json(found))
            return
        if found.streams:
            heads = ["STREAM", "MESSAGES", "SIZE", "OF", "OLDEST", "REPLICAS", "PARTITIONS",
                     "HEADROOM", "SUBJECTS"]  # fmt: skip
            print_table([_stream_row(stream) for stream in found.streams], heads)
        if found.consumers:
            print()
            heads = ["CONSUMER", "PENDING", "ACK PENDING", "DROPPED", "BRIDGES", "STREAM"]
            by_name = {stream.name: stream for stream in found.streams}
            rows = [
                _consumer_row(each, by_name[each.stream_name], found.owners.get(each.name))
                for each in found.consumers
            ]
            print_table(rows, heads)
        _report(found)
        _report_undivided(found, site)


@streams.command(name="apply")
async def apply_(
    *,
    dry_run: bool = False,
    drop: bool = False,
    output: Output = "table",
    where: SiteOptions = SiteOptions(),
) -> None:
    """Apply the configuration to the streams.

    Changes limits, compression, replicas and subjects of ccpipe's own streams; a
    site's own streams are left alone. A limit that would delete stored messages immediately
    is refused.

    Examples:
      ccpipe streams apply --dry-run
      CCPIPE_BUS__STREAM_MAX_BYTES=20GiB ccpipe streams apply
      ccpipe streams apply --config /etc/ccpipe/ccpipe.toml -o json

    Parameters
    ----------
    dry_run
        Show what would change.
    drop
        Allow a smaller limit to delete messages.
    """
    async with _surveyed(where) as (bus, site, found):
        if not dry_run:
            with working("changing streams"):
                await apply(bus, site, found, drop=drop)
    if output == "json":
        print_json([each._asdict() for each in found.differences])
    elif found.differences:
        rows = [[d.stream, d.setting, d.now, d.wanted] for d in found.differences]
        print_table(rows, ["STREAM", "SETTING", "BEFORE", "CONFIGURED"])
    else:
        note("everything is as configured")
    if any(difference.setting == "compression" for difference in found.differences):
        note("nats-server changes the compression of a stream when it is restarted", "yellow")
    for overlap in found.overlaps:
        note(printable(overlap), "red")


@contextlib.asynccontextmanager
async def _surveyed(where: SiteOptions) -> AsyncIterator[tuple[Connection, Site, Survey]]:
    site = where.site()
    opened = Connection(site.bus, name="streams", telemetry=Telemetry(), forever=False)
    async with opened as bus:
        with working("reading the state of the streams"):
            found = await survey(bus, site)
        yield bus, site, found


def _stream_row(stream: Stream) -> list[str]:
    state = stream.state
    return [
        printable(stream.name),
        f"{state.messages}",
        in_bytes(state.bytes),
        in_bytes(stream.max_bytes) if stream.max_bytes else "any",
        format_duration(stream.age) if state.messages else "-",
        f"{stream.config.get('num_replicas', 1)}",
        f"{partitions_of(stream.config)}",
        format_duration(stream.headroom) if stream.headroom else "for ever",
        printable(" ".join(stream.subjects)),
    ]


def _consumer_row(consumer: Consumer, stream: Stream, owner: str | None) -> list[str]:
    reader = _process(owner) if owner else "running" if consumer.num_waiting else "none"
    return [
        printable(consumer.name),
        f"{consumer.num_pending}",
        f"{consumer.num_ack_pending}",
        f"{consumer.dropped(stream)}",
        printable(reader),
        printable(stream.name),
    ]


def _process(owner: str) -> str:
    return owner.rpartition(" ")[0]


def _report(found: Survey) -> None:
    if not found.streams:
        note("no stream stores this cluster's messages; the first bridge creates it")
    for stream in found.streams:
        if stream.config.get("num_replicas", 1) == 1 and stream.config.get("storage") == "file":
            note(
                f"{printable(stream.name)} has one replica: a power failure of the server can lose "
                "messages of the last sync_interval (docs/operations/nats.md)"
            )
    for difference in found.differences:
        note(printable(str(difference)), "yellow")
    for overlap in found.overlaps:
        note(printable(overlap), "red")


def _report_undivided(found: Survey, site: Site) -> None:
    if all(partitions_of(stream.config) == 1 for stream in found.streams):
        return
    for key, template in undivided(Subjects.of(site)).items():
        note(
            f"all nodes publish {key} on {printable(template)}, which stays in one partition: put "
            f"{{hostname}} into bus.subjects.{key} (docs/operations/scale.md)", "yellow",
        )  # fmt: skip


def _as_json(found: Survey) -> dict[str, Any]:
    by_name = {stream.name: stream for stream in found.streams}
    return {
        "streams": [
            {
                "name": stream.name,
                "subjects": stream.subjects,
                "messages": stream.state.messages,
                "bytes": stream.state.bytes,
                "max_bytes": stream.max_bytes,
                "max_age_seconds": stream.max_age,
                "oldest_seconds": stream.age,
                "bytes_per_second": stream.rate,
                "headroom_seconds": stream.headroom,
                "discard": stream.config.get("discard"),
                "compression": stream.config.get("compression", "none"),
                "replicas": stream.config.get("num_replicas"),
                "partitions": partitions_of(stream.config),
            }
            for stream in found.streams
        ],
        "consumers": [
            {
                "name": consumer.name,
                "stream": consumer.stream_name,
                "subjects": consumer.subjects,
                "pending": consumer.num_pending,
                "ack_pending": consumer.num_ack_pending,
                "redelivered": consumer.num_redelivered,
                "dropped": consumer.dropped(by_name[consumer.stream_name]),
                "running": bool(consumer.num_waiting),
                "owner": found.owners.get(consumer.name),
            }
            for consumer in found.consumers
        ],
        "differences": [each._asdict() for each in found.differences],
        "overlaps": found.overlaps,
    }
