"""Roll-up: processes that are "the same" become one record, the sum of theirs.

Source: Sonar JSON format output specification, *Rolled-up samples*.
"""

from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from ccpipe.formats.sonar.sample import (
    SampleAttributes,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
)


def roll_up(sample: SampleAttributes) -> SampleAttributes:
    """Roll up the processes of a sample.

    Processes become one if they are under control of a batch system (epoch 0), have the same job,
    which is not zero, the same command and the same parent process, and have no child processes.
    The record has the number 0, and ``rolledup`` says how many processes it stands for beside the
    first; all measures are sums. A process that is alone of its kind stays as it is, and so does
    one whose parent is not known.
    """
    parents = {process.ppid for job in sample.jobs for process in job.processes}
    jobs = tuple(
        replace(job, processes=_rolled(job.processes, parents)) if _is_batch(job) else job
        for job in sample.jobs
    )
    return replace(sample, jobs=jobs)


def _is_batch(job: SampleJob) -> bool:
    return job.epoch == 0 and job.job != 0


def _rolled(processes: tuple[SampleProcess, ...], parents: set[int]) -> tuple[SampleProcess, ...]:
    """Put each sum at the place of its first process."""
    alike: dict[object, list[SampleProcess]] = {}
    for index, process in enumerate(processes):
        is_leaf = process.ppid != 0 and (process.pid == 0 or process.pid not in parents)
        alike.setdefault((process.ppid, process.cmd) if is_leaf else index, []).append(process)
    return tuple(_sum(group) if len(group) > 1 else group[0] for group in alike.values())


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


def _sum(group: list[SampleProcess]) -> SampleProcess:
    return replace(
        _added(group, _SUMMED),
        pid=0,
        rolledup=sum(process.rolledup + 1 for process in group) - 1,
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
    """Return the first of a group with the sums of the named fields."""
    return replace(group[0], **{name: sum(getattr(m, name) for m in group) for name in names})
