"""The processes that use the most CPU time: ``/proc/<pid>/stat``.

Disabled unless ``enabled = true``, because the values are strings: the names of programs and kernel
threads, up to 15 bytes long. The specification has only numbers; stores of numbers
need the rule ``select`` with ``numeric = true``, otherwise these metrics become dead letters.

``topproc1`` is the process that used the most CPU time since the last sample, including its child
processes that ended. Processes that used none are left out. cc-metric-collector sorts by the CPU
time since the start of each process instead, as ``ps`` does.
"""

from collections.abc import Iterator

from ccpipe.errors import ConfigError
from ccpipe.message import Message
from ccpipe.node.collectors.sonar.process import CpuUse
from ccpipe.node.linux import proc
from ccpipe.node.linux.process_table import ProcessTable
from ccpipe.node.sampling.collector import Metric, SoftErrors

_MAX = 20  # processes
_MEANING = "name of the program that used the n-th most CPU time since the last sample"

METRICS = tuple(
    Metric(f"topproc{place}", "", str, _MEANING, family="topproc<n>")
    for place in range(1, _MAX + 1)
)

_NODE = {"type": "node"}


class TopProcesses:
    """The busiest processes of the node; the first sample is empty.

    Parameters
    ----------
    num_procs
        Number of processes to report, 1 to 20.
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(self, *, num_procs: int = 5, root: str = "/") -> None:
        if not 1 <= num_procs <= _MAX:
            raise ConfigError(f"num_procs: expected 1 to {_MAX}, got {num_procs}")
        self._num_procs = num_procs
        self.table = ProcessTable(root=root)  # may be another one from the next sample on
        self._use = CpuUse()
        self.soft = SoftErrors("topprocs")

    def collect(self, time: int) -> Iterator[Message]:
        walk = self.table.at(time)
        self.soft.add(walk.errors)
        self.soft.report(walk.processes)
        use = self._use.since(walk)
        names = {process.pid: process.name for process in walk.processes}
        busy = sorted(
            [pid for pid, percent in use.items() if percent], key=lambda pid: (-use[pid], pid)
        )
        for row, pid in zip(METRICS, busy[: self._num_procs], strict=False):
            yield Message(row.name, _NODE, proc.tag(names[pid]), time)
