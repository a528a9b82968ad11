"""Power limits of NVIDIA GPUs, read and set through NVML.

Controls are named as LIKWID and cc-energy-manager name them, in watts. A GPU is named by its PCI
bus address, as in the metrics, or by its number; its type is ``accelerator``, or ``nvidia_gpu`` as
in LIKWID.
"""

import errno
import functools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from ccpipe.errors import DataError
from ccpipe.node.controls.control import (
    Control,
    ControlChange,
    Tags,
    device,
    formatted,
    joined,
    quantity,
)
from ccpipe.node.linux.nvml import RELEASE, Driver

_GPU = "accelerator"
_LIKWID_GPU = "nvidia_gpu"
_MILLI = 1000.0
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0}
MAX_RELEASE = 3600
"""Maximum time for which NVML is released by a request, in seconds."""
_WATTS = {"": 1.0, "W": 1.0, "mW": 1e-3, "kW": 1e3}

_LIMIT = "power_limit"
_BOUNDS = ("power_limit_min", "power_limit_max")
_READERS = {
    _LIMIT: ("power that a GPU may draw, in W", "PowerManagementLimit"),
    "power_limit_cur": ("the same", "PowerManagementLimit"),
    "power_limit_default": ("limit after a reset, in W", "PowerManagementDefaultLimit"),
    "power_limit_enf": (
        "limit in force, which others may have lowered, in W", "EnforcedPowerLimit",
    ),
    "power_limit_min": ("lowest limit that may be set, in W", "PowerManagementLimitConstraints"),
    "power_limit_max": ("highest limit that may be set, in W", "PowerManagementLimitConstraints"),
    "power_usage": ("power drawn now, in W", "PowerUsage"),
}  # fmt: skip
"""Each control's description, and the NVML function that reads it, in milliwatts."""


def _watts(nvml: Any, gpu: Any, name: str) -> float:
    milliwatts = getattr(nvml, f"nvmlDeviceGet{_READERS[name][1]}")(gpu)
    if name in _BOUNDS:
        milliwatts = milliwatts[_BOUNDS.index(name)]
    return float(milliwatts / _MILLI)


class NvmlLimits:
    """The power limits of each GPU."""

    def __init__(self, *, root: str = "/") -> None:
        self._driver = Driver(root)

    def controls(self) -> dict[str, Control]:
        if not self._driver.is_there():
            return {}
        found = {"nvml": Control("power limits of NVIDIA GPUs", self.report)}
        for name, (about, _) in _READERS.items():
            put = self.put if name == _LIMIT else None
            found[f"nvml.{name}"] = Control(about, functools.partial(self.get, name), put, _GPU)
        found["nvml.release"] = Control(
            "seconds for which this program does not use NVML, so that GPUs can be reset",
            lambda _: f"{RELEASE.seconds_left:.0f}",
            _put_release,
        )
        return found

    def report(self, tags: Tags) -> str:
        with self._gpus(tags) as (nvml, gpus):
            reported: dict[str, dict[str, float]] = {}
            for address, gpu in gpus.items():
                reported[address] = {}
                for name in _READERS:
                    with suppress(nvml.NVMLError):  # not reported by this GPU
                        reported[address][name] = _watts(nvml, gpu, name)
            return json.dumps(reported)

    def get(self, name: str, tags: Tags) -> str:
        with self._gpus(tags) as (nvml, gpus):
            values = {address: _watts(nvml, gpu, name) for address, gpu in gpus.items()}
        if tags.get("type", "node") == "node":
            return json.dumps(values)
        return formatted(next(iter(values.values())))

    def put(self, value: str, tags: Tags) -> ControlChange:
        """Set the limit of all requested GPUs; after an error, restore them."""
        milliwatts = round(quantity(value, _WATTS) * _MILLI)
        with self._gpus(tags) as (nvml, gpus):
            for address, gpu in gpus.items():
                low, high = nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu)
                if not low <= milliwatts <= high:
                    watts = milliwatts / _MILLI
                    bounds = f"{low / _MILLI:g} and {high / _MILLI:g} W"
                    raise DataError(f"{watts:g} W is not between {bounds} (GPU {address})")
            before = {
                address: nvml.nvmlDeviceGetPowerManagementLimit(gpu)
                for address, gpu in gpus.items()
            }
            try:
                for address, gpu in gpus.items():
                    nvml.nvmlDeviceSetPowerManagementLimit(gpu, milliwatts)
                    kept = nvml.nvmlDeviceGetPowerManagementLimit(gpu)
                    if kept != milliwatts:
                        raise OSError(errno.EIO, f"GPU {address} keeps {kept / _MILLI:g} W")
            except (nvml.NVMLError, OSError):
                for address, gpu in gpus.items():
                    with suppress(nvml.NVMLError):
                        nvml.nvmlDeviceSetPowerManagementLimit(gpu, before[address])
                raise
        after = dict.fromkeys(before, milliwatts)
        return ControlChange(_joined_watts(before), _joined_watts(after))

    @contextmanager
    def _gpus(self, tags: Tags) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield the library and the requested GPUs; NVML errors become OSError."""
        nvml, count = self._driver.gpus()
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
            gpus = {nvml.nvmlDeviceGetPciInfo(gpu).busId: gpu for gpu in handles}
            if tags.get("type") == _LIKWID_GPU:
                tags = {**tags, "type": _GPU}
            numbers = {str(number): address for number, address in enumerate(gpus)}
            name = device(tags, _GPU, {**gpus, **numbers})
            if name is not None:
                address = numbers.get(name, name)
                gpus = {address: gpus[address]}
            yield nvml, gpus
        except nvml.NVMLError as error:
            code = _ERRNO.get(error.value, errno.EIO)
            raise OSError(code, f"NVML: {error}") from error
        finally:
            self._driver.reset()  # between requests, other programs may reset the GPUs


def _put_release(value: str, tags: Tags) -> ControlChange:
    device(tags, "node", {})
    seconds = quantity(value, _SECONDS)
    if seconds > MAX_RELEASE:
        raise DataError(f"{seconds:g} s is more than {MAX_RELEASE} s")
    before = f"{RELEASE.seconds_left:.0f}"
    RELEASE.begin(seconds)
    return ControlChange(before, f"{seconds:g}")


_ERRNO = {3: errno.EOPNOTSUPP, 4: errno.EPERM}
"""By NVML's codes: NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NO_PERMISSION."""


def _joined_watts(milliwatts: Mapping[str, int]) -> str:
    return joined({address: f"{value / _MILLI:g}" for address, value in milliwatts.items()})
