"""``Jobs.to_arrow``: a row for each job, with typed columns."""

import pytest

from ccpipe.errors import DataError
from ccpipe.jobs import Job, JobNode, Jobs, JobUsage
from ccpipe.jobs.arrow import CHUNK, SCHEMA

JOB = Job(
    cluster="fox",
    id=7,
    user="ann",
    start=1_795_170_748_000_001_000,
    nodes=(JobNode("c1", hwthreads=(0, 2), gpus=1), JobNode("c2")),
    metadata={"account": "physics"},
    usage=JobUsage(cpu=1.5),
    raw=object(),
)


def test_nodes_and_usage_are_nested() -> None:
    """Times are exact timestamps, null if unknown; the raw record is left out."""
    table = Jobs([JOB, Job(cluster="fox", id=8)]).to_arrow()
    assert table.schema == SCHEMA
    first, second = table.to_pylist()
    assert table["start"].cast("int64").to_pylist() == [JOB.start, None]
    assert [node["hostname"] for node in first["nodes"]] == ["c1", "c2"]
    assert first["nodes"][0]["hwthreads"] == [0, 2]
    assert first["nodes"][0]["cpus"] is None
    assert first["metadata"] == [("account", "physics")]
    assert first["usage"]["cpu"] == 1.5
    assert (second["nodes"], second["usage"], second["end"]) == ([], None, None)


@pytest.mark.parametrize("count", [0, 1, CHUNK + 1])
def test_every_job_has_a_row(count: int) -> None:
    """However many there are."""
    jobs = Jobs(Job(cluster="fox", id=i) for i in range(count))
    assert jobs.to_arrow()["id"].to_pylist() == list(range(count))


@pytest.mark.parametrize("job", [Job(cluster="fox", id=2**63), Job(cluster="\ud800", id=1)])
def test_a_value_that_arrow_cannot_hold_is_an_error(job: Job) -> None:
    """With its column."""
    with pytest.raises(DataError, match="column (id|cluster): "):
        Jobs([job]).to_arrow()
