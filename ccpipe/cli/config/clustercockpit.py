"""``ccpipe config clustercockpit``: configuration for ClusterCockpit's programs."""

import importlib
import inspect
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

from cyclopts import Parameter

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.streams.stored import read_stored, stored_patterns
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.config.explain import passed
from ccpipe.cli.console.options import Since, SiteOptions, point_in_time
from ccpipe.cli.console.output import print_json
from ccpipe.config import Site
from ccpipe.errors import UnavailableError, UsageError
from ccpipe.formats.lineprotocol import Lines, decode
from ccpipe.formats.units import parse_unit
from ccpipe.message import Kind, Message
from ccpipe.node.agent.agent import Agent
from ccpipe.node.agent.parts import intervals, is_enabled, with_profile
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import POWERS, Metric
from ccpipe.registry import entry_points
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import listed, note, working

FINER_TYPES = {"hwthreads": "hwthread", "domains": "memoryDomain"}
"""Options of collectors that enable metrics of types finer than the node."""

BASES = {
    "byte": "B", "byte/second": "B/s", "flop": "F", "flop/second": "F/s", "hertz": "Hz",
    "watt": "W", "joule": "J", "temperature": "°C",
}  # fmt: skip
"""Base units known to cc-backend, by quantity; others have an empty base."""

PREFIXES = {Fraction(1000**i): prefix for i, prefix in enumerate(("", "K", "M", "G", "T", "P"))}

FOOTPRINTS = {"cpu_load": "avg", "mem_used": "max", "flops_any": "avg", "mem_bw": "avg"}
"""Metrics that characterise a job, and the relevant statistic of each."""

Sent = dict[str, set[str]]
"""Values of the tag ``type`` by name of a metric, without devices of a node (tag ``stype``)."""


class Sampled(NamedTuple):
    """A metric as the configured publisher samples it."""

    row: Metric
    type: str
    """The finest tag ``type`` that it has."""
    seconds: int
    """Time between two samples, rounded up."""


async def clustercockpit(
    *patterns: str,
    since: Since = None,
    all_: Annotated[bool, Parameter(name="--all")] = False,
    where: SiteOptions = SiteOptions(),
) -> None:
    """Print the metrics that are sent as configuration for ClusterCockpit programs.

    Prints one JSON object: metricConfig is for cc-backend's cluster.json, metrics
    for cc-metric-store's configuration. Units come from the collectors, time steps
    from ccpipe.toml. Thresholds (peak, normal, caution, alert) that depend on the
    hardware are 0 and must be filled in.

    A metric that is printed but not sent makes cc-backend show every node as
    partially monitored. Hence only what this node sends is printed, after its
    rules, or with --since what any node of the cluster sent.

    Device metrics (tag stype) are left out: the store would write all devices of a
    node into one series. [publish] profile = "clustercockpit" sums them.

    Examples: ccpipe config clustercockpit | jq .metricConfig
              ccpipe config clustercockpit --since 1h
              ccpipe config clustercockpit 'cpu_*' mem_used --config site.toml

    Parameters
    ----------
    patterns
        Names of metrics to print, sent or not, with wildcards * ? [abc].
    since
        Print what the broker has stored of this cluster since this time, such as 14:30, or 1h
        for the last hour.
    all_
        Print all metrics that the enabled collectors can send.
    """
    if since is not None and (all_ or patterns):
        raise UsageError("--since excludes --all and names of metrics")
    site = with_profile(where.site())
    found = list(sampled(site))
    is_summed = site.publish.profile == "clustercockpit"

    def is_mixed(row: Metric) -> bool:
        return row.stype == "job" if is_summed else bool(row.stype)

    if patterns:
        chosen = [x for x in found if any(fnmatchcase(x.row.name, p) for p in patterns)]
        if not chosen:
            raise UsageError(f"no metric matches {listed(patterns)}; see docs/collectors/")
    elif all_:
        chosen = [each for each in found if not is_mixed(each.row)]
    else:
        sent = await _sent(where, site, since)
        chosen = [_as_sent(x, sent[x.row.name]) for x in found if x.row.name in sent]
        if unknown := sorted(sent.keys() - {each.row.name for each in found}):
            note(f"left out, because no enabled collector declares them: {listed(unknown)}")
    print_json(
        {
            "metricConfig": [metric_config(each) for each in chosen],
            "metrics": {each.row.name: store_config(each) for each in chosen},
        }
    )
    if all_ and (mixed := [each.row.name for each in found if is_mixed(each.row)]):
        note(f"left out, because the store would mix their devices: {listed(mixed)}")
    if unset := [each.row.name for each in chosen if each.row.measure != "percent"]:
        note(f"thresholds are 0 and must be filled in: {listed(unset)}")


