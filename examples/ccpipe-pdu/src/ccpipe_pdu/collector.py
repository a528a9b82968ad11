"""Power sensors of a mainboard, of Linux's hwmon."""

from collections.abc import Iterator
from pathlib import Path

from ccpipe import Message, Metric

METRICS = (Metric("board_power", "W", float, "power of a sensor of the mainboard", stype="sensor"),)


class HwmonPower:
    """Reads ``power*_average`` or ``power*_input`` of each device."""

    def __init__(self, *, directory: Path = Path("/sys/class/hwmon")) -> None:
        """Take the options.

        Parameters
        ----------
        directory
            Where Linux lists the devices.

        """
        self.directory = directory

    def collect(self, time: int) -> Iterator[Message]:
        """Read each sensor; raises FileNotFoundError if the node has none."""
        sensors = sorted(self.directory.glob("hwmon*/power*_average"))
        sensors += sorted(self.directory.glob("hwmon*/power*_input"))
        if not sensors:
            raise FileNotFoundError(f"{self.directory}: no sensor of power")
        for sensor in sensors:
            name = f"{sensor.parent.name}.{sensor.name.partition('_')[0]}"
            tags = {"type": "node", "stype": "sensor", "stype-id": name}
            yield Message("board_power", tags, int(sensor.read_text()) / 1e6, time)
