"""Jobs as they travel through a pipe."""

import json

from ccpipe.formats.slurm.cluster import Cluster
from ccpipe.jobs import Job, Jobs, JobUsage


def test_jobs_keep_the_rest_of_a_poll_when_some_are_taken() -> None:
    """Otherwise their events would have no time, and the states of nodes would be lost."""
    poll = Jobs([Job(cluster="fox", id=7)], time=5, cluster=Cluster(), errors=["sinfo: failed"])
    rest = poll.take(b"\0")
    assert (len(rest), rest.time, rest.errors) == (0, 5, ["sinfo: failed"])
    assert rest.cluster is poll.cluster


def test_original_of_a_job_is_its_raw_record() -> None:
    """As JSON; without one it is the job, and what JSON cannot hold is readable all the same."""
    jobs = Jobs([
        Job(cluster="fox", id=7, raw=JobUsage(cpu=2)),
        Job(cluster="fox", id=8),
        Job(cluster="fox", id=9, raw={"owner": "caf\udce9"}),
    ])  # fmt: skip
    assert json.loads(jobs.original(0)) == {"cpu": 2}
    assert json.loads(jobs.original(1)) == {"cluster": "fox", "id": 8}
    assert b"owner" in jobs.original(2)
