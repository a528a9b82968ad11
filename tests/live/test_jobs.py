"""Jobs from events."""

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.jobs import JobNode
from ccpipe.live.jobs import MAX_PARTS, SECOND, LiveJobs
from ccpipe.message import event


def feed(jobs: LiveJobs, function: str, /, **payload: object) -> None:
    tags = {"cluster": "tagged", "hostname": "n1", "type": "node"}
    jobs.feed(event("job", function, json.dumps(payload), time=1, tags=tags), 1000.0)


def started(jobs: LiveJobs, job: int, start: int = 100, **more: object) -> None:
    nodes = [{"hostname": "n1"}, {"hostname": "n2"}]
    feed(jobs, "start_job", jobId=job, startTime=start, resources=nodes, user="u", **more)


def test_job_runs_until_its_stop() -> None:
    """The stop gives its end and state."""
    jobs = LiveJobs()
    started(jobs, 7, cluster="c")
    assert [job.id for job in jobs.running] == [7]
    assert [job.id for job in jobs.on("c", "n2")] == [7]
    feed(jobs, "stop_job", jobId=7, cluster="c", startTime=100, stopTime=300, jobState="failed")
    assert jobs.running == []
    [job] = jobs.latest()
    assert (job.end, job.state) == (300 * SECOND, "failed")
    assert [node.hostname for node in job.nodes] == ["n1", "n2"]
    assert (jobs.on("c", "n2"), list(jobs.nodes), list(jobs.ended)) == ([], [], [job.run_key])


def test_job_whose_stop_was_lost_ends_a_day_after_its_limit() -> None:
    """At its limit; a stop that arrives after all tells how it really ended."""
    jobs = LiveJobs()
    started(jobs, 7, cluster="c", walltime=3600)
    started(jobs, 8, cluster="c")
    jobs.end_lost(100 + 3600 + 86400)
    assert [job.id for job in jobs.running] == [8, 7]
    version = jobs.version
    jobs.end_lost(101 + 3600 + 86400)
    assert [job.id for job in jobs.running] == [8]
    assert jobs.version > version
    [job] = [job for job in jobs.latest() if job.id == 7]
    assert (job.end, job.state) == (3700 * SECOND, "ended")
    feed(jobs, "stop_job", jobId=7, cluster="c", startTime=100, stopTime=900_000, jobState="failed")
    [job] = [job for job in jobs.latest() if job.id == 7]
    assert (job.end, job.state) == (900_000 * SECOND, "failed")
    jobs.end_lost(100 + 30 * 86400)
    assert [job.id for job in jobs.running] == [8]
    jobs.end_lost(101 + 31 * 86400)
    assert jobs.running == []


def test_job_keeps_parts_of_shared_nodes_only() -> None:
    """Of an exclusive job, and of one with too many, only the nodes are kept."""
    jobs = LiveJobs()
    few = [{"hostname": "n1", "hwthreads": [0, 1], "accelerators": ["00:1a"]}]
    many = [{"hostname": "n1", "hwthreads": list(range(MAX_PARTS + 1))}]
    for number, (nodes, shared) in enumerate([(few, "multi_user"), (few, "none"), (many, "")]):
        feed(jobs, "start_job", jobId=number, cluster="c", startTime=100 - number,
             resources=nodes, shared=shared)  # fmt: skip
    [kept, *others] = [job.nodes[0] for job in jobs.latest()]
    assert (kept.hwthreads, kept.accelerators) == ((0, 1), ("00:1a",))
    assert others == [JobNode("n1"), JobNode("n1")]


def test_stop_without_start_time_ends_latest_job_of_id() -> None:
    """Some writers leave it out."""
    jobs = LiveJobs()
    started(jobs, 7, start=100, cluster="c")
    started(jobs, 7, start=200, cluster="c")
    feed(jobs, "stop_job", jobId=7, cluster="c", stopTime=300)
    assert [job.start for job in jobs.running] == [100 * SECOND]


def test_repeated_start_does_not_revive_job() -> None:
    """Delivery is at least once."""
    jobs = LiveJobs()
    started(jobs, 7, cluster="c")
    feed(jobs, "stop_job", jobId=7, cluster="c", startTime=100, stopTime=300, jobState="completed")
    started(jobs, 7, cluster="c")
    assert jobs.running == []


def test_start_with_state_has_ended() -> None:
    """Accounting files yield both at once: the stop follows in another event."""
    jobs = LiveJobs()
    started(jobs, 7, jobState="completed", stopTime=150)
    [job] = jobs.latest()
    assert (job.end, job.state, job.cluster) == (150 * SECOND, "completed", "tagged")


def test_number_of_jobs_is_bounded() -> None:
    """Those that ended first are forgotten, running ones last."""
    jobs = LiveJobs(maximum=3)
    started(jobs, 1, start=1)
    for number in range(2, 8):
        started(jobs, number, start=number)
        feed(
            jobs, "stop_job", jobId=number, cluster="tagged", startTime=number, stopTime=number + 10
        )
    assert len(jobs.jobs) == 3
    assert [job.id for job in jobs.running] == [1]


EVENTS = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.sampled_from([100, 200]), st.booleans()),
    min_size=1, max_size=8, unique=True,
)  # fmt: skip
"""Number and start of a job, and whether it is its stop."""


def fed_with(events: Sequence[tuple[int, int, bool]]) -> LiveJobs:
    jobs = LiveJobs()
    for number, start, is_stop in events:
        if is_stop:
            end = start + 10 * number
            feed(jobs, "stop_job", jobId=number, startTime=start, stopTime=end, jobState="failed")
        else:
            started(jobs, number, start)
    return jobs


@given(EVENTS, st.data())
def test_order_and_repetition_do_not_change_jobs(
    events: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    """Several bridges' messages arrive in any order, at least once; a stop before its start too."""
    again = data.draw(st.lists(st.sampled_from(events), max_size=6))
    one, other = fed_with(events), fed_with(data.draw(st.permutations([*events, *again])))
    assert other.jobs == one.jobs
    assert other.ended == one.ended
    for node in ("n1", "n2"):
        running = [job for job in one.running if node in [each.hostname for each in job.nodes]]
        assert one.on("tagged", node) == other.on("tagged", node) == running


@given(st.text(max_size=100), st.sampled_from(["start_job", "stop_job", "other"]))
def test_jobs_accept_any_text(text: str, function: str) -> None:
    """Events of other classes are ignored."""
    jobs = LiveJobs()
    jobs.feed(event("job", function, text, time=1, tags={}), 1.0)
    assert len(jobs.jobs) <= 1


def test_changed_is_called_with_each_start_and_end() -> None:
    """With what is known by then, so that an index of jobs misses none."""
    jobs = LiveJobs()
    seen: list[tuple[int, str, int]] = []
    jobs.changed = lambda job: seen.append((job.id, job.state, job.end // SECOND))
    started(jobs, 7, cluster="c")
    feed(jobs, "stop_job", jobId=7, cluster="c", startTime=100, stopTime=300, jobState="failed")
    feed(jobs, "stop_job", jobId=8, cluster="c", startTime=100, stopTime=400, jobState="timeout")
    assert seen == [(7, "running", 0), (7, "failed", 300)]
    started(jobs, 8, cluster="c")
    assert seen[-1] == (8, "timeout", 400)
