"""Sensors of the board management controller (BMC): ``ipmi-sensors`` or ``ipmitool -c sdr``.

The controller takes a second or more to answer, so the collector runs once a minute unless it has
another ``interval``. Both programs need root, or access to ``/dev/ipmi0``. Sensors keep the board's
names; if several share a name, the second is reported as ``Temp#2``. Sensors that cannot be read or
have no numeric value, such as the presence of a part, are omitted.
"""

import csv
import errno
import math
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from ccpipe.config import Duration
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, SoftErrors
from ccpipe.process.child import run

_row = partial(Metric, stype="sensor")
METRICS = (
    _row("ipmi_temperature", "degC", float, "temperature of a sensor"),
    _row("ipmi_fan", "RPM", float, "fan speed"),
    _row("ipmi_voltage", "V", float, "voltage of a sensor"),
    _row("ipmi_current", "A", float, "current of a sensor"),
    _row("ipmi_power", "W", float, "power of a sensor"),
    _row("ipmi_percent", "percent", float, "percentage of a sensor, such as a fan's duty cycle"),
)

_NAMES = {  # by unit, as ipmi-sensors and ipmitool write it
    "C": "ipmi_temperature", "degrees C": "ipmi_temperature",
    "F": "ipmi_temperature", "degrees F": "ipmi_temperature",
    "RPM": "ipmi_fan",
    "V": "ipmi_voltage", "Volts": "ipmi_voltage",
    "A": "ipmi_current", "Amps": "ipmi_current",
    "W": "ipmi_power", "Watts": "ipmi_power",
    "%": "ipmi_percent", "percent": "ipmi_percent",
}  # fmt: skip
_FAHRENHEIT = frozenset({"F", "degrees F"})

_PROGRAMS = (
    ("ipmi-sensors", "--comma-separated-output", "--quiet-cache", "--sdr-cache-recreate"),
    ("ipmitool", "-c", "sdr"),
)
_HEADER = "ID,"
_COLUMNS = ("Name", "Reading", "Units")


class Ipmi:
    """The sensors that the board's controller reads.

    Parameters
    ----------
    command
        The program with its arguments; default: the first of `ipmi-sensors` and `ipmitool` that is
        found. Its output must have the same format.
    exclude
        Sensors to exclude, as shell patterns.
    timeout
        Time limit for the program.

    """

    INTERVAL = 60.0
    """Default seconds between two samples."""

    def __init__(
        self,
        *,
        command: Sequence[str] = (),
        exclude: Sequence[str] = (),
        timeout: Duration = Duration(20),
    ) -> None:
        self._command = command
        self._exclude = exclude
        self._timeout = float(timeout)
        self.soft = SoftErrors("ipmi")

    def collect(self, time: int) -> Iterator[Message]:
        printed = run(self._command or _program(), timeout=self._timeout)
        seen: Counter[str] = Counter()
        for words in _rows(printed.decode("utf-8", "replace")):
            if len(words) < len(_COLUMNS):
                self.soft.note(f"{','.join(words)!r:.80} is not a sensor")
                continue
            name, value, unit = words
            seen[name] += 1
            if unit not in _NAMES or proc.matches(name, self._exclude):
                continue
            number = _number(value)
            if number is not None:
                if unit in _FAHRENHEIT:
                    number = (number - 32) / 1.8
                sensor = name if seen[name] == 1 else f"{name}#{seen[name]}"
                tags = {"type": "node", "stype": "sensor", "stype-id": proc.tag(sensor)}
                yield metric(_NAMES[unit], number, time=time, tags=tags)


def _program() -> Sequence[str]:
    for words in _PROGRAMS:
        if shutil.which(words[0]):
            return words
    raise FileNotFoundError(errno.ENOENT, "neither ipmi-sensors nor ipmitool is installed")


def _rows(text: str) -> Iterator[list[str]]:
    """Yield name, value and unit of each sensor, of either program; fewer of a bad line."""
    if text.startswith(_HEADER):  # FreeIPMI names its columns, as options add some
        for row in csv.DictReader(text.splitlines(), quotechar="'"):
            yield [row[column].strip() for column in _COLUMNS if row.get(column) is not None]
    else:
        for words in csv.reader(text.splitlines()):
            if words:
                yield [word.strip() for word in words[: len(_COLUMNS)]]


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None  # N/A, na, empty, or the bits of a sensor without a number
    return number if math.isfinite(number) else None
