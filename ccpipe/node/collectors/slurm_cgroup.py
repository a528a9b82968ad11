"""Resource usage of each Slurm job on this node, from its cgroup (version 2 or 1).

A job's metrics carry ``stype=job`` with its number, also where its cgroup has its SLUID as name
(Slurm from 26.05 on). A job whose number cannot be found is logged and omitted. Memory includes
the page cache of files that the job read and wrote. 100 percent of CPU time is one hardware thread.
I/O covers local disks; network file systems are not accounted for. Version 1 has no pressure, and
mostly no I/O. An invalid file only affects its own values.

With the option `hwthreads` all metrics except pressure are divided equally among the hardware
threads of the job's cpuset, without ``stype``, as in cc-metric-collector: stores that ignore
``stype`` can then distinguish jobs. Jobs that share a hardware thread are summed, and an idle one
has 0. A job whose number cannot be found counts, too, since its number is not reported.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.collectors import pressure
from ccpipe.node.linux import proc
from ccpipe.node.linux.slurm_cgroups import (
    JobIds,
    keyed_counters,
    version_1_directories,
    version_2_directories,
)
from ccpipe.node.sampling.collector import Metric, Previous, SoftErrors

_row = partial(Metric, stype="job")
_LEVELS = (
    _row("job_mem_used", "bytes", int, "memory in use"),
    _row("job_max_mem_used", "bytes", int, "peak memory so far (Linux 5.19)"),
    _row("job_mem_limit", "bytes", int, "memory limit, if there is one"),
)
_CPU = (
    _row("job_user_cpu", "percent", float, "CPU time in user programs"),
    _row("job_sys_cpu", "percent", float, "CPU time in the kernel"),
)
_IO = (
    _row("job_read_bytes", "bytes", int, "read since the last sample"),
    _row("job_write_bytes", "bytes", int, "written since the last sample"),
)
_PRESSURE = tuple(
    _row(f"job_psi_{of}_{share}", "percent", float, meaning.format(of))
    for of in ("cpu", "memory", "io")
    for share, meaning in (
        ("some", "some task of the job waited for {}"),
        ("full", "all tasks of the job waited for {}"),
    )
)

METRICS = (*_LEVELS, *_CPU, *_IO, *_PRESSURE)

_NO_LIMIT = 2**62  # and beyond: version 1 has no word for it
_MICROSECONDS = 1e6
_DEVICE = re.compile(r"\d+:\d+(?: |$)", re.ASCII)
_TICK = 10_000  # microseconds: 1/100 s in user space on every machine since Linux 2.6


@dataclass(slots=True)
class _Usage:
    """The kernel's accounting of one job."""

    levels: dict[str, int] = field(default_factory=dict)  # by the name of the metric
    cpu: list[int] = field(default_factory=list)  # microseconds so far: user, system
    io: list[int] = field(default_factory=list)  # bytes so far: read, written
    cpuset: list[int] = field(default_factory=list)
    waited: dict[str, int] = field(default_factory=dict)
    """Microseconds so far, as ``pressure.read`` names them."""


