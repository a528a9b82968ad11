"""The state of a node and its processes, as Sonar's daemon reports it: the envelope ``sample``.

Processes are reported by job: a Slurm job's number is read from its cgroup; any other job, and a
Slurm job whose number cannot be found, is a process group, with the time of the node's boot as its
epoch. ``cpu_util`` is over the time since the last sample, also of a process that is new since; in
the first sample it is ``cpu_avg``. Unreadable values are omitted and reported in ``errors``;
without a process table an envelope of errors is emitted.

Source: Sonar JSON format output specification, *SampleEnvelope* and the types below.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from ccpipe.errors import DataError
from ccpipe.formats.sonar import (
    EPOCH_ZERO,
    Envelope,
    SampleAttributes,
    SampleData,
    SampleDisk,
    SampleEnvelope,
    SampleGpu,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
    SampleSystem,
    roll_up,
)
from ccpipe.node.collectors.cpu import ticks_of
from ccpipe.node.collectors.load import Load
from ccpipe.node.collectors.memory import Memory
from ccpipe.node.collectors.sonar.envelope import META, Errors, local, readable
from ccpipe.node.collectors.sonar.gpus import Gpus
from ccpipe.node.collectors.sonar.process import TICKS, CpuUse, ProcessFiles, Users, in_containers
from ccpipe.node.collectors.storage.disk import EXCLUDE, MIN_COLUMNS
from ccpipe.node.linux import proc
from ccpipe.node.linux.process_table import Process, ProcessScan, ProcessTable
from ccpipe.node.linux.slurm_cgroups import JobIds
from ccpipe.node.sampling.collector import Collector

_FIRST_USER = 1000  # users below are the system's own

_Key = tuple[int, int, str]  # job, epoch and user


@dataclass(slots=True)
class _Reading:
    """Data common to all processes of one sample."""

    epoch: int
    uptime: float  # seconds since the boot; 0 if that is not known
    use: Mapping[int, float]  # percent of a processor since the last sample, by process
    inside: set[int]
    gpus: Mapping[int, Sequence[SampleProcessGpu]]  # by process


class SonarSample:
    """Samples the node for Sonar's consumers; ``[publish.sonar]`` describes the options."""

    def __init__(
        self,
        *,
        cluster: str,
        node: str,
        table: ProcessTable | None = None,
        exclude_system_jobs: bool = True,
        exclude_users: Sequence[str] = (),
        exclude_commands: Sequence[str] = (),
        min_cpu_time: float = 0.0,
        rollup: bool = False,
        pss: bool = False,
        root: str = "/",
    ) -> None:
        self.table = table or ProcessTable(root=root)  # may be another one from the next sample on
        self._cluster = cluster
        self._node = node
        self._first_user = _FIRST_USER if exclude_system_jobs else 0
        self._exclude_users = frozenset(exclude_users)
        self._exclude_commands = tuple(exclude_commands)
        self._min_cpu_time = min_cpu_time
        self._rollup = rollup
        self._files = ProcessFiles(pss=pss, root=root)
        self._slurm_jobs = JobIds(root)
        self._system = System(root=root)
        self._gpus = Gpus(node=node, root=root)
        self._cpu = CpuUse()
        self._users = Users()

    def collect(self, time: int) -> Iterator[Envelope]:
        """Yield the sample of the slot `time`, or an envelope of errors."""
        errors = Errors()
        try:
            sample = self._sample(time, errors)
        except (OSError, DataError) as error:
            errors.note(error)
            yield errors.envelope(time, self._cluster, self._node)
        else:
            reported = errors.reported(time, self._cluster, self._node)
            attributes = replace(sample, errors=reported)
            yield SampleEnvelope(meta=META, data=SampleData(attributes=attributes))

    def _sample(self, time: int, errors: Errors) -> SampleAttributes:
        walk = self.table.at(time)
        for error in walk.errors:
            errors.note(error)
        uptime = 0.0
        with errors.noted():
            uptime = self._system.uptime()
        gpus, uses = self._gpus.sample(errors)
        system = self._system.read(gpus, errors)
        timestamp = _Reading(
            epoch=self._system.epoch,
            uptime=uptime,
            use=self._cpu.since(walk),
            inside=in_containers(walk.processes),
            gpus=uses,
        )
        return SampleAttributes(
            time=local(time),
            cluster=self._cluster,
            node=self._node,
            system=system,
            jobs=self._jobs(walk, timestamp, errors),
        )

    def _jobs(
        self, walk: ProcessScan, timestamp: _Reading, errors: Errors
    ) -> tuple[SampleJob, ...]:
        self._users.refresh()
        jobs: dict[_Key, list[SampleProcess]] = {}
        others: list[SampleProcess] = []
        for process in sorted(walk.processes):
            if process.state in "Xx":
                continue  # the kernel is removing it
            try:
                found = self._process(process, timestamp)
            except DataError as error:
                errors.note(error)
                continue
            if isinstance(found, SampleProcess):
                others.append(found)
            elif found is not None:
                jobs.setdefault(found[0], []).append(found[1])
        for pid in sorted(timestamp.gpus.keys() - {process.pid for process in walk.processes}):
            jobs[pid, timestamp.epoch, "_user_unknown"] = [
                SampleProcess(cmd="_unknown_", pid=pid, gpus=tuple(timestamp.gpus[pid]))
            ]
        reported = [
            SampleJob(job, user, epoch, tuple(jobs[job, epoch, user]))
            for job, epoch, user in sorted(jobs)
        ]
        return self._filtered(_rolled_up(reported, others) if self._rollup else reported)

    def _process(
        self, process: Process, timestamp: _Reading
    ) -> tuple[_Key, SampleProcess] | SampleProcess | None:
        """Return a process with its job; without if it is excluded; None if it has ended."""
        pid, files = process.pid, self._files
        owner = files.owner(pid)
        if owner is None:
            return None
        user = self._users.name(owner)
        if (
            (owner < self._first_user and pid not in timestamp.inside)
            or user in self._exclude_users
            or process.name.startswith(self._exclude_commands)
        ):
            return SampleProcess(cmd=process.name, pid=pid, ppid=process.ppid)
        memory, data = files.memory(pid), files.data(pid)
        if memory is None:
            return None
        average = _average(process, timestamp.uptime)
        reported = SampleProcess(
            resident_memory=memory.resident,
            virtual_memory=memory.virtual,
            cmd=f"{process.name} <defunct>" if process.state == "Z" else process.name,
            pid=pid,
            ppid=process.ppid,
            num_threads=max(0, process.threads - 1),
            cpu_avg=average,
            cpu_util=round(timestamp.use.get(pid, average), 1),
            cpu_time=(process.own + process.reaped + TICKS // 2) // TICKS,
            data_read=data.read,
            data_written=data.written,
            data_cancelled=data.cancelled,
            gpus=tuple(timestamp.gpus.get(pid, ())),
            in_container=pid in timestamp.inside,
        )
        if job := self._slurm_jobs.of_process(pid):
            return (job, 0, user), reported
        return (process.group, timestamp.epoch, user), reported

    def _filtered(self, jobs: Sequence[SampleJob]) -> tuple[SampleJob, ...]:
        if not self._min_cpu_time:
            return tuple(jobs)
        left = (
            replace(
                job, processes=tuple(p for p in job.processes if p.cpu_time >= self._min_cpu_time)
            )
            for job in jobs
        )
        return tuple(job for job in left if job.processes)


def _average(process: Process, uptime: float) -> float:
    """Return a process's own share of a processor since it started, in percent."""
    age = uptime * TICKS - process.start
    return round(100 * process.own / age, 1) if age >= 1 else 0.0


def _rolled_up(jobs: Sequence[SampleJob], others: Sequence[SampleProcess]) -> list[SampleJob]:
    """Roll up the processes of jobs; a parent of an excluded process is not a leaf."""
    whole = SampleAttributes(jobs=(*jobs, SampleJob(0, "", 1, tuple(others))))
    return list(roll_up(whole).jobs[:-1])


_BUSY = (0, 1, 2, 5, 6)  # user, nice, system, irq and softirq, as Sonar adds them up
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
        """Return the state of the node; read errors are added to `errors`."""
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
                self._cpus += [0] * missing  # offline ones keep their place
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
