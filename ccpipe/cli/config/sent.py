"""Which metrics a cluster really sends: from a sample of this node, or from the bus."""

import time
from collections import defaultdict
from collections.abc import Iterable

from ccpipe.bus.nats.connection import Connection, Delivery
from ccpipe.bus.nats.streams.stored import read_stored, stored_patterns
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.config.explain import passed
from ccpipe.cli.console.options import SiteOptions
from ccpipe.config import Site
from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import Lines, decode
from ccpipe.message import Kind, Message
from ccpipe.node.agent.agent import Agent
from ccpipe.telemetry import Telemetry

Sent = dict[str, set[str]]
"""Values of the tag ``type`` by name of a metric, without devices of a node (tag ``stype``)."""


async def of_node(where: SiteOptions) -> Sent:
    """Return what this node's publisher sends after its rules, from one sample."""
    agent = Agent(where.site, where.path(), once=True, telemetry=Telemetry())
    records = Lines.concat([batch.records async for batch in agent.metrics.batches()])
    names = [table["use"] for table in agent.site.publish.translate]
    _, left = passed(records, agent.parts.translators, names)
    return _types(left)


async def of_bus(site: Site, seconds: float) -> Sent:
    """Return what the cluster's nodes sent in the last seconds, as the broker has stored it."""
    found: Sent = defaultdict(set)

    def receive(delivery: Delivery) -> None:
        for name, types in _types(decode(delivery.payload, lenient=True)).items():
            found[name] |= types

    patterns = Subjects.of(site).patterns(["metrics"])
    since = int((time.time() - seconds) * 1e9)
    async with Connection(site.bus, name="config", telemetry=Telemetry()) as bus:
        if not await stored_patterns(bus, patterns):
            raise UnavailableError(f"no stream stores {', '.join(patterns)}")
        await read_stored(bus, patterns, receive, since=since)
    return found


def _types(messages: Iterable[Message]) -> Sent:
    found: Sent = defaultdict(set)
    for message in messages:
        kind = message.tags.get("type", "node")
        if message.kind is Kind.METRIC and not (kind == "node" and "stype" in message.tags):
            found[message.name].add(kind)
    return found
