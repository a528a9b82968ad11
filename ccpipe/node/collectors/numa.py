"""NUMA allocation counters: ``/sys/devices/system/node/node*/numastat``.

The counters are in pages since boot; the rates (``_rate``) cover the time since the last sample.
The memory of each domain is reported by the collector ``memory`` with ``domains``.
"""

from collections.abc import Iterator
from pathlib import Path

from ccpipe.message import Message
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, Previous, SoftErrors, emit, rate_rows, rates

_DOMAIN = ("memoryDomain",)
_COUNTERS = (
    Metric("numastats_numa_hit", "pages", int, "allocated here, as intended", _DOMAIN),
    Metric("numastats_numa_miss", "pages", int, "allocated here, intended elsewhere", _DOMAIN),
    Metric("numastats_numa_foreign", "pages", int, "intended here, allocated elsewhere", _DOMAIN),
    Metric("numastats_interleave_hit", "pages", int, "interleaved, as intended", _DOMAIN),
    Metric("numastats_local_node", "pages", int, "allocated here for local programs", _DOMAIN),
    Metric("numastats_other_node", "pages", int, "allocated here for programs elsewhere", _DOMAIN),
)
_NAMES = [row.name.removeprefix("numastats_") for row in _COUNTERS]

_RATES = rate_rows(_COUNTERS, "_rate")

METRICS = (*_COUNTERS, *_RATES)


class Numa:
    """The NUMA domains of the node; the first sample has no rates.

    Parameters
    ----------
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(self, *, root: str = "/") -> None:
        self._path = Path(root, "sys/devices/system/node")
        self._previous = Previous[list[int]]()
        self.soft = SoftErrors("numa")

    def collect(self, time: int) -> Iterator[Message]:
        nodes = proc.names(self._path, "node[0-9]*")
        now: dict[str, list[int]] = {}
        for node in nodes:
            with self.soft.noted():
                now[node] = _read(f"{self._path}/{node}/numastat")
        self.soft.report(now)
        before, seconds = self._previous.swap(now)
        for node, counters in now.items():
            tags = {"type": "memoryDomain", "type-id": node.removeprefix("node")}
            yield from emit(_COUNTERS, counters, time, tags)
            yield from emit(_RATES, rates(before.get(node), counters, seconds), time, tags)


def _read(path: str) -> list[int]:
    known = {}
    for _, line in proc.lines(path):
        name, *words = line.split()
        known[name] = words[0] if len(words) == 1 else ""
    return proc.counters(path, [known.get(name, "") for name in _NAMES], minimum=len(_NAMES))
