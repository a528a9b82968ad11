"""How many processes there are and what they wait for: ``/proc/<pid>/stat`` and ``/proc/stat``.

Which programs they are is no metric: ClusterCockpit's values are numbers.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.sources import proc
from ccpipe.sources.metrics import Metric

_STATES = {
    "R": Metric("procs_running", "", int, "processes that run or can run"),
    "S": Metric("procs_sleeping", "", int, "processes that wait for something"),
    "D": Metric("procs_disk_sleep", "", int, "processes that wait and cannot be interrupted"),
    "I": Metric("procs_idle", "", int, "idle threads of the kernel"),
    "Z": Metric("procs_zombie", "", int, "processes that ended and nobody asked after"),
    "T": Metric("procs_stopped", "", int, "processes that were stopped or are traced"),
}
_SINCE = {
    "processes": Metric("forks", "", int, "processes and threads begun since the last sample"),
    "ctxt": Metric("context_switches", "", int, "context switches since the last sample"),
    "intr": Metric("interrupts", "", int, "interrupts since the last sample"),
}

METRICS = (
    Metric("procs_total", "", int, "processes that exist"),
    Metric("threads_total", "", int, "threads of these"),
    *_STATES.values(),
    *_SINCE.values(),
)

_NODE = {"type": "node"}
_COUNT = re.compile(r"\d{1,9}", re.ASCII)  # the kernel's is an int
_THREADS = 17  # the place of num_threads among what follows a name in /proc/<pid>/stat (proc(5))


class Processes:
    """The processes of the node; the first sample has nothing since the last.

    Parameters
    ----------
    root
        Where the file system begins that is read; another than `/` for a captured tree.

    """

    def __init__(self, *, root: str = "/") -> None:
        self._path = Path(root, "proc")
        self._before: list[int] | None = None

    def collect(self, time: int) -> Iterator[Message]:
        """Yield the numbers of processes, and what began since the last call.

        Raises
        ------
        OSError, DataError
            where a file is missing or is not what the kernel writes.

        """
        states, threads = self._count()
        yield metric("procs_total", states.total(), time=time, tags=_NODE)
        yield metric("threads_total", threads, time=time, tags=_NODE)
        states["T"] += states.pop("t", 0)
        for state, row in _STATES.items():
            yield metric(row.name, states[state], time=time, tags=_NODE)
        before, self._before = self._before, self._totals()
        gains = proc.gained(before, self._before) or []
        for row, gain in zip(_SINCE.values(), gains, strict=False):
            yield metric(row.name, gain, time=time, tags=_NODE)

    def _count(self) -> tuple[Counter[str], int]:
        """Return how many processes are in each state, and how many threads they have."""
        states: Counter[str] = Counter()
        threads = 0
        for name in os.listdir(self._path):  # noqa: PTH208 - hundreds of paths cost too much
            if name.isdecimal():
                place = f"{self._path}/{name}/stat"
                text = proc.word(place)
                if text is None:
                    continue  # it ended meanwhile
                # A name may hold anything, also brackets and blanks.
                words = text.rpartition(")")[2].split()
                if len(words) <= _THREADS or not _COUNT.fullmatch(words[_THREADS]):
                    raise DataError(f"{place}: {text!r:.60} is not a process")
                states[words[0]] += 1
                threads += int(words[_THREADS])
        return states, threads

    def _totals(self) -> list[int]:
        path = self._path / "stat"
        rows = {}
        for _, line in proc.lines(path):
            key, _, numbers = line.partition(" ")
            if key in _SINCE:
                rows[key] = numbers.split(" ", 1)[0].strip()
        return proc.counters(str(path), [rows.get(key, "") for key in _SINCE], least=len(_SINCE))
