"""``ccpipe check``: the state of the pipe, for Nagios, Icinga and other monitors.

The output follows the Nagios plug-in guidelines: one line with status, findings, ``|`` and
performance data; the exit code is the status.
"""

import contextlib
import enum
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.streams.jetstream import age_of_newest, stream_of
from ccpipe.bus.nats.streams.reconcile import Survey, survey
from ccpipe.bus.nats.streams.stream import ABSENT, stream_name
from ccpipe.bus.nats.streams.unread import forecast
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.console.options import DURATION, Nodes, SiteOptions, expand_nodes, seconds
from ccpipe.cli.console.output import TableOrJson, print_json
from ccpipe.config import Site
from ccpipe.errors import CcpipeError, UnavailableError, UsageError
from ccpipe.message import metric
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import format_duration, in_bytes, plural, printable, working

check = App(
    name="check",
    help="""Check the pipe, as a plug-in for Nagios or Icinga.

The exit code is 0 for OK, 1 for WARNING, 2 for CRITICAL and 3 for UNKNOWN; the
line on stdout ends with performance data.

Examples: ccpipe check lag --warning 1000 --critical 10000
          ccpipe check freshness --node 'f[01-88]' --critical 5m
          ccpipe check streams -o json | jq .status""",
    help_format="plaintext",
)


class Status(enum.IntEnum):
    """States of a check; their values are the exit codes."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


_BY_SEVERITY = (Status.CRITICAL, Status.WARNING, Status.UNKNOWN, Status.OK)


class Finding(msgspec.Struct, frozen=True):
    """A measured value."""

    label: str
    """A node, a durable name or a stream."""
    status: Status
    text: str
    value: float | None = None
    unit: str = ""
    """``s``, ``B`` or ``c``; empty for a count."""
    warning: float | None = None
    critical: float | None = None
    maximum: float | None = None

    def performance(self) -> str:
        """Return ``'label'=value[unit];warning;critical;minimum;maximum``."""
        assert self.value is not None
        label = printable(self.label).replace("'", "''").replace("=", "_").replace("|", "_")
        numbers = [self.warning, self.critical, 0, self.maximum]
        limits = ";".join("" if number is None else f"{number:g}" for number in numbers)
        return f"'{label}'={_plain(self.value)}{self.unit};{limits.rstrip(';')}".rstrip(";")


def _plain(number: float) -> str:
    return f"{number:.3f}".rstrip("0").rstrip(".")


def compare(value: float, warning: float, critical: float) -> Status:
    """Return the status of a value for which larger is worse."""
    if value > critical:
        return Status.CRITICAL
    return Status.WARNING if value > warning else Status.OK


def measured(
    label: str, text: str, value: float, unit: str, warning: float, critical: float
) -> Finding:
    status = compare(value, warning, critical)
    return Finding(label, status, text, value, unit, warning, critical)


def check_thresholds(warning: float, critical: float) -> None:
    if warning > critical:
        raise UsageError("--warning must not be above --critical")


def worst(findings: Sequence[Finding]) -> Status:
    found = {finding.status for finding in findings}
    return next((status for status in _BY_SEVERITY if status in found), Status.UNKNOWN)


def line(name: str, findings: Sequence[Finding]) -> str:
    status = worst(findings)
    bad = [finding for finding in findings if finding.status is not Status.OK]
    shown = sorted(bad, key=lambda finding: _BY_SEVERITY.index(finding.status)) or findings
    # A monitor reads the bar as the begin of the performance data.
    text = "; ".join(printable(each.text).replace("|", "/") for each in shown) or "nothing to check"
    data = " ".join(each.performance() for each in findings if each.value is not None)
    return f"CCPIPE {name.upper()} {status.name} - {text}" + (f" | {data}" if data else "")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Report(SiteOptions):
    """Common options of all checks: configuration and output."""

    output: Annotated[TableOrJson, Parameter(alias="-o")] = "table"
    """A line for monitors, or JSON."""


FULL_WARNING, FULL_CRITICAL = 75.0, 90.0
"""Percentage of a stream's limits used by unread messages."""


@check.command
async def freshness(
    *,
    node: Nodes = None,
    warning: Annotated[str, DURATION] = "1m",
    critical: Annotated[str, DURATION] = "5m",
    report: Report = Report(),
) -> None:
    """Check the age of the newest metrics, for the cluster or for each node.

    Reads the messages stored in JetStream. Checking nodes requires subjects that
    contain the node's name, as configured by `ccpipe auth init`.

    Examples:
      ccpipe check freshness
      ccpipe check freshness --node 'f[01-88]' --warning 2m --critical 10m
      ccpipe check freshness --cluster fritz -o json

    Parameters
    ----------
    warning
        Age above which the status is WARNING.
    critical
        Age above which the status is CRITICAL.
    """
    limits = seconds(warning, "--warning") or 0.0, seconds(critical, "--critical") or 0.0
    check_thresholds(*limits)
    nodes = expand_nodes(node)
    async with _reporting("freshness", report) as (bus, site, findings):
        for label, patterns in _patterns(site, nodes).items():
            age = await age_of_newest(bus.jetstream(), patterns)
            if age is None:
                findings.append(
                    Finding(label, Status.CRITICAL, f"no metrics of {label} are stored")
                )
            else:
                text = f"metrics of {label} are {format_duration(age)} old"
                findings.append(measured(label, text, age, "s", *limits))


def _patterns(site: Site, nodes: list[str]) -> dict[str, list[str]]:
    subjects = Subjects.of(site)
    if not nodes:
        return {site.cluster: subjects.patterns(["metrics"])}
    if "{hostname}" not in subjects.templates["metrics"]:
        raise UsageError('--node: needs [bus.subjects] metrics = "{cluster}.metrics.{hostname}"')
    return {
        name: [subjects.of_message(metric("x", 0, time=0, tags={"hostname": name}))]
        for name in nodes
    }


