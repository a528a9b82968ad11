"""The neutral record of a job."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.clustercockpit import STATES
from ccpipe.jobs import PENDING, RUNNING, Job, JobNode, is_final

JOB = Job(
    cluster="fox",
    id=7,
    state=RUNNING,
    user="ann",
    start=5,
    nodes=(JobNode("n1", (0, 1), ("GPU-1",)),),
    metadata={"jobName": "burn"},
)


def test_a_newer_record_overrides_what_it_knows_and_keeps_the_rest() -> None:
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
def test_a_start_needs_a_user_a_time_and_nodes(known: dict[str, object], can: bool) -> None:
    """cc-backend refuses one without; a pending job's start is only an estimate."""
    assert msgspec.structs.replace(JOB, **known).can_be_reported is can


def test_a_job_has_ended_when_state_and_end_say_so() -> None:
    """Either alone does not do."""
    assert [state for state in (*STATES, PENDING, RUNNING, "") if is_final(state)] == list(STATES)
    assert msgspec.structs.replace(JOB, state="timeout", end=9).has_ended
    assert not msgspec.structs.replace(JOB, state="timeout").has_ended
    assert not msgspec.structs.replace(JOB, end=9).has_ended


texts = st.dictionaries(st.text(), st.text())


@given(st.builds(Job, cluster=st.text(), id=st.integers(), metadata=texts))
def test_a_job_survives_its_encoding(job: Job) -> None:
    """It is kept in the state as JSON, also with integers beyond 64 bits."""
    assert msgspec.json.decode(msgspec.json.encode(job), type=Job) == job
