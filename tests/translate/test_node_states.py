"""States of nodes, and what the jobs on them use."""

import json

from ccpipe.jobs import Job, JobNode
from ccpipe.translate.node_states import node_state_payloads


def test_numbers_that_one_job_does_not_have_are_left_out() -> None:
    """The sum would be too small."""
    known, unknown = JobNode("a", cpus=2, gpus=1, memory=100), JobNode("a", cpus=1)
    jobs = [Job(cluster="fox", id=n, nodes=(node,)) for n, node in enumerate((known, unknown), 1)]
    (payload,) = node_state_payloads("fox", {"a": ["mixed"]}, jobs)
    assert json.loads(payload)["nodes"] == [
        {"hostname": "a", "states": ["mixed"], "cpusAllocated": 3, "jobsRunning": 2}
    ]
