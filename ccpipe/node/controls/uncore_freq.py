"""Frequency limits of the uncore: caches and interconnect of an Intel processor.

Controls are named as LIKWID names them; like there, frequencies are in MHz. A socket of several
dies is one device, whose dies are all set.

Source: Linux, ``Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst``.
"""

import contextlib
import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.node.controls.control import (
    Control,
    ControlChange,
    Tags,
    device,
    formatted,
    joined,
    quantity,
    reading,
    set_files,
)
from ccpipe.node.linux import proc

_FILES = {
    "min_uncore_freq": ("min_freq_khz", "lowest frequency that may be chosen, in MHz"),
    "max_uncore_freq": ("max_freq_khz", "highest frequency that may be chosen, in MHz"),
    "cur_uncore_freq": ("current_freq_khz", "current frequency, in MHz"),
    "initial_min_uncore_freq": ("initial_min_freq_khz", "lowest possible frequency, in MHz"),
    "initial_max_uncore_freq": ("initial_max_freq_khz", "highest possible frequency, in MHz"),
}
"""Controls with their files and descriptions; not every kernel has all of them."""

_BOUNDS = {
    "min_freq_khz": ("initial_min_freq_khz", "max_freq_khz"),
    "max_freq_khz": ("min_freq_khz", "initial_max_freq_khz"),
}
"""Writable files, each with the files that contain its lower and upper bound."""

_LOWEST = frozenset({"min_freq_khz", "initial_min_freq_khz"})
_STEP = 100_000  # kHz: hardware counts in 100 MHz, and the kernel cuts off what is between
_KHZ = {"": 1e3, "kHz": 1.0, "MHz": 1e3, "GHz": 1e6, "Hz": 1e-3}
_DIE = re.compile(r"package_(\d{1,5})_die_\d{1,5}", re.ASCII)


class UncoreFreq:
    """The uncore frequency of each socket."""

    def __init__(self, *, root: str = "/") -> None:
        self._directory = Path(root, "sys/devices/system/cpu/intel_uncore_frequency")

    def controls(self) -> dict[str, Control]:
        try:
            dies = [die for group in self._dies().values() for die in group]
        except OSError:  # another processor, or a kernel without the driver
            return {}
        found = {"uncore_freq": Control("uncore frequency of each socket", self.report)}
        for name, (file, about) in _FILES.items():
            if any((die / file).exists() for die in dies):
                get = functools.partial(self.get, file)
                put = functools.partial(self.put, file) if file in _BOUNDS else None
                found[f"uncore_freq.{name}"] = Control(about, get, put, "socket")
        return found

    def report(self, tags: Tags) -> str:
        reported: dict[str, dict[str, float]] = {}
        for socket, dies in self._chosen(tags).items():
            values = reported[f"socket:{socket}"] = {}
            for name, (file, _) in _FILES.items():
                with contextlib.suppress(OSError, DataError):  # not reported here, or unreadable
                    values[name] = _megahertz(dies, file)
        return json.dumps(reported)

    def get(self, file: str, tags: Tags) -> str:
        values = {socket: _megahertz(dies, file) for socket, dies in self._chosen(tags).items()}
        if tags.get("type", "node") == "node":
            return json.dumps(values)
        return formatted(next(iter(values.values())))

    def put(self, file: str, value: str, tags: Tags) -> ControlChange:
        """Set a limit of all requested sockets; if one fails, the others are restored."""
        chosen = self._chosen(tags)
        kilohertz = round(quantity(value, _KHZ))
        dies = [die for group in chosen.values() for die in group]
        for die in dies:
            _check(kilohertz, *(reading(die / bound) for bound in _BOUNDS[file]))
        before = _by_socket(chosen, file)
        set_files({die / file: str(kilohertz) for die in dies})
        return ControlChange(before, _by_socket(chosen, file))

    def _chosen(self, tags: Tags) -> dict[str, list[Path]]:
        dies = self._dies()
        socket = device(tags, "socket", dies)
        return dies if socket is None else {socket: dies[socket]}

    def _dies(self) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for name in proc.names(self._directory, "package_*_die_*"):
            if match := _DIE.fullmatch(name):
                found.setdefault(str(int(match[1])), []).append(self._directory / name)
        return found


def _check(kilohertz: int, lowest: int, highest: int) -> None:
    if not lowest <= kilohertz <= highest:
        value, low, high = (formatted(number / 1e3) for number in (kilohertz, lowest, highest))
        raise DataError(f"{value} MHz is not between {low} and {high} MHz")
    if kilohertz % _STEP:
        raise DataError(
            f"{formatted(kilohertz / 1e3)} MHz is not a multiple of {_STEP // 1000} MHz"
        )


def _megahertz(dies: Sequence[Path], file: str) -> float:
    """Return the value of a socket's dies: the lowest of lower limits, else the highest."""
    numbers = [reading(die / file) for die in dies]
    return (min(numbers) if file in _LOWEST else max(numbers)) / 1e3


def _by_socket(chosen: dict[str, list[Path]], file: str) -> str:
    return joined({socket: formatted(_megahertz(dies, file)) for socket, dies in chosen.items()})
