"""The part of a Sonar sample for the node as a whole: ``system``.

Source: Sonar JSON format output specification, *SampleSystem*.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.formats.sonar import EPOCH_ZERO, SampleDisk, SampleGpu, SampleSystem
from ccpipe.node.collectors.cpu import ticks_of
from ccpipe.node.collectors.load import Load
from ccpipe.node.collectors.memory import Memory
from ccpipe.node.collectors.sonar.envelope import Errors, local, readable
from ccpipe.node.collectors.sonar.process import TICKS
from ccpipe.node.collectors.storage.disk import EXCLUDE, MIN_COLUMNS
from ccpipe.node.linux import proc
from ccpipe.node.sampling.thread import Collector

_BUSY = (0, 1, 2, 5, 6)  # user, nice, system, irq and softirq: what Sonar adds up
_BOOT = re.compile(r"btime (\d{1,11})\s*", re.ASCII)
_STEP = 60  # seconds that the clock may be set by without another boot


class System:
    """The node's processors, memory, load and disks."""

    def __init__(self, *, root: str = "/") -> None:
        self._stat = Path(root, "proc/stat")
        self._uptime = Path(root, "proc/uptime")
        self._diskstats = Path(root, "proc/diskstats")
        self._load = Load(root=root)
        self._memory = Memory(root=root)
        self._cpus: list[int] = []
        self._boot = 0

    @property
    def epoch(self) -> int:
        """Number of this boot, for jobs that are process groups; of the last ``read``."""
        return max(1, self._boot - EPOCH_ZERO)

    def uptime(self) -> float:
        text = proc.text(self._uptime)
        try:
            return float(text.split()[0])
        except (ValueError, IndexError):
            raise DataError(f"{self._uptime}: {text!r:.60} is not an uptime") from None

    def read(self, gpus: Sequence[SampleGpu], errors: Errors) -> SampleSystem:
        """Return the state of the node; what cannot be read now is noted in `errors`."""
        self._read_stat()
        load, memory = _values(self._load, errors), _values(self._memory, errors)
        disks: list[SampleDisk] = []
        with errors.noted():
            disks += _disks(self._diskstats)
        used = memory.get("mem_used", 0)  # before Linux 3.14 there is no available memory
        if memory.keys() >= {"mem_available", "mem_total"}:
            used = memory["mem_total"] - memory["mem_available"]
        return SampleSystem(
            boot=local(self._boot * 10**9),
            cpus=tuple(self._cpus),
            gpus=tuple(gpus),
            disks=tuple(disks),
            used_memory=max(0, int(used)),
            load1=load.get("cpu_load", 0.0),
            load5=load.get("load_five", 0.0),
            load15=load.get("load_fifteen", 0.0),
            runnable_entities=int(load.get("proc_run", 0)),
            existing_entities=int(load.get("proc_total", 0)),
        )

    def _read_stat(self) -> None:
        lines = list(proc.lines(self._stat))
        boot = next(filter(None, (_BOOT.fullmatch(line) for _, line in lines)), None)
        if boot is None:
            raise DataError(f"{self._stat}: the line 'btime' is missing")
        # The kernel changes it whenever the clock is set, and jobs are named after it.
        if abs(int(boot[1]) - self._boot) > _STEP:
            self._boot = int(boot[1])
        for number, ticks in ticks_of(self._stat, lines).items():
            if number:
                missing = int(number) + 1 - len(self._cpus)
                self._cpus += [0] * missing  # places stay, also of those that are offline
                busy = sum(ticks[state] for state in _BUSY if state < len(ticks))
                self._cpus[int(number)] = busy // TICKS


def _values(collector: Collector, errors: Errors) -> dict[str, float]:
    values: dict[str, float] = {}
    with errors.noted():
        for message in collector.collect(0):
            if not isinstance(message.value, str):
                values[message.name] = message.value
    for text in collector.soft.last if isinstance(collector, Memory) else ():
        errors.note(text)
    return values


def _disks(path: Path) -> Iterator[SampleDisk]:
    for place, line in proc.lines(path):
        words = line.split()
        major, minor = proc.counters(place, words[:2], minimum=2)
        stats = proc.counters(place, words[3:], minimum=MIN_COLUMNS)
        if not proc.matches(words[2], EXCLUDE):
            yield SampleDisk(readable(words[2]), int(major), int(minor), tuple(map(int, stats)))
