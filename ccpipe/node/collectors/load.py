"""Load averages and thread counts: ``/proc/loadavg``.

``cpu_load`` is the specification's name for what cc-metric-collector calls ``load_one``.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric

METRICS = (
    Metric("cpu_load", "", float, "load average over 1 minute: running and blocked threads"),
    Metric("load_five", "", float, "load average over 5 minutes"),
    Metric("load_fifteen", "", float, "load average over 15 minutes"),
    Metric("proc_run", "", int, "runnable threads"),
    Metric("proc_total", "", int, "threads"),
)

_NODE = {"type": "node"}
_LINE = re.compile(
    r"(\d{1,9}\.\d\d) (\d{1,9}\.\d\d) (\d{1,9}\.\d\d) (\d{1,9})/(\d{1,9}) \d+\n?", re.ASCII
)


class Load:
    """The load of the node.

    Parameters
    ----------
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(self, *, root: str = "/") -> None:
        self._path = Path(root, "proc/loadavg")

    def collect(self, time: int) -> Iterator[Message]:
        text = proc.text(self._path)
        found = _LINE.fullmatch(text)
        if found is None:
            raise DataError(f"{self._path}: {text!r:.60} are not load averages")
        *averages, running, existing = found.groups()
        values = [*map(float, averages), int(running), int(existing)]
        for row, value in zip(METRICS, values, strict=True):
            yield metric(row.name, value, time=time, tags=_NODE)
