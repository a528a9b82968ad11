"""Results of checks, formatted according to the Nagios plug-in guidelines.

One line: status, findings, ``|`` and performance data; the exit code is the status.
"""

import enum
from collections.abc import Sequence

import msgspec

from ccpipe.errors import UsageError
from ccpipe.terminal import printable


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
    """What was measured: a node, a durable name or a stream."""
    status: Status
    text: str
    value: float | None = None
    """None if it could not be measured."""
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


def check_thresholds(warning: float, critical: float) -> None:
    if warning > critical:
        raise UsageError("--warning must not be above --critical")


def worst(findings: Sequence[Finding]) -> Status:
    found = {finding.status for finding in findings}
    return next((status for status in _BY_SEVERITY if status in found), Status.UNKNOWN)


def line(name: str, findings: Sequence[Finding]) -> str:
    """Return the output line: the worst findings first, then performance data."""
    status = worst(findings)
    bad = [finding for finding in findings if finding.status is not Status.OK]
    shown = sorted(bad, key=lambda finding: _BY_SEVERITY.index(finding.status)) or findings
    # A monitor reads the bar as the begin of the performance data.
    text = "; ".join(printable(each.text).replace("|", "/") for each in shown) or "nothing to check"
    data = " ".join(each.performance() for each in findings if each.value is not None)
    return f"CCPIPE {name.upper()} {status.name} - {text}" + (f" | {data}" if data else "")