@check.command
async def lag(
    *durable: str, warning: float = 1000, critical: float = 10_000, report: Report = Report()
) -> None:
    """Check the number of messages that bridges have not read yet.

    Examples:
      ccpipe check lag
      ccpipe check lag victoriametrics parquet --critical 100000
      ccpipe check lag --server nats://10.0.0.1:4222 -o json

    Parameters
    ----------
    durable
        Durable names of bridges, which must exist; default: all.
    warning
        Unread messages above which the status is WARNING.
    critical
        Unread messages above which the status is CRITICAL.
    """
    check_thresholds(warning, critical)
    async with _surveyed("lag", report) as (found, findings):
        known = {each.name: each for each in found.consumers}
        for name in durable or known:
            consumer = known.get(name)
            if consumer is None:
                findings.append(Finding(name, Status.CRITICAL, f"{name} has never run"))
                continue
            text = f"{name} has {plural(consumer.num_pending, 'unread message')}"
            findings.append(measured(name, text, consumer.num_pending, "", warning, critical))


@check.command
async def dead_letters(
    *, warning: float = 0, critical: float = 1000, report: Report = Report()
) -> None:
    """Check the number of stored dead letters.

    Examples:
      ccpipe check dead-letters
      ccpipe check dead-letters --warning 100 --critical 10000
      ccpipe check dead-letters --cluster fritz -o json

    Parameters
    ----------
    warning
        Dead letters above which the status is WARNING.
    critical
        Dead letters above which the status is CRITICAL.
    """
    check_thresholds(warning, critical)
    async with _reporting("dead-letters", report) as (bus, site, findings):
        stream = await stream_of(bus.jetstream(), stream_name(Subjects.of(site), dead=True))
        count = stream.state.messages if stream else 0
        text = f"{plural(count, 'dead letter')} of {site.cluster}"
        findings.append(measured("dead_letters", text, count, "", warning, critical))


@check.command
async def streams(
    *, warning: float = FULL_WARNING, critical: float = FULL_CRITICAL, report: Report = Report()
) -> None:
    """Check that streams match the configuration, are read, and lose nothing unread.

    Thresholds are the percentage of a stream's limits, in bytes or time, taken by
    the unread messages of one bridge. At 100 percent the stream deletes them.

    Examples:
      ccpipe check streams
      ccpipe check streams --warning 50 --critical 80
      ccpipe check streams --server nats://10.0.0.1:4222 -o json

    Parameters
    ----------
    warning
        Percentage above which the status is WARNING.
    critical
        Percentage above which the status is CRITICAL.
    """
    check_thresholds(warning, critical)
    async with _surveyed("streams", report) as (found, findings):
        findings.extend(shares(found, warning, critical))
        findings.extend(Finding(text, Status.CRITICAL, text) for text in found.overlaps)
        findings.extend(
            Finding(each.stream, Status.WARNING, str(each))
            for each in found.differences
            if each.now != ABSENT  # the first bridge creates it
        )
        for stream in found.streams:
            amount, maximum = stream.state.bytes, stream.max_bytes
            text = f"{stream.name} has {in_bytes(amount)}"
            findings.append(Finding(stream.name, Status.OK, text, amount, "B", maximum=maximum))


def shares(found: Survey, warning: float, critical: float) -> list[Finding]:
    """Return the unread share of its stream for each bridge."""
    streams = {stream.name: stream for stream in found.streams}
    findings = []
    for consumer in found.consumers:
        stream = streams[consumer.stream_name]
        percent = 100 * forecast(stream, consumer)[0]
        status = compare(percent, warning, critical)
        text = f"unread messages of {consumer.name} take {percent:.0f} % of {stream.name}"
        if lost := consumer.dropped(stream) if consumer.num_pending else 0:
            status = Status.CRITICAL
            text = (
                f"{stream.name} may have deleted {lost} messages that {consumer.name} had not read"
            )
        elif not consumer.num_waiting:
            status = max(status, Status.WARNING)
            text = f"no bridge {consumer.name} runs; {text}"
        findings.append(Finding(consumer.name, status, text, percent, "%", warning, critical))
    return findings


@contextlib.asynccontextmanager
async def _surveyed(name: str, report: Report) -> AsyncIterator[tuple[Survey, list[Finding]]]:
    async with _reporting(name, report) as (bus, site, findings):
        yield await survey(bus, site), findings


@contextlib.asynccontextmanager
async def _reporting(
    name: str, report: Report
) -> AsyncIterator[tuple[Connection, Site, list[Finding]]]:
    """Connect; print the findings and exit with their status, in any case."""
    findings: list[Finding] = []
    try:
        site = report.site()
        opened = Connection(site.bus, name="check", telemetry=Telemetry(), forever=False)
        async with opened as bus:
            with working("checking"):
                yield bus, site, findings
    except CcpipeError as error:
        # Without a broker nothing flows; everything else is a matter of the check's own set-up.
        away = isinstance(error, UnavailableError)
        findings = [Finding(name, Status.CRITICAL if away else Status.UNKNOWN, str(error))]
    _print(name, findings, report.output)
    sys.exit(worst(findings))


def _print(name: str, findings: Sequence[Finding], output: TableOrJson) -> None:
    if output == "json":
        rows = [{**msgspec.structs.asdict(each), "status": each.status.name} for each in findings]
        print_json({"check": name, "status": worst(findings).name, "findings": rows})
    else:
        print(line(name, findings))
