"""Numbers of processes by state: ``/proc/<pid>/stat`` and ``/proc/stat``.

Program names are strings, which the collector ``topprocs`` reports.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.linux.process_table import Process, ProcessTable
from ccpipe.node.sampling.collector import Metric, SoftErrors, emit

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
    Metric("threads_total", "", int, "threads of all processes"),
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
        self.table = ProcessTable(root=root)  # others may share its walk; see ``ProcessTable``
        self._path = Path(root, "proc/stat")
        self._before: list[int] | None = None
        self.soft = SoftErrors("processes")

    def collect(self, time: int) -> Iterator[Message]:
        processes: Sequence[Process] = ()
        with self.soft.noted():
            processes, errors, _ = self.table.at(time)
            self.soft.add(errors)
        if processes:
            yield from self._counted(processes, time)
        before, self._before = self._before, None
        with self.soft.noted():
            self._before = self._totals()
            gains = proc.gained(before, self._before) or []
            yield from emit(tuple(_SINCE.values()), gains, time, _NODE)
        self.soft.report(processes or self._before)

    def _counted(self, processes: Sequence[Process], time: int) -> Iterator[Message]:
        states = Counter([process.state for process in processes])
        threads = sum([process.threads for process in processes])
        yield metric("procs_total", states.total(), time=time, tags=_NODE)
        yield metric("threads_total", threads, time=time, tags=_NODE)
        states["T"] += states.pop("t", 0)
        for state, row in _STATES.items():
            yield metric(row.name, states[state], time=time, tags=_NODE)

    def _totals(self) -> list[int]:
        rows = {}
        for _, line in proc.lines(self._path):
            key, _, numbers = line.partition(" ")
            if key in _SINCE:
                rows[key] = numbers.split(" ", 1)[0].strip()
        return proc.counters(
            str(self._path), [rows.get(key, "") for key in _SINCE], minimum=len(_SINCE)
        )
