"""Payloads of cc-backend's events."""

import json

import msgspec
import pytest

from ccpipe.formats import clustercockpit
from ccpipe.formats.clustercockpit import (
    NodeState,
    StartJob,
    StopJob,
    encode_node_states,
    part_name,
)

START_KEYS = {
    "jobId", "user", "cluster", "subCluster", "partition", "project", "startTime", "submitTime",
    "walltime", "numNodes", "numHwthreads", "numAcc", "smt", "shared", "monitoringStatus",
    "resources", "metaData", "arrayJobId", "requestedMemory", "energy", "duration", "id", "tags",
    "jobState", "energyFootprint", "footprint", "statistics", "concurrentJobs",
}  # fmt: skip
"""The keys of cc-backend's ``schema.Job``; it rejects a job with any other."""
STOP_KEYS = {"jobId", "cluster", "startTime", "stopTime", "jobState"}


def test_events_have_only_keys_known_to_cc_backend() -> None:
    """cc-backend rejects an event with an unknown key."""
    assert {field.name for field in msgspec.structs.fields(StartJob)} <= START_KEYS
    assert {field.name for field in msgspec.structs.fields(StopJob)} <= STOP_KEYS


def test_encoder_splits_node_states_into_several_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event is below a broker's maximum payload; without nodes there are no events."""
    monkeypatch.setattr(clustercockpit, "MAX_STATES", 2)
    rows = [NodeState(f"n{number}", ["idle"]) for number in range(5)]
    payloads = [json.loads(each) for each in encode_node_states("fox", rows)]
    assert [len(payload["nodes"]) for payload in payloads] == [2, 2, 1]
    assert payloads[0]["nodes"][1] == {"hostname": "n1", "states": ["idle"]}
    assert list(encode_node_states("fox", [])) == []


@pytest.mark.parametrize(
    ("tags", "name"),
    [
        (("node", "", "", ""), ""),
        (("", "", "", ""), ""),
        (("socket", "1", "", ""), "socket 1"),
        (("socket", "", "", ""), "socket"),
        (("node", "", "network", "eth0"), "network eth0"),
        (("accelerator", "0", "nvlink", "3"), "accelerator 0 nvlink 3"),
    ],
)
def test_parts_are_named_by_their_tags(tags: tuple[str, str, str, str], name: str) -> None:
    """The whole node has no part name."""
    assert part_name(*tags) == name
