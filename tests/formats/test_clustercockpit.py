"""Payloads of events hold no key that cc-backend does not know."""

import json

import msgspec
import pytest

from ccpipe.formats import clustercockpit
from ccpipe.formats.clustercockpit import NodeState, StartJob, StopJob, encode_node_states

START_KEYS = {
    "jobId", "user", "cluster", "subCluster", "partition", "project", "startTime", "submitTime",
    "walltime", "numNodes", "numHwthreads", "numAcc", "smt", "shared", "monitoringStatus",
    "resources", "metaData", "arrayJobId", "requestedMemory", "energy", "duration", "id", "tags",
    "jobState", "energyFootprint", "footprint", "statistics", "concurrentJobs",
}  # fmt: skip
"""The keys of cc-backend's ``schema.Job``; it refuses a job with any other."""
STOP_KEYS = {"jobId", "cluster", "startTime", "stopTime", "jobState"}


def test_no_key_is_unknown_to_cc_backend() -> None:
    """One unknown key costs the whole event."""
    assert {field.name for field in msgspec.structs.fields(StartJob)} <= START_KEYS
    assert {field.name for field in msgspec.structs.fields(StopJob)} <= STOP_KEYS


def test_states_of_many_nodes_are_several_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that each is below a broker's maximum payload; no nodes make none."""
    monkeypatch.setattr(clustercockpit, "MAX_STATES", 2)
    rows = [NodeState(f"n{number}", ["idle"]) for number in range(5)]
    payloads = [json.loads(each) for each in encode_node_states("fox", rows)]
    assert [len(payload["nodes"]) for payload in payloads] == [2, 2, 1]
    assert payloads[0]["nodes"][1] == {"hostname": "n1", "states": ["idle"]}
    assert list(encode_node_states("fox", [])) == []
