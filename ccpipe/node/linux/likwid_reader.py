"""Measures groups of LIKWID: a separate program, run by its path.

``likwid_reader.py LIBRARY ACCESS HWTHREADS GROUPS``, both lists with commas. LIKWID exits if it
cannot count, so nothing else may run in its process.

It writes a line of JSON when it counts, and one for each line of its standard input: the metrics
since the line before, by LIKWID's names, a number for each hardware thread or null. It measures
the groups in turn, each until the next line. It ends at the end of its standard input.
"""

import ctypes
import json
import math
import os
import sys
from typing import Any

_MODES = {"perf_event": -1, "direct": 0, "accessdaemon": 1}


def main(library: str, access: str, hwthreads: list[int], groups: list[str]) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # LIKWID writes there, too
    likwid = _loaded(library)
    if access:
        likwid.HPMmode(_MODES[access])
    likwid.topology_init()
    likwid.numa_init()
    likwid.affinity_init()
    likwid.timer_init()
    if likwid.perfmon_init(len(hwthreads), (ctypes.c_int * len(hwthreads))(*hwthreads)):
        sys.exit("perfmon_init failed")
    names = {}
    for group in groups:
        number = likwid.perfmon_addEventSet(group.encode())
        if number < 0:
            sys.exit(f"this processor has no group {group!r}")
        metrics = range(likwid.perfmon_getNumberOfMetrics(number))
        names[number] = [likwid.perfmon_getMetricName(number, one).decode() for one in metrics]
    turns = list(names)
    _start(likwid, turns[0])
    answers.write("{}\n")
    os.dup2(1, 2)
    for _ in sys.stdin:
        likwid.perfmon_stopCounters()
        measured = {
            name: [
                _finite(likwid.perfmon_getLastMetric(turns[0], metric, thread))
                for thread in range(len(hwthreads))
            ]
            for metric, name in enumerate(names[turns[0]])
        }
        turns = [*turns[1:], turns[0]]
        _start(likwid, turns[0])
        answers.write(json.dumps(measured) + "\n")
    likwid.perfmon_stopCounters()
    likwid.perfmon_finalize()


def _loaded(library: str) -> Any:
    try:
        likwid = ctypes.CDLL(library)
    except OSError as error:
        sys.exit(str(error))
    likwid.perfmon_getMetricName.restype = ctypes.c_char_p
    likwid.perfmon_getLastMetric.restype = ctypes.c_double
    return likwid


def _start(likwid: Any, group: int) -> None:
    if likwid.perfmon_setupCounters(group) < 0 or likwid.perfmon_startCounters() < 0:
        sys.exit("the counters cannot be started")


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


if __name__ == "__main__":
    main(
        sys.argv[1],
        sys.argv[2],
        [int(hwthread) for hwthread in sys.argv[3].split(",")],
        sys.argv[4].split(","),
    )