async def _sent(where: SiteOptions, site: Site, since: str | None) -> Sent:
    if since is None:
        return await _of_node(where)
    return await _of_bus(site, point_in_time(since, "--since"))


async def _of_node(where: SiteOptions) -> Sent:
    agent = Agent(where.site, where.path(), once=True, telemetry=Telemetry())
    records = Lines.concat([batch.records async for batch in agent.metrics.batches()])
    names = [table["use"] for table in agent.site.publish.translate]
    _, left = passed(records, agent.parts.translators, names)
    return _types(left)


async def _of_bus(site: Site, since: int) -> Sent:
    """Return what the cluster's nodes have sent since a time, as the broker has stored it."""
    found: Sent = defaultdict(set)

    def receive(delivery: Delivery) -> None:
        for name, types in _types(decode(delivery.payload, lenient=True)).items():
            found[name] |= types

    patterns = Subjects.of(site).patterns(["metrics"])
    connection = Connection(site.bus, name="config", telemetry=Telemetry(), forever=False)
    async with connection as bus:
        if not await stored_patterns(bus, patterns):
            raise UnavailableError(f"no stream stores {', '.join(patterns)}")
        with working("reading metrics of the stream"):
            await read_stored(bus, patterns, receive, since=since)
    return found


def _types(messages: Iterable[Message]) -> Sent:
    found: Sent = defaultdict(set)
    for message in messages:
        kind = message.tags.get("type", "node")
        is_number = message.kind is Kind.METRIC and not isinstance(message.value, str)
        if is_number and not (kind == "node" and "stype" in message.tags):
            found[message.name].add(kind)
    return found


def _as_sent(metric: Sampled, types: set[str]) -> Sampled:
    finest = [kind for kind in metric.row.types if kind in types]
    return metric._replace(type=finest[-1]) if finest else metric


def sampled(site: Site) -> Iterator[Sampled]:
    """Yield the metrics of the collectors that a site's configuration enables."""
    installed = entry_points("collectors")
    own = intervals(site, None, {name: entry.load() for name, entry in installed.items()})
    of: dict[str, str] = {}
    for name, entry in installed.items():
        given = site.publish.collectors.get(name, {})
        if not is_enabled(site, name, "configuration"):
            continue
        options = _defaults(entry.load()) | given
        seconds = math.ceil(own.get(name, site.publish.interval))
        for row in getattr(importlib.import_module(entry.module), "METRICS", ()):
            if of.setdefault(row.name, name) != name:
                continue  # perf and likwid count the same
            if row.kind is str:
                continue  # cc-metric-store rejects the whole payload if it is configured
            if row.stype == "job" and options.get("hwthreads") and "_psi_" not in row.name:
                yield Sampled(row._replace(stype=""), "hwthread", seconds)  # shared out
            else:
                yield Sampled(row, _finest(row, options), seconds)


def _defaults(cls: type[Any]) -> dict[str, Any]:
    return {name: p.default for name, p in inspect.signature(cls).parameters.items()}


def _finest(row: Metric, options: Mapping[str, Any]) -> str:
    left_out = {
        kind
        for option, kind in FINER_TYPES.items()
        if not _includes(options.get(option, True), row.name)
    }
    return [kind for kind in row.types if kind not in left_out or len(row.types) == 1][-1]


def _includes(option: bool | Sequence[str], name: str) -> bool:
    return option if isinstance(option, bool) else proc.matches(name, option)


def metric_config(metric: Sampled) -> dict[str, Any]:
    """Return an element of ``metricConfig`` (cc-lib's ``cluster.schema.json``)."""
    row = metric.row
    is_share = row.measure == "percent"
    thresholds = (100, 50, 20, 10) if is_share else (0, 0, 0, 0)
    config = {
        "name": row.name,
        "unit": _unit(row),
        "scope": metric.type,
        "aggregation": _aggregation(row),
        "timestep": metric.seconds,
        **dict(zip(("peak", "normal", "caution", "alert"), thresholds, strict=True)),
    }
    if row.name in FOOTPRINTS:
        config["footprint"] = FOOTPRINTS[row.name]
    if row.name in POWERS:
        config["energy"] = "power"
    return config


def store_config(metric: Sampled) -> dict[str, Any]:
    """Return a value of ``metrics`` in the configuration of cc-metric-store."""
    return {"frequency": metric.seconds, "aggregation": _aggregation(metric.row)}


def _aggregation(row: Metric) -> str:
    return "avg" if row.is_averaged else "sum"


def _unit(row: Metric) -> dict[str, str]:
    if row.name == "ipc":
        return {"base": "IPC"}
    base = BASES.get(row.measure)
    prefix = PREFIXES.get(parse_unit(row.unit).scale) if base else None
    if base is None or prefix is None:
        return {"base": ""}
    return {"base": base} | ({"prefix": prefix} if prefix else {})
