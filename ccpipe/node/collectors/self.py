"""Resources that the publisher itself uses: ``/proc/self/status`` and ``getrusage(2)``.

100 percent of CPU time is one hardware thread. Child processes, such as the programs that other
collectors run, are not included. Metrics whose names begin with ``rusage`` are counters since the
publisher started, as in cc-metric-collector; they cover all threads, while the context switches in
``/proc/self/status`` cover only the main thread.
"""

import re
import resource
from collections.abc import Iterator
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, Previous, SoftErrors, emit, rates

_STATUS = {
    "VmRSS": Metric("self_mem_used", "kB", int, "resident memory of the publisher"),
    "Threads": Metric("self_threads", "", int, "threads of the publisher"),
}
_CPU = (
    Metric("self_user_cpu", "percent", float, "the publisher's CPU time in user mode"),
    Metric("self_sys_cpu", "percent", float, "the publisher's CPU time in the kernel"),
)
_COUNTERS = {  # attributes of resource.getrusage()
    "ru_nvcsw": Metric(
        "rusage_vol_ctx_switch", "", int, "the publisher's voluntary context switches"
    ),
    "ru_nivcsw": Metric(
        "rusage_invol_ctx_switch", "", int, "the publisher's involuntary context switches"
    ),
    "ru_majflt": Metric(
        "rusage_major_pgfaults", "", int, "the publisher's major page faults, which read a disk"
    ),
    "ru_minflt": Metric("rusage_minor_pgfaults", "", int, "the publisher's minor page faults"),
}

METRICS = (*_STATUS.values(), *_CPU, *_COUNTERS.values())

_NODE = {"type": "node"}
_MICROSECONDS = 1e6
_VALUE = re.compile(r"(\d{1,18})(?: kB)?", re.ASCII)


class SelfUsage:
    """The memory and CPU time of this process; the first sample has no CPU time.

    Parameters
    ----------
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(self, *, root: str = "/") -> None:
        self._path = Path(root, "proc/self/status")
        self._previous = Previous[list[int]]()
        self.soft = SoftErrors("self")

    def collect(self, time: int) -> Iterator[Message]:
        status = proc.pairs(self._path)
        for key, row in _STATUS.items():
            with self.soft.noted():
                yield metric(row.name, self._number(status, key), time=time, tags=_NODE)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        times = [round(seconds * _MICROSECONDS) for seconds in (usage.ru_utime, usage.ru_stime)]
        before, seconds = self._previous.swap({"": times})
        percent = [100 * rate / _MICROSECONDS for rate in rates(before.get(""), times, seconds)]
        yield from emit(_CPU, percent, time, _NODE)
        for attribute, row in _COUNTERS.items():
            yield metric(row.name, getattr(usage, attribute), time=time, tags=_NODE)
        self.soft.report(usage)

    def _number(self, status: dict[str, str], key: str) -> int:
        found = _VALUE.fullmatch(status.get(key, ""))
        if found is None:
            raise DataError(f"{self._path}: {key} {status.get(key, '')!r:.40} is not a number")
        return int(found[1])
