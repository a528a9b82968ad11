"""The nodes of jobs, learned from starts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli.tail.jobs import JobNodes
from ccpipe.message import Message
from ccpipe.message import event as make_event

NOON = 1_740_052_800 * 10**9
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
)


def event(name: str, function: str, text: str, *, time: int) -> Message:
    """Return an event without tags of its own."""
    return make_event(name, function, text, time=time, tags={})


def start(job: int, *nodes: str) -> str:
    """Return the start of a job as ClusterCockpit writes it."""
    return json.dumps({"jobId": job, "resources": [{"hostname": node} for node in nodes]})


def test_a_start_names_the_nodes_of_a_job() -> None:
    """Of the jobs that are watched; other jobs and other events say nothing."""
    jobs = JobNodes([7])
    assert jobs.add_event(event("job", "start_job", start(7, "e1", "e3"), time=NOON))
    assert not jobs.add_event(event("job", "start_job", start(8, "e2"), time=NOON))
    assert not jobs.add_event(event("node", "start_job", start(7, "e4"), time=NOON))
    assert jobs.nodes == {"e1", "e3"}


@pytest.mark.parametrize("key", ["slurm_jobs", "jobs"])
def test_envelopes_name_them_by_node_lists_or_come_from_the_node(key: str) -> None:
    """Slurm's list is expanded; a sample has the job on the node that sent it."""
    jobs = JobNodes([7])
    assert jobs.add_attributes({key: [{"job_id": 7, "nodes": ["e[1-2]", "f1"]}]})
    assert jobs.nodes == {"e1", "e2", "f1"}
    sample = {"node": "g9", key: [{"job": 7}]}
    assert jobs.add_attributes(sample)
    assert "g9" in jobs.nodes
    assert not jobs.add_attributes({"node": "h1", key: [{"job": 8}]})
    assert "h1" not in jobs.nodes


@given(st.text() | JSON.map(json.dumps))
def test_any_event_is_a_start_or_is_not(text: str) -> None:
    """An event's text is anybody's: it costs nothing but itself."""
    jobs = JobNodes([7])
    assert jobs.add_event(event("job", "start_job", text, time=NOON)) in (True, False)


@given(
    st.dictionaries(st.sampled_from(["jobs", "slurm_jobs", "node", "x"]), JSON),
    st.lists(st.dictionaries(st.sampled_from(["job", "job_id", "nodes"]), JSON), max_size=3),
)
def test_any_attributes_name_nodes_or_do_not(
    attributes: dict[str, Any], records: list[dict[str, Any]]
) -> None:
    """Whatever an envelope holds."""
    jobs = JobNodes([0, 1])
    jobs.add_attributes(attributes)
    jobs.add_attributes({**attributes, "jobs": records})
    assert all(jobs.nodes)
