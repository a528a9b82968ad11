"""Time lost waiting for CPU, memory or disks: ``/proc/pressure`` (PSI).

``some`` is the share of time in which at least one task waited, ``full`` that in which all tasks
waited. Both are computed from the kernel's totals between two samples, which is exact, while the
kernel's own averages lag behind.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, Previous, SoftErrors

METRICS = (
    Metric("psi_cpu_some", "percent", float, "time at least one task waited for a CPU"),
    Metric("psi_cpu_full", "percent", float, "always 0 for a node"),
    Metric("psi_memory_some", "percent", float, "time at least one task waited for memory"),
    Metric("psi_memory_full", "percent", float, "time all tasks waited for memory"),
    Metric("psi_io_some", "percent", float, "time at least one task waited for I/O"),
    Metric("psi_io_full", "percent", float, "time all tasks waited for I/O"),
    Metric("psi_irq_full", "percent", float, "time all tasks waited for interrupts (Linux 6.1)"),
)

_FILES = ("cpu", "memory", "io", "irq")
_MICROSECONDS = 1e6
# some avg10=0.00 avg60=0.00 avg300=0.00 total=135134717
_LINE = re.compile(r"(some|full) (?:avg\d+=\d+\.\d+ )+total=(\d{1,20})", re.ASCII)


class Pressure:
    """The pressure on the whole node; the first sample is empty.

    Parameters
    ----------
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(self, *, root: str = "/") -> None:
        self._path = Path(root, "proc/pressure")
        self._previous = Previous[int]()
        self.soft = SoftErrors("pressure")

    def collect(self, time: int) -> Iterator[Message]:
        now = self._read()
        before, seconds = self._previous.swap(now)
        for name, percent in shares(before, now, seconds):
            yield metric(f"psi_{name}", percent, time=time, tags={"type": "node"})

    def _read(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in _FILES:
            if name == _FILES[0] or (self._path / name).exists():
                with self.soft.noted():
                    found |= read(self._path / name, name)
        self.soft.report(found)
        return found


def read(path: Path, name: str) -> dict[str, int]:
    """Return the microseconds in a file of pressures, as ``<name>_some`` and ``<name>_full``."""
    found = {}
    for place, line in proc.lines(path):
        match = _LINE.fullmatch(line)
        if match is None:
            raise DataError(f"{place}: {line!r:.60} is not a pressure")
        found[f"{name}_{match[1]}"] = int(match[2])
    return found


def shares(
    before: Mapping[str, int], now: Mapping[str, int], seconds: float
) -> Iterator[tuple[str, float]]:
    for name, total in now.items():
        if name in before and total >= before[name] and seconds > 0:
            yield name, min(100.0, 100 * (total - before[name]) / (seconds * _MICROSECONDS))
