"""How many jobs ran over time, and how many nodes had one, from the index of jobs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ccpipe.history.index import JobTimes
from ccpipe.history.interfaces import Column


def counts(found: JobTimes, times: Column, step: float) -> tuple[Column, Column]:
    """Return the mean numbers of running jobs and of nodes with a job in each step from `times` on.

    Both are NaN before the first known job; the nodes also if the index has too many.
    """
    unknown = np.full(len(times), np.nan)
    starts, stops = _columns(found.jobs, 2)
    running = mean_counts(starts, stops, times, step)
    busy = unknown
    if found.nodes is not None:
        hosts, starts, stops = _columns(found.nodes, 3)
        busy = mean_counts(*merged(hosts, starts, stops), times, step)
    is_known = times >= found.since
    return np.where(is_known, running, unknown), np.where(is_known, busy, unknown)


def _columns(rows: Sequence[Sequence[Any]], width: int) -> list[Column]:
    return list(np.array(rows, np.float64).reshape(-1, width).T)


def mean_counts(starts: Column, stops: Column, times: Column, step: float) -> Column:
    """Return how many of some spans of time there are on average in each step from `times` on."""
    edges = np.append(times, times[-1:] + step)
    passed = _integral(starts, edges) - _integral(stops, edges)
    return np.asarray(np.diff(passed) / step, np.float64)


def _integral(begins: Column, edges: Column) -> Column:
    """Return the sum of the time since each of `begins`, at each edge."""
    ordered = np.sort(begins)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    before = np.searchsorted(ordered, edges)
    return np.asarray(before * edges - sums[before], np.float64)


def merged(hosts: Column, starts: Column, stops: Column) -> tuple[Column, Column]:
    """Return starts and stops of the times in which each host has one span or more."""
    order = np.lexsort((starts, hosts))
    hosts, starts, stops = hosts[order], starts[order], stops[order]
    # Of one host after another, so that the latest stop so far is never another host's.
    offset = (stops.max(initial=0.0) + 1) * np.unique(hosts, return_inverse=True)[1]
    latest = np.maximum.accumulate(stops + offset)
    is_first = np.ones(len(starts), np.bool_)
    is_first[1:] = (starts + offset)[1:] > latest[:-1]
    is_last = np.append(is_first[1:], np.ones(min(1, len(starts)), np.bool_))
    return starts[is_first], (latest - offset)[is_last]
