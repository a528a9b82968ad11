"""Energy of CPUs and memory, from their counters: ``/sys/class/powercap/intel-rapl:*``.

AMD processors have them too. The counters wrap around every few minutes. One wraparound between two
samples is corrected: at 400 W they wrap every eleven minutes, so keep the interval below that. The
dies of a socket are summed. Since Linux 5.10 only root can read the counters.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ccpipe.message import Message, metric
from ccpipe.node.linux import powercap, proc
from ccpipe.node.sampling.collector import Metric, Previous, SoftErrors

_SOCKET = ("socket",)
_PARTS = {
    "package": ("cpu", "of the whole processor", _SOCKET),
    "dram": ("mem", "of the memory", _SOCKET),
    "core": ("core", "of the processor's cores", _SOCKET),
    "uncore": ("uncore", "of the processor's uncore, such as its graphics", _SOCKET),
    "psys": ("platform", "of the whole platform, as far as the board measures it", ("node",)),
}

METRICS = tuple(
    row
    for name, what, types in _PARTS.values()
    for row in (
        Metric(f"{name}_power", "W", float, f"mean power {what} since the last sample", types),
        Metric(f"{name}_energy", "J", float, f"energy {what} since the last sample", types),
    )
)

_JOULE = 1e6  # microjoules


class _Zone(NamedTuple):
    part: str
    socket: str  # empty for the whole node
    energy: int  # microjoules, from 0 to `range`
    range: int


class Rapl:
    """The energy of each socket; the first sample is empty.

    Parameters
    ----------
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(self, *, root: str = "/") -> None:
        self._root = root
        self._previous = Previous[_Zone]()
        self.soft = SoftErrors("rapl")

    def collect(self, time: int) -> Iterator[Message]:
        now = self._read()
        before, seconds = self._previous.swap(now)
        drawn: dict[tuple[str, str], list[int]] = defaultdict(list)
        for name, zone in now.items():
            drawn[zone.part, zone.socket].append(_drawn(before.get(name), zone))
        for name, zone in before.items():  # a socket without one of its dies is not known
            if name not in now:
                drawn[zone.part, zone.socket].append(-1)
        for (part, socket), energies in drawn.items():
            if min(energies) >= 0 and seconds > 0:
                name, joules = _PARTS[part][0], sum(energies) / _JOULE
                tags = {"type": "socket", "type-id": socket} if socket else {"type": "node"}
                yield metric(f"{name}_power", joules / seconds, time=time, tags=tags)
                yield metric(f"{name}_energy", joules, time=time, tags=tags)

    def _read(self) -> dict[str, _Zone]:
        zones: dict[str, _Zone] = {}
        for part, socket, directory in powercap.zones(self._root, self.soft.noted):
            with self.soft.noted():
                words = [proc.text(directory / file).strip() for file in _FILES]
                counts = proc.counters(str(directory), words, minimum=2)
                zones[directory.name] = _Zone(part, socket, *counts)
        self.soft.report(zones)
        return zones


_FILES = ("energy_uj", "max_energy_range_uj")


def _drawn(before: _Zone | None, now: _Zone) -> int:
    """Return the microjoules between two readings; -1 where that is not known."""
    if before is None or before.range != now.range:
        return -1
    gain = now.energy - before.energy
    return gain if gain >= 0 else max(gain + now.range, -1)
