"""Work per second of CPU time, which other work on the machine affects little."""

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import psutil


class Result(msgspec.Struct):
    """One measurement."""

    what: str
    lines_per_second: float
    """Lines per second of CPU time, user and system together."""
    note: str = ""


def rate(work: Callable[[], object], lines: int, *, seconds: float = 0.4, rounds: int = 5) -> float:
    """Return the lines per second of CPU time that `work` does, in the best of some rounds."""
    return rates({"": work}, lines, seconds=seconds, rounds=rounds)[""]


def rates(
    contenders: Mapping[str, Callable[[], object]],
    lines: int,
    *,
    seconds: float = 0.4,
    rounds: int = 5,
) -> dict[str, float]:
    """Return the lines per second of CPU time that each contender does, in its best round.

    The best, because other work on the machine can only make a round slower; and one round of each
    in turn, so that a slow time of the machine is a slow time for all.
    """
    repeat = {what: _repeat(work, seconds / rounds) for what, work in contenders.items()}
    best = dict.fromkeys(contenders, math.inf)
    gc.collect()
    gc.freeze()  # so that collections do not visit objects of other benchmarks
    try:
        for _ in range(rounds):
            for what, work in contenders.items():
                best[what] = min(best[what], _cpu_seconds(work, repeat[what]) / repeat[what])
    finally:
        gc.unfreeze()
    return {what: lines / took for what, took in best.items()}


def _repeat(work: Callable[[], object], seconds: float) -> int:
    """Return how often `work` can be done in a time; it is then warm: tables, caches, branches."""
    work()
    times = 1
    while (took := _cpu_seconds(work, times)) < seconds / 10:
        times *= 4
    return max(1, round(seconds * times / took))


def _cpu_seconds(work: Callable[[], object], times: int) -> float:
    begin = time.process_time()
    for _ in range(times):
        work()
    return time.process_time() - begin


def process_seconds(pid: int) -> float:
    """Return the CPU time of a process, user and system, also of threads that have ended."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def thread_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process that are there, to the nanosecond."""
    return sum(int(text.split()[0]) for text in _schedstats(pid)) / 1e9


def _schedstats(pid: int) -> Iterator[str]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            yield (task / "schedstat").read_text()
