"""Temperatures from the sensors in ``/sys/class/hwmon``.

CPU sensors belong to their socket and are named by label, such as ``Package id 0``; the others
belong to the node and are named by driver, device and label: ``nvme-nvme0/Composite``. Two chips
with the same driver are therefore two series. A sensor that cannot be read (such as in a
sleeping disk) is omitted from the sample, and so is a limit that a chip does not have or that is
not set.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, SoftErrors


def _row(name: str, meaning: str) -> Metric:
    return Metric(name, "degC", float, meaning, ("node", "socket"), "sensor")


METRICS = (
    _row("temperature", "temperature of a sensor"),
    _row("max_temperature", "limit of a sensor for normal operation, with `limits`"),
    _row("crit_temperature", "critical limit of a sensor, with `limits`"),
)

_LIMITS = {"max_temperature": "max", "crit_temperature": "crit"}  # and the names of their files
_UNSET = 65_261_850  # thousandths: NVMe drives have 65535 K where no limit is set, other chips 0
_INPUT = re.compile(r"temp\d+_input", re.ASCII)
_PACKAGE = re.compile(r"coretemp\.(\d+)", re.ASCII)


class Temperature:
    """The temperature sensors of the node.

    Parameters
    ----------
    exclude
        Sensors to exclude, as shell patterns; cores have many sensors, which are slow to read.
    limits
        Report the sensors' maximum and critical temperatures as well.
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(
        self, *, exclude: Sequence[str] = ("Core *",), limits: bool = False, root: str = "/"
    ) -> None:
        self._exclude = exclude
        self._limits = _LIMITS if limits else {}
        self._path = Path(root, "sys/class/hwmon")
        self.soft = SoftErrors("temperature")

    def collect(self, time: int) -> Sequence[Message]:
        found: list[Message] = []
        for chip in proc.names(self._path, "hwmon[0-9]*"):
            with self.soft.noted():
                found += self._chip(chip, time)
        self.soft.report(found)
        return found

    def _chip(self, chip: str, time: int) -> Iterator[Message]:
        directory = f"{self._path}/{chip}"  # joining a Path costs as much as reading a file
        driver = proc.word(f"{directory}/name") or chip
        linked = Path(directory, "device")
        device = linked.resolve().name if linked.exists() else chip
        package = _PACKAGE.fullmatch(device) if driver == "coretemp" else None
        for sensor in filter(_INPUT.fullmatch, proc.names(Path(directory))):
            label = proc.word(f"{directory}/{sensor.replace('input', 'label')}")
            label = label or sensor.removesuffix("_input")
            name = label if package else f"{driver}-{device}/{label}"
            if proc.matches(name, self._exclude):
                continue
            tags = {"stype": "sensor", "stype-id": proc.tag(name), "type": "node"}
            if package:
                tags |= {"type": "socket", "type-id": package[1]}
            with self.soft.noted():
                thousandths = proc.number(f"{directory}/{sensor}")
                if thousandths is not None:
                    yield metric("temperature", thousandths / 1000, time=time, tags=tags)
            for limit, file in self._limits.items():
                with self.soft.noted():
                    thousandths = proc.number(f"{directory}/{sensor.replace('input', file)}")
                    if thousandths and thousandths != _UNSET:
                        yield metric(limit, thousandths / 1000, time=time, tags=tags)
