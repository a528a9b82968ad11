"""AMD GPUs, through the driver amdgpu: ``/sys/class/drm/card*/device``.

A GPU is identified by its PCI address in NVIDIA's notation: ``00000000:C1:00.0``. Metric names
follow cc-metric-collector where it has them, and so does the unit of memory, 2²⁰ bytes. Values that
a GPU does not report are omitted.
"""

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, SoftErrors

_row = partial(Metric, types=("accelerator",))
_FILES = (  # file, what one unit of it is in the unit of the metric, metric
    (
        "gpu_busy_percent",
        1,
        _row("rocm_gfx_util", "percent", float, "time the compute engine was busy"),
    ),
    ("mem_busy_percent", 1, _row("rocm_umc_util", "percent", float, "time the memory was busy")),
    ("mem_info_vram_total", 2**-20, _row("rocm_mem_total", "MByte", float, "memory of the GPU")),
    ("mem_info_vram_used", 2**-20, _row("rocm_mem_used", "MByte", float, "memory in use")),
)
_SENSORS = {  # as the driver labels them
    "PPT": ("power", 1e-6, _row("rocm_avg_power", "W", float, "power drawn")),
    "cap": ("power", 1e-6, _row("rocm_power_limit", "W", float, "power limit")),
    "edge": ("temp", 1e-3, _row("rocm_temp_edge", "degC", float, "edge temperature")),
    "junction": ("temp", 1e-3, _row("rocm_temp_hotspot", "degC", float, "hotspot temperature")),
    "mem": ("temp", 1e-3, _row("rocm_temp_mem", "degC", float, "temperature of the memory")),
    "sclk": ("freq", 1e-6, _row("rocm_gfx_clock", "MHz", float, "clock of the compute engine")),
    "mclk": ("freq", 1e-6, _row("rocm_u_clock", "MHz", float, "clock of the memory")),
}
_FAN = _row("rocm_fan", "percent", float, "fan speed")
_ECC = {
    "ue": _row(
        "rocm_ecc_uncorrected_error", "", int, "uncorrectable errors since the driver was loaded"
    ),
    "ce": _row("rocm_ecc_corrected_error", "", int, "corrected errors since the driver was loaded"),
}

_GPU_METRICS = {  # offsets in the file gpu_metrics: in versions 1.1 to 1.3, and since 1.4; -1: none
    _row("rocm_mm_util", "percent", float, "use of the video engines"): (20, -1),
    _row("rocm_temp_vrgfx", "degC", float, "temperature of the engine's regulator"): (10, -1),
    _row("rocm_temp_vrsoc", "degC", float, "temperature of the SoC's regulator"): (12, 8),
    _row("rocm_temp_vrmem", "degC", float, "temperature of the memory's regulator"): (14, -1),
    _row("rocm_soc_clock", "MHz", float, "clock of the rest of the chip"): (42, -1),
    _row("rocm_v0_clock", "MHz", float, "clock of the first video engine"): (46, -1),
    _row("rocm_d0_clock", "MHz", float, "clock of the first decoder"): (48, -1),
    _row("rocm_v1_clock", "MHz", float, "clock of the second video engine"): (50, -1),
    _row("rocm_d1_clock", "MHz", float, "clock of the second decoder"): (52, -1),
}  # fmt: skip
_HBM = _row("rocm_temp_hbm", "degC", float, "temperature of a stack of memory", stype="device")
_HBM_OFFSET, _HBM_STACKS = 88, 4

METRICS = (
    *(row for _, _, row in (*_FILES, *_SENSORS.values())),
    _FAN,
    *_ECC.values(),
    *_GPU_METRICS,
    _HBM,
)

_VENDOR = "0x1002"
_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2}\.[0-7])", re.ASCII)
_COUNT = re.compile(r"(ue|ce): (\d{1,18})", re.ASCII)


