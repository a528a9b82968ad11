"""Disk health, through ``smartctl --json`` (smartmontools 7).

The program needs root. Sleeping disks are not woken up and are omitted. NVMe disks report all
metrics below, others only those that smartctl reports for every disk type. smartctl is slow, so
the collector runs once a minute unless it has another `interval`.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from ccpipe.config import Duration
from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, SoftErrors
from ccpipe.process.child import run

T = TypeVar("T")


def _row(name: str, unit: str, meaning: str) -> Metric:
    return Metric(f"smartmon_{name}", unit, int, meaning, stype="disk")


_HEALTH = {  # by key of nvme_smart_health_information_log
    "temperature": _row("temp", "degC", "temperature"),
    "percentage_used": _row(
        "percent_used", "percent", "used share of the expected lifetime; may exceed 100"
    ),
    "available_spare": _row("avail_spare", "percent", "remaining spare capacity"),
    "data_units_read": _row("data_units_read", "", "read, in units of 512000 bytes"),
    "data_units_written": _row("data_units_write", "", "written, in units of 512000 bytes"),
    "host_reads": _row("host_reads", "", "read commands"),
    "host_writes": _row("host_writes", "", "write commands"),
    "power_cycles": _row("power_cycles", "", "power cycles"),
    "power_on_hours": _row("power_on", "sec", "power-on time, in whole hours"),
    "unsafe_shutdowns": _row("unsafe_shutdowns", "", "unexpected power losses"),
    "media_errors": _row("media_errors", "", "uncorrectable data errors"),
    "num_err_log_entries": _row("errlog_entries", "", "entries in the error log"),
    "warning_temp_time": _row("warn_temp_time", "", "minutes above the warning temperature"),
    "critical_comp_time": _row("crit_comp_time", "", "minutes above the critical temperature"),
}

METRICS = tuple(_HEALTH.values())

_HOUR = 3600
_STILL_VALID = 0xFC  # bits of the exit code for the disk's health, not for a failure
_ASLEEP = 0x02  # with --nocheck=standby: the disk sleeps, or it could not be opened


class _Device(msgspec.Struct, frozen=True):
    name: str
    type: str


class _Devices(msgspec.Struct, frozen=True):
    devices: list[_Device] = []


class _Temperature(msgspec.Struct, frozen=True):
    current: int | None = None


class _Hours(msgspec.Struct, frozen=True):
    hours: int | None = None


class _Text(msgspec.Struct, frozen=True):
    string: str = ""
    severity: str = ""


class _Program(msgspec.Struct, frozen=True):
    messages: list[_Text] = []


class _Report(msgspec.Struct, frozen=True):
    """The fields of ``smartctl --all`` for one disk that are read here."""

    smartctl: _Program = _Program()
    nvme_smart_health_information_log: dict[str, msgspec.Raw] | None = None
    temperature: _Temperature = _Temperature()
    power_on_time: _Hours = _Hours()
    power_cycle_count: int | None = None


class Smartmon:
    """The disks that smartctl finds.

    Parameters
    ----------
    command
        The program, optionally preceded by another one such as `sudo`.
    exclude
        Devices to exclude, as shell patterns.
    timeout
        Time limit for the program per device.

    """

    INTERVAL = 60.0
    """Default seconds between two samples."""

    def __init__(
        self,
        *,
        command: Sequence[str] = ("smartctl",),
        exclude: Sequence[str] = (),
        timeout: Duration = Duration(20),
    ) -> None:
        self._command = command
        self._exclude = exclude
        self._timeout = float(timeout)
        self.soft = SoftErrors("smartmon")

    def collect(self, time: int) -> Iterator[Message]:
        found = _decoded(self._run("--scan"), _Devices)
        for device in found.devices:
            if proc.matches(device.name, self._exclude):
                continue
            try:
                options = (f"--device={device.type}", "--nocheck=standby", "--all", device.name)
                report = _decoded(self._run(*options), _Report)
                values = list(self._values(device.name, report))
            except (OSError, DataError) as error:
                self.soft.note(f"{device.name}: {error}")
                continue
            tags = {"type": "node", "stype": "disk", "stype-id": proc.tag(device.name)}
            for row, value in values:
                yield metric(row.name, value, time=time, tags=tags)

    def _values(self, device: str, report: _Report) -> Iterator[tuple[Metric, int]]:
        known = _known(report)
        for key, row in _HEALTH.items():
            if (value := known.get(key)) is not None:
                with self.soft.noted():
                    yield row, _value(f"{device}: {key}", value)
        self.soft.report(known)

    def _run(self, *options: str) -> bytes:
        words = [*self._command, "--json=c", *options]
        return run(words, timeout=self._timeout, tolerated=_STILL_VALID | _ASLEEP)


def _decoded(text: bytes, kind: type[T], name: str = "") -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataError(f"smartctl: {name}{': ' if name else ''}{error}") from None


def _known(report: _Report) -> dict[str, int | msgspec.Raw | None]:
    if errors := [text.string for text in report.smartctl.messages if text.severity == "error"]:
        raise DataError(f"smartctl: {'; '.join(errors)}")
    return {
        "temperature": report.temperature.current,
        "power_on_hours": report.power_on_time.hours,
        "power_cycles": report.power_cycle_count,
        **(report.nvme_smart_health_information_log or {}),
    }


def _value(name: str, known: int | msgspec.Raw) -> int:
    value = known if isinstance(known, int) else _decoded(bytes(known), int, name)
    # Temperatures may be negative; a counter may have 128 bits, more than the wire format.
    value = value * _HOUR if name.endswith("power_on_hours") else value
    if not -(2**63) <= value < 2**63:
        raise DataError(f"smartctl: {name}: {value} is beyond 64 bits")
    return value
