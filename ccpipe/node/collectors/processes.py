"""Numbers of processes by state: ``/proc/<pid>/stat`` and ``/proc/stat``.

Program names are not reported: ClusterCockpit's values are numbers.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.linux.process_table import ProcessTable
from ccpipe.node.sampling.metrics import Metric
from ccpipe.node.sampling.rates import emit

_STATES = {
    "R": Metric("procs_running", "", int, "running or runnable processes"),
    "S": Metric("procs_sleeping", "", int, "sleeping processes"),
    "D": Metric("procs_disk_sleep", "", int, "processes in uninterruptible sleep"),
    "I": Metric("procs_idle", "", int, "idle kernel threads"),
    "Z": Metric("procs_zombie", "", int, "zombie processes"),
    "T": Metric("procs_stopped", "", int, "stopped or traced processes"),
}
_SINCE = {
    "processes": Metric("forks", "", int, "processes and threads started since the last sample"),
    "ctxt": Metric("context_switches", "", int, "context switches since the last sample"),
    "intr": Metric("interrupts", "", int, "interrupts since the last sample"),
}

METRICS = (
    Metric("procs_total", "", int, "processes"),
    Metric("threads_total", "", int, "threads of these"),
    *_STATES.values(),
    *_SINCE.values(),
)

_NODE = {"type": "node"}


class Processes:
    """The processes of the node; the first sample has nothing since the last.

    Parameters
    ----------
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(self, *, root: str = "/") -> None:
        self.table = ProcessTable(root=root)
        """Others may share its walk; see ``ProcessTable``."""
        self._path = Path(root, "proc/stat")
        self._before: list[int] | None = None

    def collect(self, time: int) -> Iterator[Message]:
        """Yield the numbers of processes, and what began since the last call.

        Raises
        ------
        OSError, DataError
            if a file is missing or is not what the kernel writes.

        """
        states, threads = self._count(time)
        yield metric("procs_total", states.total(), time=time, tags=_NODE)
        yield metric("threads_total", threads, time=time, tags=_NODE)
        states["T"] += states.pop("t", 0)
        for state, row in _STATES.items():
            yield metric(row.name, states[state], time=time, tags=_NODE)
        before, self._before = self._before, self._totals()
        gains = proc.gained(before, self._before) or []
        yield from emit(tuple(_SINCE.values()), gains, time, _NODE)

    def _count(self, time: int) -> tuple[Counter[str], int]:
        """Return how many processes are in each state, and how many threads they have."""
        processes, errors, _ = self.table.at(time)
        if errors:
            raise errors[0]
        states = Counter([process.state for process in processes])
        return states, sum([process.threads for process in processes])

    def _totals(self) -> list[int]:
        rows = {}
        for _, line in proc.lines(self._path):
            key, _, numbers = line.partition(" ")
            if key in _SINCE:
                rows[key] = numbers.split(" ", 1)[0].strip()
        return proc.counters(
            str(self._path), [rows.get(key, "") for key in _SINCE], minimum=len(_SINCE)
        )
