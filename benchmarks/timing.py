"""Work per second of CPU time, which other work on the machine affects little."""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
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
    """Return the lines per second of CPU time that `work` does, in the best of some rounds.

    The best, because other work on the machine can only make a round slower.
    """
    work()  # warm: tables, caches, branch predictors
    begin = time.process_time()
    work()
    once = max(time.process_time() - begin, 1e-7)
    repeat = max(1, int(seconds / rounds / once))
    best = float("inf")
    gc.collect()
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(repeat):
            work()
        best = min(best, (time.process_time() - begin) / repeat)
    return lines / best


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
