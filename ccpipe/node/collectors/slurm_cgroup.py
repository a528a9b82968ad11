"""What each Slurm job uses on this node, as the kernel accounts for its cgroup, version 2 or 1.

A job's metrics carry ``stype=job`` with its number. Memory counts the caches of files that the
job read and wrote. 100 percent of processor time is one hardware thread. Input and output are
those of local disks; network file systems are not in the cgroup's account. Version 1 knows no
pressure, and mostly no input and output.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.collectors import pressure
from ccpipe.node.linux import proc
from ccpipe.node.sampling.metrics import Metric
from ccpipe.node.sampling.rates import Previous

_NODE = ("node",)
_LEVELS = (
    Metric("job_mem_used", "bytes", int, "memory now", _NODE, "job"),
    Metric("job_max_mem_used", "bytes", int, "the most it ever was (Linux 5.19)", _NODE, "job"),
    Metric("job_mem_limit", "bytes", int, "the most it may be, where it is limited", _NODE, "job"),
)
_CPU = (
    Metric("job_user_cpu", "percent", float, "running its programs", _NODE, "job"),
    Metric("job_sys_cpu", "percent", float, "running the kernel for them", _NODE, "job"),
)
_IO = (
    Metric("job_read_bytes", "bytes", int, "read since the last sample", _NODE, "job"),
    Metric("job_write_bytes", "bytes", int, "written since the last sample", _NODE, "job"),
)
_PRESSURE = tuple(
    Metric(f"job_psi_{of}_{share}", "percent", float, meaning.format(of), _NODE, "job")
    for of in ("cpu", "memory", "io")
    for share, meaning in (
        ("some", "some task of the job waited for {}"),
        ("full", "all tasks of the job waited for {}"),
    )
)

METRICS = (*_LEVELS, *_CPU, *_IO, *_PRESSURE)

_JOB = re.compile(r"job_(\d{1,10})", re.ASCII)
_SCOPES = ("slurmstepd.scope", "*_slurmstepd.scope")
_NO_LIMIT = 2**62  # and beyond: version 1 has no word for it
_MICROSECONDS = 1e6
_TICK = 10_000  # microseconds: what user space sees has been 1/100 s on every machine since 2.6


@dataclass(slots=True)
class _Usage:
    """What the kernel accounts for one job."""

    levels: dict[str, int] = field(default_factory=dict)
    """By the name of the metric."""
    cpu: list[int] = field(default_factory=list)
    """Microseconds so far: user, system."""
    io: list[int] = field(default_factory=list)
    """Bytes so far: read, written."""
    waited: dict[str, int] = field(default_factory=dict)
    """Microseconds so far, as ``pressure.read`` names them."""


class SlurmCgroup:
    """The jobs of the node; what is reckoned from two samples comes with a job's second.

    Parameters
    ----------
    root
        Where the file system begins that is read; another than `/` for a captured tree.

    """

    def __init__(self, *, root: str = "/") -> None:
        self._path = Path(root, "sys/fs/cgroup")
        self._previous = Previous[_Usage]()

    def collect(self, time: int) -> Iterator[Message]:
        """Yield each job's usage, and what it used since the last call.

        Raises
        ------
        OSError
            where Slurm keeps no cgroups.
        DataError
            where a file is not what the kernel writes.

        """
        now = self._read()
        before, seconds = self._previous.swap(now)
        for job, usage in now.items():
            tags = {"type": "node", "stype": "job", "stype-id": job}
            for name, value in usage.levels.items():
                yield metric(name, value, time=time, tags=tags)
            if job in before and seconds > 0:
                for name, value_since in _since(before[job], usage, seconds):
                    yield metric(name, value_since, time=time, tags=tags)

    def _read(self) -> dict[str, _Usage]:
        folders = [*self._unified(), *self._legacy()]
        if not folders:
            raise FileNotFoundError(2, "no cgroups of Slurm's", str(self._path))
        jobs: dict[str, _Usage] = {}
        for folder in folders:
            for path in folder.iterdir():
                if found := _JOB.fullmatch(path.name):
                    # Two slurmds on one node, as test beds have them, may share a job.
                    job = found[1] if found[1] not in jobs else f"{found[1]}@{folder.name}"
                    version_1 = self._path / "memory" in folder.parents
                    jobs[proc.tag(job)] = self._usage_1(path) if version_1 else _usage_2(path)
        return jobs

    def _unified(self) -> list[Path]:
        """Return the folders that hold jobs in version 2, which may stand beside version 1."""
        slices = [self._path / "system.slice", self._path / "unified" / "system.slice"]
        return [path for folder in slices for scope in _SCOPES for path in folder.glob(scope)]

    def _legacy(self) -> list[Path]:
        """Return the folders that hold jobs in version 1: one of each slurmd and user."""
        return [path for top in ("slurm", "slurm_*")
                for path in (self._path / "memory").glob(f"{top}/uid_*")]  # fmt: skip

    def _usage_1(self, memory: Path) -> _Usage:
        below = memory.relative_to(self._path / "memory")
        cpuacct, blkio = self._path / "cpuacct" / below, self._path / "blkio" / below
        return _Usage(
            _levels(memory, ("memory.usage_in_bytes", "memory.max_usage_in_bytes",
                             "memory.limit_in_bytes")),
            [ticks * _TICK for ticks in _table(cpuacct / "cpuacct.stat", ("user", "system"))],
            _service_bytes(blkio / "blkio.throttle.io_service_bytes"),
        )  # fmt: skip


def _usage_2(folder: Path) -> _Usage:
    waited: dict[str, int] = {}
    for of in ("cpu", "memory", "io"):
        if proc.word(folder / f"{of}.pressure") is not None:
            waited |= pressure.read(folder / f"{of}.pressure", of)
    return _Usage(
        _levels(folder, ("memory.current", "memory.peak", "memory.max")),
        _table(folder / "cpu.stat", ("user_usec", "system_usec")),
        _io_stat(folder / "io.stat"),
        waited,
    )


def _since(before: _Usage, now: _Usage, seconds: float) -> Iterator[tuple[str, float]]:
    for row, spent in zip(_CPU, proc.gained(before.cpu, now.cpu) or [], strict=False):
        yield row.name, 100 * spent / (seconds * _MICROSECONDS)
    for row, moved in zip(_IO, proc.gained(before.io, now.io) or [], strict=False):
        yield row.name, moved
    for name, percent in pressure.shares(before.waited, now.waited, seconds):
        yield f"job_psi_{name}", percent


def _levels(folder: Path, files: Sequence[str]) -> dict[str, int]:
    values = {}
    for row, file in zip(_LEVELS, files, strict=True):
        if proc.word(folder / file) != "max":
            value = proc.counter(folder / file)
            if value is not None and value < _NO_LIMIT:
                values[row.name] = value
    return values


def _table(path: Path, keys: Sequence[str]) -> list[int]:
    """Return the counters of some lines ``key counter``; nothing where they are not there."""
    lines = (proc.word(path) or "").splitlines()
    rows = {key: value for key, _, value in (line.partition(" ") for line in lines)}
    words = [rows[key] for key in keys if key in rows]
    return proc.counters(str(path), words, minimum=len(keys)) if words else []


def _io_stat(path: Path) -> list[int]:
    """Add up the bytes of all devices: ``8:0 rbytes=4096 wbytes=0 rios=1 wios=0 …``."""
    text = proc.word(path)
    if text is None:
        return []
    sums = [0, 0]
    for line in text.splitlines():
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
            case [_, _, _] | ["Total", _]:
                pass
            case _:
                raise DataError(f"{path}: {line!r:.60} is not what a device moved")
    return list(sums.values())
