"""Jobs from events."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.dashboard.jobs import KnownJobs
from ccpipe.message import event


def feed(jobs: KnownJobs, function: str, /, **payload: object) -> None:
    """Feed an event of the class job."""
    tags = {"cluster": "tagged", "hostname": "n1", "type": "node"}
    jobs.feed(event("job", function, json.dumps(payload), time=1, tags=tags))


def started(jobs: KnownJobs, job: int, start: int = 100, **more: object) -> None:
    """Feed the start of a job on two nodes."""
    nodes = [{"hostname": "n1"}, {"hostname": "n2"}]
    feed(jobs, "start_job", jobId=job, startTime=start, resources=nodes, user="u", **more)


def test_a_job_runs_until_its_stop() -> None:
    """The stop gives its end and state."""
    jobs = KnownJobs()
    started(jobs, 7, cluster="c")
    assert [job.id for job in jobs.running] == [7]
    assert [job.id for job in jobs.on("c", "n2")] == [7]
    feed(jobs, "stop_job", jobId=7, cluster="c", startTime=100, stopTime=300, jobState="failed")
    assert jobs.running == []
    [job] = jobs.latest()
    assert (job.stop, job.state, job.nodes) == (300, "failed", ["n1", "n2"])


def test_a_stop_without_a_start_time_ends_the_latest_of_that_number() -> None:
    """Some writers leave it out."""
    jobs = KnownJobs()
    started(jobs, 7, start=100, cluster="c")
    started(jobs, 7, start=200, cluster="c")
    feed(jobs, "stop_job", jobId=7, cluster="c", stopTime=300)
    assert [job.start for job in jobs.running] == [100]


def test_a_start_told_again_does_not_revive_a_job() -> None:
    """Delivery is at least once."""
    jobs = KnownJobs()
    started(jobs, 7, cluster="c")
    feed(jobs, "stop_job", jobId=7, cluster="c", startTime=100, stopTime=300, jobState="completed")
    started(jobs, 7, cluster="c")
    assert jobs.running == []


def test_a_start_with_a_state_has_ended() -> None:
    """Accounting files give both at once: the stop follows in another event."""
    jobs = KnownJobs()
    started(jobs, 7, jobState="completed", stopTime=150)
    [job] = jobs.latest()
    assert (job.stop, job.state, job.cluster) == (150, "completed", "tagged")


def test_the_number_of_jobs_is_bounded() -> None:
    """Those that ended first are forgotten, running ones last."""
    jobs = KnownJobs(maximum=3)
    started(jobs, 1, start=1)
    for number in range(2, 8):
        started(jobs, number, start=number)
        feed(
            jobs, "stop_job", jobId=number, cluster="tagged", startTime=number, stopTime=number + 10
        )
    assert len(jobs.jobs) == 3
    assert [job.id for job in jobs.running] == [1]


@given(st.text(max_size=100), st.sampled_from(["start_job", "stop_job", "other"]))
def test_any_text_is_taken(text: str, function: str) -> None:
    """An event that is no job's is ignored."""
    jobs = KnownJobs()
    jobs.feed(event("job", function, text, time=1, tags={}))
    assert len(jobs.jobs) <= 1
