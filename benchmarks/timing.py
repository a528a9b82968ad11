"""Work done per second of CPU: the machine's other work then costs little."""

import gc
import time
from collections.abc import Callable

import msgspec


class Result(msgspec.Struct):
    """One measurement."""

    what: str
    lines_per_second: float
    """Lines for one second of CPU, user and system together."""
    note: str = ""


def rate(work: Callable[[], object], lines: int, *, seconds: float = 0.4, rounds: int = 5) -> float:
    """Return the lines that `work` does per CPU-second, in the best of some rounds.

    The best, because whatever else runs here can only make a round slower.
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
