"""Limits of processors: the power cap, and the lowest and highest frequency that may be chosen.

They are set by the scheduler, by an energy manager, or by `ccpipe control set`. Beside `cpu_power`
and `clock` they show what a limit changes. The power limit is the long-term one, of the mean power;
the dies of a socket are summed. A limit that is not enforced is omitted. Virtual machines have
neither.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.linux import powercap, proc
from ccpipe.node.sampling.collector import Metric, SoftErrors

_FREQUENCIES = {"min_cpu_freq": "scaling_min_freq", "max_cpu_freq": "scaling_max_freq"}
_PARTS = {"package": "cpu_power_limit", "dram": "mem_power_limit"}
_BOTH = ("node", "hwthread")

METRICS = (
    Metric("cpu_power_limit", "W", float, "limit of the processor's mean power", ("socket",)),
    Metric("mem_power_limit", "W", float, "limit of the memory's mean power", ("socket",)),
    Metric(
        "min_cpu_freq", "MHz", float,
        "lowest frequency that may be chosen; of a node, the mean of its hardware threads", _BOTH,
    ),
    Metric(
        "max_cpu_freq", "MHz", float,
        "highest frequency that may be chosen; of a node, the mean of its hardware threads", _BOTH,
    ),
)  # fmt: skip

_WATT = 1e6  # microwatts
_MHZ = 1000  # kHz


class CpuLimits:
    """The limits of power and frequency.

    Parameters
    ----------
    hwthreads
        Also report the frequencies of each hardware thread, not only their mean.
    root
        Root of the file system to read; set it to read a captured tree.

    """

    INTERVAL = 60.0

    def __init__(self, *, hwthreads: bool = False, root: str = "/") -> None:
        self._hwthreads = hwthreads
        self._root = root
        self._policies = Path(root, "sys/devices/system/cpu/cpufreq")
        self.soft = SoftErrors("cpu_limits")

    def collect(self, time: int) -> list[Message]:
        found = [*self._power(time), *self._frequencies(time)]
        self.soft.report(found)
        if not found:
            raise FileNotFoundError(2, "no power or frequency limits", str(self._policies))
        return found

    def _power(self, time: int) -> Iterator[Message]:
        limits: dict[tuple[str, str], list[float]] = defaultdict(list)
        for part, socket, directory in self._zones():
            if part in _PARTS:
                limit: float | None = None
                with self.soft.noted():
                    limit = _long_term(directory)
                limits[_PARTS[part], socket].append(math.nan if limit is None else limit)
        for (name, socket), dies in limits.items():
            watts = sum(dies) / _WATT
            if math.isfinite(watts):  # a socket without one of its dies is not known
                yield metric(name, watts, time=time, tags={"type": "socket", "type-id": socket})

    def _zones(self) -> list[powercap.Zone]:
        if not Path(self._root, "sys/class/powercap").is_dir():
            return []
        zones: list[powercap.Zone] = []
        with self.soft.noted():
            zones += powercap.zones(self._root, self.soft.noted)
        return zones

    def _frequencies(self, time: int) -> Iterator[Message]:
        policies: list[str] = []
        if self._policies.is_dir():
            with self.soft.noted():
                policies = proc.names(self._policies, "policy*")
        for name, file in _FREQUENCIES.items():
            limits: dict[str, float] = {}
            for policy in policies:
                with self.soft.noted():
                    kilohertz = proc.number(self._policies / policy / file)
                    place = self._policies / policy / "affected_cpus"
                    threads = proc.text(place).split()
                    if not all(map(str.isdecimal, threads)):
                        raise DataError(f"{place}: not a list of hardware threads")
                    if kilohertz is not None:
                        limits |= dict.fromkeys(threads, kilohertz / _MHZ)
            if limits:
                mean = sum(limits.values()) / len(limits)
                yield metric(name, mean, time=time, tags={"type": "node"})
            if self._hwthreads:
                for thread, megahertz in limits.items():
                    tags = {"type": "hwthread", "type-id": thread}
                    yield metric(name, megahertz, time=time, tags=tags)


def _long_term(zone: Path) -> int | None:
    """Return the limit of a zone's mean power in microwatts; None if none is enforced."""
    if proc.number(zone / "enabled") == 0:
        return None
    for number in range(_MAX_CONSTRAINTS):
        name = proc.word(zone / f"constraint_{number}_name")
        if name is None or name == "long_term":
            return proc.number(zone / f"constraint_{number}_power_limit_uw") or None  # 0 if unset
        if name not in _OTHER_CONSTRAINTS:
            raise DataError(f"{zone}: {name!r:.40} is not the name of a constraint")
    return None


_MAX_CONSTRAINTS = 10
_OTHER_CONSTRAINTS = ("short_term", "peak_power")