class AmdGpu:
    """AMD GPUs.

    Parameters
    ----------
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(self, *, root: str = "/") -> None:
        self._root = root
        self.soft = SoftErrors("amd_gpu")

    def collect(self, time: int) -> Sequence[Message]:
        found = list(self._messages(time))
        self.soft.report(found)
        return found

    def _messages(self, time: int) -> Iterator[Message]:
        noted = self.soft.noted
        for address, device in directories(self._root).items():
            tags = {"type": "accelerator", "type-id": address}
            for name, value in [*load(device, noted), *sensors(device, noted)]:
                yield metric(name, value, time=time, tags=tags)
            with noted():
                for name, value in list(_errors(device)):
                    yield metric(name, value, time=time, tags=tags)
            with noted():
                for name, stack, value in _gpu_metrics(device / "gpu_metrics"):
                    of = {**tags, "stype": "device", "stype-id": stack} if stack else tags
                    yield metric(name, value, time=time, tags=of)


def directories(root: str) -> dict[str, Path]:
    """Return the directory of each AMD GPU by its address; raises OSError if there are none."""
    directory = Path(root, "sys/class/drm")
    found = {}
    for name in proc.names(directory, "card*"):
        device = directory / name / "device"
        if name[4:].isdecimal() and proc.word(device / "vendor") == _VENDOR:
            address = _ADDRESS.fullmatch(device.resolve().name)
            found[f"{address[1]:0>8}:{address[2]}:{address[3]}".upper() if address else name] = (
                device
            )
    if not found:
        raise FileNotFoundError(2, "no AMD GPU", str(directory))
    return found


Noted = Callable[[], AbstractContextManager[None]]
"""A context in which an error of one file is raised; it may suppress it."""


def load(device: Path, noted: Noted = nullcontext) -> Iterator[tuple[str, float]]:
    for file, unit, row in _FILES:
        with noted():
            value = proc.number(device / file)
            if value is not None:
                yield row.name, value * unit if isinstance(unit, float) else float(value)


def sensors(device: Path, noted: Noted = nullcontext) -> Iterator[tuple[str, float]]:
    """Yield the sensors, found by label: their numbers differ by GPU."""

    def read(path: Path) -> int | None:
        found = None
        with noted():
            found = proc.number(path)
        return found  # noqa: RET504 - None after an error that was suppressed

    for hwmon in (device / "hwmon").glob("hwmon*"):
        power = read(hwmon / "power1_average")  # newer GPUs have power1_input only
        values = {
            "PPT": read(hwmon / "power1_input") if power is None else power,
            "cap": read(hwmon / "power1_cap"),
        }
        for kind in ("temp", "freq"):
            for number in range(1, 4):
                label = proc.word(hwmon / f"{kind}{number}_label")
                if label and _SENSORS.get(label, ("",))[0] == kind:
                    values[label] = read(hwmon / f"{kind}{number}_input")
        for label, value in values.items():
            if value is not None:
                _, unit, row = _SENSORS[label]
                yield row.name, value * unit
        speed, maximum = read(hwmon / "pwm1"), read(hwmon / "pwm1_max")
        if speed is not None and maximum:
            yield _FAN.name, 100 * speed / maximum


def _errors(device: Path) -> Iterator[tuple[str, float]]:
    path = device / "ras" / "umc_err_count"
    for line in (proc.word(path) or "").splitlines():
        found = _COUNT.fullmatch(line.strip())
        if found is None:
            raise DataError(f"{path}: {line!r:.60} is not a number of errors")
        yield _ECC[found[1]].name, int(found[2])


def _gpu_metrics(path: Path) -> Iterator[tuple[str, str, float]]:
    """Yield name, number of the memory stack or nothing, and value; raises DataError.

    Source: Linux, ``drivers/gpu/drm/amd/include/kgd_pp_interface.h``. Versions 1.0 and 2 (APUs)
    have another layout and are not read.
    """
    content = _table(path)
    if content is None:
        return
    is_new = content[_REVISION] > _LAST_OLD
    for row, offsets in _GPU_METRICS.items():
        if offsets[is_new] >= 0:
            [value] = _SHORT.unpack_from(content, offsets[is_new])
            if value != _ABSENT:
                yield row.name, "", float(value)
    for stack in range(0 if is_new else _HBM_STACKS):
        [value] = _SHORT.unpack_from(content, _HBM_OFFSET + 2 * stack)
        if value != _ABSENT:
            yield _HBM.name, str(stack), float(value)


def _table(path: Path) -> bytes | None:
    """Return the table of a GPU; None if it is missing or has another layout."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None  # an older driver
    if len(content) < _HEADER.size:
        raise DataError(f"{path}: expected a table, got {len(content)} bytes")
    size, version, revision = _HEADER.unpack_from(content)
    if len(content) != size:
        raise DataError(f"{path}: {len(content)} bytes, but the header announces {size}")
    if version != 1 or revision < 1:
        return None
    if size < _HBM_OFFSET + 2 * _HBM_STACKS:
        raise DataError(f"{path}: {size} bytes are too few")
    return content


_HEADER = struct.Struct("<HBB")  # size, version, revision
_REVISION = 3  # offset of the revision
_SHORT = struct.Struct("<H")
_LAST_OLD = 3
_ABSENT = 0xFFFF
