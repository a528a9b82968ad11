"""Power limits of processors and memory in ``/sys/class/powercap``, read and set.

Controls are named as LIKWID and cc-node-controller name them, in the same units: watts, joules and
seconds. A socket of several dies is one device: its limit is shared out equally.

Source: Linux, ``Documentation/power/powercap/powercap.rst``.
"""

import functools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

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
from ccpipe.node.linux import powercap, proc

_PARTS = {"package": "pkg", "dram": "dram", "core": "pp0", "uncore": "pp1", "psys": "psys"}
"""Zones by the kernel's names, and the names in controls."""

_LIMITS = {"long_term": "limit_1", "short_term": "limit_2", "peak_power": "limit_4"}
"""Constraints by the kernel's names, and the names in controls."""

_ABOUT = {
    "limit": "limit of the average power, in W",
    "limit_time": "averaging time of the limit, in s",
    "limit_max": "highest limit that may be set, in W",
    "limit_min": "lowest limit that may be set, in W",
    "energy": "energy counter, in J; wraps around",
    "enabled": "whether limits are enforced",
}

_MIN_LIMIT, _MAX_LIMIT = 1.0, 10_000.0  # watts, where the kernel has no bounds
_STEP = 1_000_000  # microwatts: the coarsest unit in which hardware counts power
_WATTS = {"": 1.0, "W": 1.0, "mW": 1e-3, "kW": 1e3}
_MICRO = 1e6


class _File(NamedTuple):
    """A file of a zone that belongs to a control."""

    control: str
    socket: str  # empty for the whole node
    path: Path
    what: str  # a key of ``_ABOUT``


class RaplLimits:
    """The power limits of each socket, and of the board."""

    def __init__(self, *, root: str = "/") -> None:
        self._root = root

    def controls(self) -> dict[str, Control]:
        found = {"rapl": Control("power limits of processors and memory", self.report)}
        try:
            files = list(self._files())
        except (OSError, DataError):  # a request for ``rapl`` reports the error
            return found
        for file in files:
            get = functools.partial(self.get, file.control)
            put = functools.partial(self.put, file.control) if file.what == "limit" else None
            kind = "socket" if file.socket else "node"
            found[f"rapl.{file.control}"] = Control(_ABOUT[file.what], get, put, kind)
        if energy := found.get("rapl.pkg_energy"):
            found["rapl.intel.pkg.energy_status"] = energy  # the specification's own example
        return found

    def report(self, tags: Tags) -> str:
        files = list(self._files())
        wanted = device(tags, "socket", {file.socket: file for file in files if file.socket})
        reported: dict[str, dict[str, float]] = defaultdict(dict)
        for control in dict.fromkeys(file.control for file in files):
            for socket, group in _by_socket(files, control).items():
                if wanted in (None, socket):
                    readable = [file for file in group if proc.word(file.path) is not None]
                    if readable:
                        name = f"socket:{socket}" if socket else "node"
                        reported[name][control] = _value(readable)
        return json.dumps(reported)

    def get(self, control: str, tags: Tags) -> str:
        values = {name: _value(files) for name, files in self._requested(control, tags).items()}
        if "" in values or tags.get("type", "node") != "node":
            return formatted(next(iter(values.values())))
        return json.dumps(values)

    def put(self, control: str, value: str, tags: Tags) -> ControlChange:
        """Set a limit, in watts, on all requested sockets; after an error, restore them."""
        watts = quantity(value, _WATTS)
        requested = self._requested(control, tags)
        wanted = {}
        for files in requested.values():
            share = watts / len(files)
            for file in files:
                _check(file.path, share)
                wanted[file.path] = str(round(share * _MICRO))
        before = joined({name: formatted(_value(files)) for name, files in requested.items()})
        set_files(wanted, tolerance=_STEP)
        after = joined({name: formatted(_value(files)) for name, files in requested.items()})
        return ControlChange(before, after)

    def _requested(self, control: str, tags: Tags) -> dict[str, list[_File]]:
        found = _by_socket(self._files(), control)
        if not found:
            raise FileNotFoundError(2, f"{control} is no longer available")
        socket = device(tags, "socket", {name: 0 for name in found if name})
        return found if socket is None else {socket: found[socket]}

    def _files(self) -> Iterator[_File]:
        for part, socket, directory in powercap.zones(self._root):
            stem = _PARTS[part]
            yield _File(f"{stem}_energy", socket, directory / "energy_uj", "energy")
            if (directory / "enabled").exists():
                yield _File(f"{stem}_enabled", socket, directory / "enabled", "enabled")
            for number in range(len(_LIMITS)):
                name = proc.word(directory / f"constraint_{number}_name")
                if name not in _LIMITS:
                    continue
                # LIKWID numbers the limits of zones with more than one.
                limit = _LIMITS[name] if stem in ("pkg", "psys") else "limit"
                for file, suffix in _CONSTRAINT.items():
                    path = directory / f"constraint_{number}_{file}"
                    if path.exists():
                        yield _File(f"{stem}_{limit}{suffix}", socket, path, f"limit{suffix}")
                if number == 0 and (directory / "constraint_0_max_power_uw").exists():
                    path = directory / "constraint_0_max_power_uw"
                    yield _File(f"{stem}_max_limit", socket, path, "limit_max")


_CONSTRAINT = {
    "power_limit_uw": "",
    "time_window_us": "_time",
    "max_power_uw": "_max",
    "min_power_uw": "_min",
}


def _by_socket(files: Iterable[_File], control: str) -> dict[str, list[_File]]:
    found: dict[str, list[_File]] = defaultdict(list)
    for file in files:
        if file.control == control:
            found[file.socket].append(file)
    return dict(found)


def _value(files: list[_File]) -> float:
    """Return the sum over the dies of a socket; of times and switches, the minimum."""
    numbers = [reading(file.path) for file in files]
    if files[0].what == "enabled":
        return float(min(numbers))
    return (min(numbers) if files[0].what == "limit_time" else sum(numbers)) / _MICRO


def _check(path: Path, watts: float) -> None:
    if proc.word(path.parent / "enabled") == "0":
        raise DataError(f"{path.parent.name} is not enabled: a limit would not be kept")
    stem = str(path).removesuffix("power_limit_uw")
    # Many machines have no bounds, or write 0.
    lowest = (proc.number(f"{stem}min_power_uw") or 0) / _MICRO or _MIN_LIMIT
    highest = (proc.number(f"{stem}max_power_uw") or 0) / _MICRO or _MAX_LIMIT
    if not lowest <= watts <= highest:
        raise DataError(f"{watts:g} W is not between {lowest:g} and {highest:g} W")
