"""CPU time of the node's hardware threads by state: ``/proc/stat``.

100 percent is one hardware thread, as in cc-metric-collector: a node with 64 busy ones has 6400.
Time is measured in kernel ticks, so the states of a hardware thread always add up to 100,
regardless of clock changes. Guest time is also part of ``cpu_user`` and ``cpu_nice``, and is
counted once in ``cpu_used``.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import sub
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, SoftErrors

_BOTH = ("node", "hwthread")
STATES = (  # in the order of /proc/stat
    Metric("cpu_user", "percent", float, "time in user programs", _BOTH),
    Metric("cpu_nice", "percent", float, "time in programs with lowered priority (nice)", _BOTH),
    Metric("cpu_system", "percent", float, "time in the kernel", _BOTH),
    Metric("cpu_idle", "percent", float, "idle time", _BOTH),
    Metric("cpu_iowait", "percent", float, "idle time while waiting for I/O", _BOTH),
    Metric("cpu_irq", "percent", float, "time in hardware interrupts", _BOTH),
    Metric("cpu_softirq", "percent", float, "time in soft interrupts", _BOTH),
    Metric("cpu_steal", "percent", float, "time stolen by the hypervisor", _BOTH),
    Metric("cpu_guest", "percent", float, "time in guests of this hypervisor", _BOTH),
    Metric("cpu_guest_nice", "percent", float, "time in guests with lowered priority", _BOTH),
)
_IDLE = 3
_FIRST_GUEST = 8

METRICS = (
    *STATES,
    Metric("cpu_used", "percent", float, "time not idle", _BOTH),
    Metric("num_cpus", "", int, "online hardware threads"),
)

_NAMES = ("cpu_used", *(row.name for row in STATES))
_NODE = {"type": "node"}
_CPU = re.compile(r"cpu(\d{0,9})", re.ASCII)
_HWTHREAD = re.compile(r"cpu\d{1,9}\s", re.ASCII)


class Cpu:
    """The states of the processors between two samples; the first sample has none.

    Parameters
    ----------
    hwthreads
        Metrics to report for each hardware thread as well, as shell patterns.
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(
        self, *, hwthreads: Sequence[str] = ("cpu_user", "cpu_used"), root: str = "/"
    ) -> None:
        self._of_hwthreads = {row.name for row in METRICS if proc.matches(row.name, hwthreads)}
        self._path = Path(root, "proc/stat")
        self._before: dict[str, list[int]] = {}
        self.soft = SoftErrors("cpu")

    def collect(self, time: int) -> Iterator[Message]:
        lines = [each for each in proc.lines(self._path) if each[1].startswith("cpu")]
        before, now = self._before, ticks_of(self._path, lines, self.soft.noted)
        self._before = now
        self.soft.report(now)
        online = sum(bool(_HWTHREAD.match(line)) for _, line in lines)
        if online:
            yield metric("num_cpus", online, time=time, tags=_NODE)
        for cpu, ticks in now.items():
            if cpu not in before or (cpu and not self._of_hwthreads):
                continue
            tags = {"type": "hwthread", "type-id": cpu} if cpu else _NODE
            wanted = self._of_hwthreads if cpu else _NAMES
            for name, percent in shares(before[cpu], ticks, 1 if cpu else online, wanted):
                yield metric(name, percent, time=time, tags=tags)


def ticks_of(
    path: Path,
    lines: Iterable[tuple[str, str]],
    noted: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, list[int]]:
    """Return the ticks of each hardware thread by its number, and of all by ``""``."""
    ticks = {}
    for place, line in lines:
        word, *words = line.split()
        if found := _CPU.fullmatch(word):
            with noted():
                ticks[found[1]] = proc.counters(place, words[: len(STATES)], minimum=_IDLE + 1)
    with noted():
        if "" not in ticks:
            raise DataError(f"{path}: the line 'cpu' is missing")
    return ticks


def shares(
    before: Sequence[float], now: Sequence[float], hwthreads: int, wanted: Collection[str]
) -> Iterator[tuple[str, float]]:
    """Yield the share of each wanted state in the time between two readings, in percent.

    The states are in the order of ``STATES``, of which the last ones may be missing.
    """
    gains = list(map(sub, now, before))
    if min(gains) < 0:  # idle and iowait by a few ticks (proc(5)), or when online again
        gains = [max(0, gain) for gain in gains]
    total = sum(gains[:_FIRST_GUEST])
    if total:
        for name, gain in zip(_NAMES, (total - gains[_IDLE], *gains), strict=False):
            if name in wanted:
                yield name, 100 * hwthreads * gain / total
