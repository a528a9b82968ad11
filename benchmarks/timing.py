"""Work per second of CPU time, which other work on the machine affects little."""

import gc
import time
from collections.abc import Callable

import msgspec


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
