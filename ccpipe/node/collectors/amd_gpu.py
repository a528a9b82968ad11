"""AMD's cards, as the driver amdgpu shows them: ``/sys/class/drm/card*/device``.

A card goes by its address on the PCI bus, written as NVIDIA's are: ``00000000:C1:00.0``. Names are
those of cc-metric-collector where it has them; memory is in units of 2²⁰ bytes, as there. What a
card does not tell is left out.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.metrics import Metric

_CARD = ("accelerator",)
_FILES = (  # file, what one unit of it is in the unit of the metric, metric
    ("gpu_busy_percent", 1, Metric("rocm_gfx_util", "percent", float, "busy", _CARD)),
    ("mem_busy_percent", 1, Metric("rocm_umc_util", "percent", float, "memory busy", _CARD)),
    ("mem_info_vram_total", 2**-20, Metric("rocm_mem_total", "MByte", float, "memory", _CARD)),
    ("mem_info_vram_used", 2**-20, Metric("rocm_mem_used", "MByte", float, "in use", _CARD)),
)
_SENSORS = {  # as the driver labels them
    "PPT": ("power", 1e-6, Metric("rocm_avg_power", "W", float, "power drawn", _CARD)),
    "cap": ("power", 1e-6, Metric("rocm_power_limit", "W", float, "the most it may", _CARD)),
    "edge": ("temp", 1e-3, Metric("rocm_temp_edge", "degC", float, "at the edge", _CARD)),
    "junction": ("temp", 1e-3, Metric("rocm_temp_hotspot", "degC", float, "the most", _CARD)),
    "mem": ("temp", 1e-3, Metric("rocm_temp_mem", "degC", float, "of the memory", _CARD)),
    "sclk": ("freq", 1e-6, Metric("rocm_gfx_clock", "MHz", float, "clock", _CARD)),
    "mclk": ("freq", 1e-6, Metric("rocm_u_clock", "MHz", float, "clock of the memory", _CARD)),
}
_FAN = Metric("rocm_fan", "percent", float, "speed of the fan", _CARD)
_ECC = {
    "ue": Metric("rocm_ecc_uncorrected_error", "", int, "since the driver was loaded", _CARD),
    "ce": Metric("rocm_ecc_corrected_error", "", int, "since the driver was loaded", _CARD),
}

METRICS = (
    *(row for _, _, row in _FILES),
    *(row for _, _, row in _SENSORS.values()),
    _FAN,
    *_ECC.values(),
)

_VENDOR = "0x1002"
_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2}\.[0-7])", re.ASCII)
_COUNT = re.compile(r"(ue|ce): (\d{1,18})", re.ASCII)


class AmdGpu:
    """AMD's cards.

    Parameters
    ----------
    root
        Where the file system begins that is read; another than `/` for a captured tree.

    """

    def __init__(self, *, root: str = "/") -> None:
        self._root = root

    def collect(self, time: int) -> Iterator[Message]:
        """Yield what each card tells.

        Raises
        ------
        OSError
            where there is no card of AMD's.
        DataError
            where a file is not what the driver writes.

        """
        for address, device in cards(self._root).items():
            tags = {"type": "accelerator", "type-id": address}
            for name, value in [*load(device), *sensors(device), *_errors(device)]:
                yield metric(name, value, time=time, tags=tags)


def cards(root: str) -> dict[str, Path]:
    """Return the folder of each card of AMD's by its address; raises OSError as above."""
    folder = Path(root, "sys/class/drm")
    found = {}
    for card in proc.names(folder, "card*"):
        device = folder / card / "device"
        if card[4:].isdecimal() and proc.word(device / "vendor") == _VENDOR:
            place = _ADDRESS.fullmatch(device.resolve().name)
            found[f"{place[1]:0>8}:{place[2]}:{place[3]}".upper() if place else card] = device
    if not found:
        raise FileNotFoundError(2, "no card of AMD's", str(folder))
    return found


def load(device: Path) -> Iterator[tuple[str, float]]:
    """Yield how busy a card and its memory are; raises DataError."""
    for file, unit, row in _FILES:
        value = proc.number(device / file)
        if value is not None:
            yield row.name, value * unit if isinstance(unit, float) else float(value)


def sensors(device: Path) -> Iterator[tuple[str, float]]:
    """Yield what the card's hwmon says; raises DataError.

    Sensors go by label, as their numbers differ by card.
    """
    for hwmon in (device / "hwmon").glob("hwmon*"):
        power = proc.number(hwmon / "power1_average")  # newer cards tell power1_input only
        values = {
            "PPT": proc.number(hwmon / "power1_input") if power is None else power,
            "cap": proc.number(hwmon / "power1_cap"),
        }
        for kind in ("temp", "freq"):
            for number in range(1, 4):
                label = proc.word(hwmon / f"{kind}{number}_label")
                if label and _SENSORS.get(label, ("",))[0] == kind:
                    values[label] = proc.number(hwmon / f"{kind}{number}_input")
        for label, value in values.items():
            if value is not None:
                _, unit, row = _SENSORS[label]
                yield row.name, value * unit
        speed, maximum = proc.number(hwmon / "pwm1"), proc.number(hwmon / "pwm1_max")
        if speed is not None and maximum:
            yield _FAN.name, 100 * speed / maximum


def _errors(device: Path) -> Iterator[tuple[str, float]]:
    path = device / "ras" / "umc_err_count"
    for line in (proc.word(path) or "").splitlines():
        found = _COUNT.fullmatch(line.strip())
        if found is None:
            raise DataError(f"{path}: {line!r:.60} is not a number of errors")
        yield _ECC[found[1]].name, int(found[2])
