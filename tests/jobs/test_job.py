"""The neutral record of a job, ``Jobs`` as they travel through a pipe, and their Arrow table."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.clustercockpit import STATES
from ccpipe.formats.slurm.cluster import Cluster
from ccpipe.jobs import PENDING, RUNNING, Job, JobNode, Jobs, JobUsage, is_final
from ccpipe.jobs.arrow import CHUNK, schema_of

JOB = Job(
    cluster="fox",
    id=7,
    state=RUNNING,
    user="ann",
    start=5,
    nodes=(JobNode("n1", (0, 1), ("GPU-1",)),),
    metadata={"jobName": "burn"},
)


def test_newer_record_overrides_known_fields() -> None:
    """A default value means that a record does not know; metadata is joined key by key."""
    newer = Job(cluster="fox", id=7, partition="gpu", state="failed", metadata={"pe": "mpi"})
    assert JOB.updated(newer) == msgspec.structs.replace(
        JOB, partition="gpu", state="failed", metadata={"jobName": "burn", "pe": "mpi"}
    )
    assert JOB.updated(JOB) is JOB


@pytest.mark.parametrize(
    ("known", "can"),
    [
        ({}, True),
        ({"state": "failed"}, True),
        ({"state": PENDING}, False),
        ({"start": 0}, False),
        ({"user": ""}, False),
        ({"nodes": ()}, False),
        ({"cluster": ""}, False),
        ({"project": "", "partition": ""}, True),
    ],
)
def test_start_requires_user_time_and_nodes(known: dict[str, object], can: bool) -> None:
    """cc-backend refuses one without; a pending job's start is only an estimate."""
    assert msgspec.structs.replace(JOB, **known).can_be_reported is can


def test_job_has_ended_if_state_and_end_are_set() -> None:
    """One of them is not enough."""
    assert [state for state in (*STATES, PENDING, RUNNING, "") if is_final(state)] == list(STATES)
    assert msgspec.structs.replace(JOB, state="timeout", end=9).has_ended
    assert not msgspec.structs.replace(JOB, state="timeout").has_ended
    assert not msgspec.structs.replace(JOB, end=9).has_ended


texts = st.dictionaries(st.text(), st.text())


@given(st.builds(Job, cluster=st.text(), id=st.integers(), metadata=texts))
def test_job_survives_encoding(job: Job) -> None:
    """It is kept in the state as JSON, also with integers beyond 64 bits."""
    assert msgspec.json.decode(msgspec.json.encode(job), type=Job) == job


def test_taken_jobs_keep_data_of_poll() -> None:
    """Otherwise their events would have no time, and the states of nodes would be lost."""
    poll = Jobs([Job(cluster="fox", id=7)], time=5, cluster=Cluster(), errors=["sinfo: failed"])
    rest = poll.take(b"\0")
    assert (len(rest), rest.time, rest.errors) == (0, 5, ["sinfo: failed"])
    assert rest.cluster is poll.cluster


def test_original_of_job_is_raw_record() -> None:
    """As JSON; else the job itself, in readable form even if JSON cannot represent it."""
    jobs = Jobs([
        Job(cluster="fox", id=7, raw=JobUsage(cpu=2)),
        Job(cluster="fox", id=8),
        Job(cluster="fox", id=9, raw={"owner": "caf\udce9"}),
    ])  # fmt: skip
    assert json.loads(jobs.original(0)) == {"cpu": 2}
    assert json.loads(jobs.original(1)) == {"cluster": "fox", "id": 8}
    assert b"owner" in jobs.original(2)


FULL = Job(
    cluster="fox",
    id=7,
    user="ann",
    start=1_795_170_748_000_001_000,
    nodes=(JobNode("c1", hwthreads=(0, 2), gpus=1), JobNode("c2")),
    metadata={"account": "physics"},
    usage=JobUsage(cpu=1.5),
    raw=object(),
)


def test_table_nests_nodes_and_usage() -> None:
    """Times are exact timestamps; unknown values are null; the raw record is omitted."""
    table = Jobs([FULL, Job(cluster="fox", id=8)]).to_arrow()
    assert table.schema == schema_of(Job)
    first, second = table.to_pylist()
    assert table["start"].cast("int64").to_pylist() == [FULL.start, None]
    assert [node["hostname"] for node in first["nodes"]] == ["c1", "c2"]
    assert first["nodes"][0]["hwthreads"] == [0, 2]
    assert first["nodes"][0]["cpus"] is None
    assert first["metadata"] == [("account", "physics")]
    assert first["usage"]["cpu"] == 1.5
    assert (second["nodes"], second["usage"], second["end"]) == ([], None, None)
    assert (second["hwthreads"], second["memory"]) == (None, None)


@pytest.mark.parametrize("count", [0, 1, CHUNK + 1])
def test_table_has_row_for_every_job(count: int) -> None:
    jobs = Jobs(Job(cluster="fox", id=i) for i in range(count))
    assert jobs.to_arrow()["id"].to_pylist() == list(range(count))


@pytest.mark.parametrize("job", [Job(cluster="fox", id=2**63), Job(cluster="\ud800", id=1)])
def test_value_invalid_in_arrow_is_error(job: Job) -> None:
    """The error names the column."""
    with pytest.raises(DataError, match="column (id|cluster): "):
        Jobs([job]).to_arrow()
