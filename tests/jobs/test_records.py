"""Jobs as they travel through a pipe."""

import json

from ccpipe.formats.gridengine import RejectedAccountingLine
from ccpipe.jobs import Job, Jobs, JobUsage

BAD = RejectedAccountingLine(3, 40, "not a record", b"x")


def test_jobs_are_taken_and_concatenated_with_what_was_rejected() -> None:
    """The size is that of the payloads, and of the jobs."""
    one = Jobs(
        [Job(cluster="fox", id=7), Job(cluster="fox", id=8)], rejected=[BAD], payload_size=100
    )
    other = Jobs.of(iter([Job(cluster="fox", id=9)]))
    both = Jobs.concat([one, other])
    assert [job.id for job in both] == [7, 8, 9]
    assert (both.rejected, both.size) == ([BAD], 100 + 3 * other.size)
    assert Jobs.of(one) is one
    assert isinstance(both[1:], Jobs)


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
