"""Mean number of runnable tasks per hardware thread: ``/proc/schedstat``.

It is the total time in which tasks ran or waited for the CPU, divided by the time since the last
sample: 1 is a hardware thread that was always busy; above 1, tasks waited. It requires a kernel
built with ``CONFIG_SCHEDSTATS``.

Source: Linux, ``Documentation/scheduler/sched-stats.rst``.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, Previous, SoftErrors, rates

METRICS = (
    Metric("cpu_load_core", "", float, "tasks that ran or waited to run", ("hwthread",)),
)  # fmt: skip

_CPU = re.compile(r"cpu(\d{1,9})", re.ASCII)
_RUNNING, _WAITING = 7, 8  # columns, after the name
_NANOSECONDS = 1e9


class Schedstat:
    """The load of each hardware thread; the first sample has none.

    Parameters
    ----------
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(self, *, root: str = "/") -> None:
        self._path = Path(root, "proc/schedstat")
        self._previous = Previous[list[int]]()
        self.soft = SoftErrors("schedstat")

    def collect(self, time: int) -> Iterator[Message]:
        now: dict[str, list[int]] = {}
        for place, line in proc.lines(self._path):
            words = line.split()
            if found := _CPU.fullmatch(words[0]):
                with self.soft.noted():
                    columns = words[_RUNNING : _WAITING + 1]
                    now[found[1]] = proc.counters(place, columns, minimum=2)
        self.soft.report(now)
        before, seconds = self._previous.swap(now)
        for cpu, counters in now.items():
            if gained := rates(before.get(cpu), counters, seconds):
                tags = {"type": "hwthread", "type-id": cpu}
                yield metric("cpu_load_core", sum(gained) / _NANOSECONDS, time=time, tags=tags)
