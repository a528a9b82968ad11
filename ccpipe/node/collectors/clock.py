"""CPU frequencies: ``/sys/devices/system/cpu/cpu*/cpufreq``, else ``/proc/cpuinfo``.

Without a frequency driver, as in virtual machines, ``/proc/cpuinfo`` is read. Reading the hardware
slightly disturbs an idle hardware thread: give this collector a longer interval if that matters.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, SoftErrors

METRICS = (
    Metric(
        "clock", "MHz", float, "frequency; of a node, the mean of its hardware threads",
        ("node", "hwthread"),
    ),
)  # fmt: skip

_MHZ = re.compile(r"cpu MHz\s*:\s*(\d{1,7}\.?\d{0,9})", re.ASCII)


class Clock:
    """The frequency of the processors.

    Parameters
    ----------
    hwthreads
        Also report each hardware thread, not only their mean.
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(self, *, hwthreads: bool = True, root: str = "/") -> None:
        self._hwthreads = hwthreads
        self._cpus = Path(root, "sys/devices/system/cpu")
        self._cpuinfo = Path(root, "proc/cpuinfo")
        self.soft = SoftErrors("clock")

    def collect(self, time: int) -> Iterator[Message]:
        clocks = self._scaled()
        if not clocks:
            with self.soft.noted():
                clocks = self._reported()
        self.soft.report(clocks)
        if not clocks:
            raise FileNotFoundError(2, "the kernel reports no frequency", str(self._cpus))
        mean = sum(clocks.values()) / len(clocks)
        yield metric("clock", mean, time=time, tags={"type": "node"})
        if self._hwthreads:
            for cpu, megahertz in clocks.items():
                yield metric(
                    "clock", megahertz, time=time, tags={"type": "hwthread", "type-id": cpu}
                )

    def _scaled(self) -> dict[str, float]:
        clocks: dict[str, float] = {}
        if not self._cpus.is_dir():
            return clocks
        for cpu in proc.names(self._cpus, "cpu[0-9]*"):
            with self.soft.noted():
                kilohertz = proc.number(f"{self._cpus}/{cpu}/cpufreq/scaling_cur_freq")
                if kilohertz is not None:
                    clocks[cpu.removeprefix("cpu")] = kilohertz / 1000
        return clocks

    def _reported(self) -> dict[str, float]:
        clocks = {}
        cpu = ""
        for place, line in proc.lines(self._cpuinfo):
            if line.startswith("processor"):
                cpu = line.rpartition(":")[2].strip()
            elif line.startswith("cpu MHz"):
                with self.soft.noted():
                    found = _MHZ.fullmatch(line)
                    if found is None or not cpu.isdecimal():
                        raise DataError(f"{place}: {line!r:.60} is not a frequency")
                    clocks[cpu] = float(found[1])
        return clocks
