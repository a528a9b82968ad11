"""Roll-up: processes that are "the same" become one record, the sum of theirs.

Such a record has a process ID of its own, as Sonar writes since 0.18: several with the ID 0 could
not be told apart by programs that key on it.

Source: Sonar JSON format output specification, *Rolled-up samples*; Sonar's ``src/pidmap.rs``.
"""

import hashlib
from collections.abc import Container, Iterable
from typing import TypeVar

from msgspec.structs import replace

from ccpipe.formats.sonar.sums import processes_of, rounded
from ccpipe.formats.sonar.types.sample import (
    SampleAttributes,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
)

FIRST_SYNTHETIC_PID = 2**22 + 1
"""Beyond the greatest ``pid_max`` that Linux allows."""

_SYNTHETIC_PIDS = 2**31 - FIRST_SYNTHETIC_PID


def synthetic_pid(job: SampleJob, parent: int, command: str, *, taken: Container[int] = ()) -> int:
    """Return the process ID of a record that stands for several processes.

    It is a hash of job, epoch, user, parent and command, from 4194305 to 2³¹-1: the same in every
    sample, also after a restart of whoever makes them. Where another record of the sample has
    taken it, the next one that is free is returned.
    """
    key = f"{job.job} {job.epoch} {parent} {job.user}\n{command}".encode(errors="surrogatepass")
    digest = hashlib.blake2b(key, digest_size=8).digest()
    pid = FIRST_SYNTHETIC_PID + int.from_bytes(digest) % _SYNTHETIC_PIDS
    while pid in taken:
        pid += 1
    return pid


def roll_up(sample: SampleAttributes) -> SampleAttributes:
    """Roll up the processes of a sample.

    Processes become one if they are under control of a batch system (epoch 0), have the same job,
    which is not zero, the same command and the same parent process, and have no child processes.
    The record has a synthetic process ID, and ``rolledup`` says how many processes it stands for
    beside the first; all measures are sums. A process that is alone of its kind stays as it is,
    and so does one whose parent is not known.
    """
    parents = {process.ppid for job in sample.jobs for process in job.processes}
    pids: set[int] = set()
    jobs = tuple(
        replace(job, processes=_rolled(job, parents, pids)) if _is_batch(job) else job
        for job in sample.jobs
    )
    return replace(sample, jobs=jobs)


def _is_batch(job: SampleJob) -> bool:
    return job.epoch == 0 and job.job != 0


def _rolled(job: SampleJob, parents: set[int], pids: set[int]) -> tuple[SampleProcess, ...]:
    alike: dict[object, list[SampleProcess]] = {}
    for index, process in enumerate(job.processes):
        is_leaf = process.ppid != 0 and (process.pid == 0 or process.pid not in parents)
        alike.setdefault((process.ppid, process.cmd) if is_leaf else index, []).append(process)
    rolled = []
    for group in alike.values():
        process = group[0]
        if len(group) > 1:
            process = _sum(group, synthetic_pid(job, process.ppid, process.cmd, taken=pids))
            pids.add(process.pid)
        rolled.append(process)
    return tuple(rolled)


_SUMMED = (
    "resident_memory",
    "virtual_memory",
    "num_threads",
    "cpu_avg",
    "cpu_util",
    "cpu_time",
    "data_read",
    "data_written",
    "data_cancelled",
)
_SUMMED_OF_GPU = ("gpu_util", "gpu_memory", "gpu_memory_util")


def _sum(group: list[SampleProcess], pid: int) -> SampleProcess:
    return replace(
        _added(group, _SUMMED),
        pid=pid,
        rolledup=processes_of(group) - 1,
        in_container=all(process.in_container for process in group),
        gpus=_sum_of_gpus(gpu for process in group for gpu in process.gpus),
    )


def _sum_of_gpus(uses: Iterable[SampleProcessGpu]) -> tuple[SampleProcessGpu, ...]:
    cards: dict[tuple[str, int], list[SampleProcessGpu]] = {}
    for use in uses:
        cards.setdefault((use.uuid, use.index), []).append(use)
    return tuple(_added(group, _SUMMED_OF_GPU) for group in cards.values())


_Measures = TypeVar("_Measures", SampleProcess, SampleProcessGpu)


def _added(group: list[_Measures], names: tuple[str, ...]) -> _Measures:
    sums = {name: sum(getattr(m, name) for m in group) for name in names}
    return replace(
        group[0], **{n: rounded(v) if isinstance(v, float) else v for n, v in sums.items()}
    )
