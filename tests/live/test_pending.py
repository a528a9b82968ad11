"""Pending jobs from events, until they start, leave the queue or are not reported any more."""

import json
from typing import Any

from ccpipe.jobs.pending import EXPIRY, PendingJob
from ccpipe.live.jobs import LiveJobs
from ccpipe.live.pending import LivePending
from ccpipe.message import Message, event

SECOND = 10**9
NOW = 1_795_170_000


def queue(*pending: Any, left: Any = (), time: int = NOW, user: str = "ann") -> Message:
    rows = [each if isinstance(each, dict) else {"jobId": each} for each in pending]
    payload = {"cluster": "c", "user": user, "pending": rows, "left": list(left)}
    text = json.dumps(payload)
    return event("jobpending", "jobpending", text, time=time * SECOND, tags={"cluster": "c"})


def start(job: int, time: int) -> Message:
    payload = {"jobId": job, "cluster": "c", "startTime": time, "resources": [{"hostname": "n1"}]}
    tags = {"cluster": "c", "hostname": "n1"}
    return event("job", "start_job", json.dumps(payload), time=time * SECOND, tags=tags)


def ids(jobs: LiveJobs) -> list[int]:
    return [job.id for job in jobs.pending.jobs.values()]


def test_job_is_pending_until_it_starts_or_leaves_the_queue() -> None:
    jobs = LiveJobs()
    assert jobs.feed(queue(1, 2, 3), NOW) == "ann"
    assert ids(jobs) == [1, 2, 3]
    jobs.feed(start(1, NOW), NOW)
    jobs.feed(queue(left=[{"jobId": 2, "jobState": "cancelled"}]), NOW)
    assert ids(jobs) == [3]


def test_job_that_was_submitted_again_stays_pending_when_its_start_is_repeated() -> None:
    """Bridges without a state repeat the starts of jobs that were requeued."""
    jobs = LiveJobs()
    jobs.feed(queue({"jobId": 1, "submitTime": NOW}), NOW)
    jobs.feed(start(1, NOW - 100), NOW)
    assert ids(jobs) == [1]


def test_job_that_is_not_repeated_is_forgotten() -> None:
    """When the event was sent counts: it may be read from a stream much later."""
    jobs = LiveJobs()
    expiry = EXPIRY // SECOND
    jobs.feed(queue(1), NOW)
    jobs.feed(queue(2, time=NOW + 10), NOW + 10)
    jobs.feed(queue(3, time=NOW - expiry), NOW)
    jobs.expire(NOW + expiry - 1)
    assert ids(jobs) == [1, 2]
    before = jobs.version
    jobs.expire(NOW + expiry)
    assert (ids(jobs), jobs.version) == ([2], before + 1)
    jobs.feed(queue(2, time=NOW + expiry), NOW + expiry)
    jobs.expire(NOW + expiry + 10)
    assert (ids(jobs), jobs.version) == ([2], before + 1)


def test_changes_are_passed_on_once() -> None:
    seen: list[tuple[list[int], list[int]]] = []
    jobs = LiveJobs()
    jobs.pending.changed = lambda new, left: seen.append(
        ([job.id for job in new], [key[1] for key in left])
    )
    jobs.feed(queue(1, 2), NOW)
    jobs.feed(queue(1, {"jobId": 2, "reason": "Priority"}), NOW)
    jobs.feed(queue(left=[{"jobId": 1}, {"jobId": 9}]), NOW)
    jobs.feed(queue(left=[{"jobId": 1}]), NOW)
    assert seen == [([1, 2], []), ([2], []), ([], [1])]
    assert jobs.pending.jobs["c", 2] == PendingJob(cluster="c", id=2, user="ann", reason="Priority")


def test_tasks_of_array_are_counted_one_by_one() -> None:
    jobs = LiveJobs()
    jobs.feed(queue(1, {"jobId": 2, "arrayTasks": 99}), NOW)
    assert jobs.pending.counts() == {"c": 100}
    jobs.feed(queue(left=[{"jobId": 1}]), NOW)
    assert jobs.pending.counts() == {"c": 99}


def test_pending_jobs_are_bounded() -> None:
    """Those reported longest ago are dropped."""
    pending = LivePending(maximum=2)
    pending.feed(queue(1, 2), NOW)
    pending.feed(queue(1, 3), NOW)
    assert {job.id for job in pending.jobs.values()} == {1, 3}


def test_malformed_event_is_ignored() -> None:
    jobs = LiveJobs()
    jobs.feed(queue({"jobId": "x"}), NOW)
    assert (ids(jobs), jobs.version) == ([], 0)
