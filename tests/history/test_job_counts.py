"""Numbers of running jobs and of nodes with a job over time."""

import math

import numpy as np
import pytest

from ccpipe.history import index
from ccpipe.history.index import JobIndex
from ccpipe.history.job_counts import counts, mean_counts, merged
from ccpipe.jobs import Job, JobNode
from ccpipe.jobs.pending import PendingJob

SECOND = 10**9
START = 1_740_000_000


def job(number: int, start: int, stop: int, *nodes: str, cluster: str = "fox") -> Job:
    return Job(
        cluster=cluster, id=number, start=(START + start) * SECOND,
        end=(START + stop) * SECOND if stop else 0, nodes=tuple(map(JobNode, nodes)),
    )  # fmt: skip


def test_counts_are_of_jobs_in_index() -> None:
    """Of a cluster or of all, unknown before the first job; a running job has no end yet.

    A pending job is none of them.
    """
    jobs = JobIndex()
    jobs.put_pending([PendingJob(cluster="fox", id=5), PendingJob(cluster="bear", id=6)])
    jobs.put(
        [
            job(1, 100, 300, "n1", "n2"), job(2, 200, 250, "n2"), job(3, 250, 0, "n3"),
            job(4, 0, 400, "n1", cluster="bear"),
        ]
    )  # fmt: skip
    times = np.arange(START, START + 500, 100.0)
    found = jobs.times("fox", START, START + 500)
    running, busy = counts(found, times, 100.0)
    assert running[1:].tolist() == [1, 2, 1, 1]
    assert busy[1:].tolist() == [2, 2.5, 1, 1]
    assert math.isnan(running[0])
    assert math.isnan(busy[0])
    running, busy = counts(jobs.times(None, START, START + 500), times, 100.0)
    assert running.tolist() == [1, 2, 3, 2, 1]
    assert busy.tolist() == [1, 3, 3.5, 2, 1]  # nodes of one name in two clusters


def test_counts_of_empty_index_are_unknown() -> None:
    times = np.arange(START, START + 500, 100.0)
    for column in counts(JobIndex().times("fox", START, START + 500), times, 100.0):
        assert np.isnan(column).all()


def test_nodes_are_not_counted_if_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded; jobs are counted nevertheless."""
    monkeypatch.setattr(index, "MAX_NODE_TIMES", 2)
    jobs = JobIndex()
    jobs.put([job(1, 0, 100, "n1", "n2", "n3")])
    running, busy = counts(jobs.times("fox", START, START + 100), np.array([START]), 100.0)
    assert running.tolist() == [1]
    assert math.isnan(busy[0])


def test_mean_counts_are_averages_over_steps() -> None:
    """A job of half a step counts half in it."""
    starts, stops = np.array([0.0, 10.0, 15.0]), np.array([40.0, 20.0, 20.0])
    times = np.arange(0.0, 50.0, 10.0)
    assert mean_counts(starts, stops, times, 10.0).tolist() == [1, 2.5, 1, 1, 0]
    assert mean_counts(np.empty(0), np.empty(0), times, 10.0).tolist() == [0] * 5
    assert mean_counts(starts, stops, np.empty(0), 10.0).tolist() == []


def test_merged_joins_spans_of_each_host() -> None:
    """Jobs that share a node count once."""
    hosts = np.array([1.0, 1, 1, 2, 2])
    starts = np.array([50.0, 0, 20, 10, 10])
    stops = np.array([60.0, 30, 40, 20, 30])
    begins, ends = merged(hosts, starts, stops)
    assert begins.tolist() == [0, 50, 10]
    assert ends.tolist() == [40, 60, 30]
    begins, ends = merged(np.empty(0), np.empty(0), np.empty(0))
    assert begins.tolist() == ends.tolist() == []