class SlurmCgroup:
    """The jobs of the node; deltas and rates start with a job's second sample.

    Parameters
    ----------
    hwthreads
        Report metrics per hardware thread instead of per job on the node.
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(self, *, hwthreads: bool = False, root: str = "/") -> None:
        self._hwthreads = hwthreads
        self._online = Path(root, "sys/devices/system/cpu/online")
        self._path = Path(root, "sys/fs/cgroup")
        self._previous = Previous[_Usage]()
        self._ids = JobIds(root)
        self.soft = SoftErrors("slurm_cgroup")

    def collect(self, time: int) -> Iterator[Message]:
        now = self._read()
        before, seconds = self._previous.swap(now)
        shares = self._of_hwthreads() if self._hwthreads else {}
        for job, usage in now.items():
            tags = {"type": "node", "stype": "job", "stype-id": job}
            values: dict[str, float] = {**usage.levels}
            if job in before and seconds > 0:
                values |= _since(before[job], usage, seconds)
                for name, percent in pressure.shares(before[job].waited, usage.waited, seconds):
                    yield metric(f"job_psi_{name}", percent, time=time, tags=tags)
            if self._hwthreads:
                _share_out(values, usage.cpuset, shares)
            else:
                for name, value in values.items():
                    yield metric(name, value, time=time, tags=tags)
        for cpu, sums in shares.items():
            for name, value in sums.items():
                tags = {"type": "hwthread", "type-id": str(cpu)}
                yield metric(name, value, time=time, tags=tags)

    def _of_hwthreads(self) -> dict[int, dict[str, float]]:
        rows = (*_LEVELS, *_CPU, *_IO)
        online = proc.listed(str(self._online), proc.text(self._online))
        return {cpu: {row.name: 0 if row.kind is int else 0.0 for row in rows} for cpu in online}

    def _read(self) -> dict[str, _Usage]:
        directories = [
            *(path for path, _ in version_2_directories(self._path)),
            *(path for path, _ in version_1_directories(self._path / "memory")),
        ]
        if not directories:
            raise FileNotFoundError(2, "no cgroups of Slurm's", str(self._path))
        jobs: dict[str, _Usage] = {}
        for directory in directories:
            version_1 = self._path / "memory" in directory.parents
            usage = self._usage_1 if version_1 else self._usage_2
            for number, path in self._ids.jobs(directory):
                job = str(number)
                if job in jobs:  # two slurmds on one node, as test beds have them
                    job = proc.tag(f"{job}@{directory.name}")
                jobs[job] = usage(path)
            for path in self._ids.unknown(directory) if self._hwthreads else ():
                jobs[str(path)] = replace(usage(path), waited={})  # which needs the number
        return jobs

    def _usage_1(self, memory: Path) -> _Usage:
        below = memory.relative_to(self._path / "memory")
        cpuacct, blkio, cpuset = (
            self._path / controller / below for controller in ("cpuacct", "blkio", "cpuset")
        )
        files = ("memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes")
        usage = _Usage()
        with self._noted():
            usage.levels = _levels(memory, files)
        with self._noted():
            ticks = keyed_counters(cpuacct / "cpuacct.stat", ("user", "system"))
            usage.cpu = [tick * _TICK for tick in ticks]
        with self._noted():
            usage.io = _service_bytes(blkio / "blkio.throttle.io_service_bytes")
        with self._noted():
            usage.cpuset = _cpuset(cpuset)
        return usage

    def _usage_2(self, directory: Path) -> _Usage:
        usage = _Usage()
        with self._noted():
            usage.levels = _levels(directory, ("memory.current", "memory.peak", "memory.max"))
        with self._noted():
            usage.cpu = keyed_counters(directory / "cpu.stat", ("user_usec", "system_usec"))
        with self._noted():
            usage.io = _io_stat(directory / "io.stat")
        with self._noted():
            usage.cpuset = _cpuset(directory)
        for of in ("cpu", "memory", "io"):
            with self._noted(), contextlib.suppress(OSError):  # PSI may be off
                usage.waited |= pressure.read(directory / f"{of}.pressure", of)
        return usage

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """Log an invalid file once, and continue; a missing one belongs to a job that ended."""
        try:
            yield
        except FileNotFoundError:
            pass
        except (OSError, DataError) as error:
            self.soft.note(f"{error}")


def _since(before: _Usage, now: _Usage, seconds: float) -> dict[str, float]:
    cpu, io = proc.gained(before.cpu, now.cpu) or [], proc.gained(before.io, now.io) or []
    percent = [100 * spent / (seconds * _MICROSECONDS) for spent in cpu]
    values: dict[str, float] = dict(zip((row.name for row in _CPU), percent, strict=False))
    return values | dict(zip((row.name for row in _IO), io, strict=False))


def _share_out(
    values: Mapping[str, float], cpuset: Sequence[int], shares: Mapping[int, dict[str, float]]
) -> None:
    """Add a job's values to the hardware threads of its cpuset, in equal parts."""
    cpus = [cpu for cpu in cpuset if cpu in shares]
    for cpu in cpus:
        for name in list(shares[cpu]):
            value = values.get(name)
            if value is None:
                del shares[cpu][name]  # the sum is unknown
            else:
                is_float = isinstance(value, float)
                shares[cpu][name] += value / len(cpus) if is_float else value // len(cpus)


def _cpuset(directory: Path) -> list[int]:
    for name in ("cpuset.cpus", "cpuset.cpus.effective"):
        if text := proc.word(directory / name):
            return proc.listed(str(directory / name), text)
    return []


def _levels(directory: Path, files: Sequence[str]) -> dict[str, int]:
    values = {}
    for row, file in zip(_LEVELS, files, strict=True):
        path = f"{directory}/{file}"
        text = proc.word(path)
        if text is not None and text != "max":
            [value] = proc.counters(path, [text], minimum=1)
            if value < _NO_LIMIT:
                values[row.name] = value
    return values


def _io_stat(path: Path) -> list[int]:
    """Add up the bytes of all devices: ``8:0 rbytes=4096 wbytes=0 rios=1 wios=0 …``."""
    text = proc.word(path)
    if text is None:
        return []
    sums = [0, 0]
    for line in text.splitlines():
        if not _DEVICE.match(line):
            raise DataError(f"{path}: {line!r:.60} is not a device's I/O counters")
        pairs = dict(pair.split("=", 1) for pair in line.split()[1:] if "=" in pair)
        words = [pairs.get("rbytes", "0"), pairs.get("wbytes", "0")]
        sums = [a + b for a, b in zip(sums, proc.counters(str(path), words, 2), strict=True)]
    return sums


def _service_bytes(path: Path) -> list[int]:
    """Add up the bytes of all devices: ``8:0 Read 4096`` and ``8:0 Write 0``, line by line."""
    text = proc.word(path)
    if text is None:
        return []
    sums = {"Read": 0, "Write": 0}
    for line in text.splitlines():
        match line.split():
            case [_, ("Read" | "Write") as way, count]:
                sums[way] += proc.counters(str(path), [count], 1)[0]
            case [_, ("Sync" | "Async" | "Discard" | "Total"), _] | ["Total", _]:
                pass
            case _:
                raise DataError(f"{path}: {line!r:.60} is not a device's I/O counters")
    return list(sums.values())
