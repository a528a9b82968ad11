"""Events as readable lines: starts and stops of jobs, states of nodes."""

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli.console.event_text import MAX_STARTS, EventTexts
from ccpipe.cli.console.message_table import MessageTable
from ccpipe.message import Message, event
from tests.test_terminal import Terminal

START = {
    "jobId": 4711, "user": "alice", "cluster": "fritz", "startTime": 1000, "partition": "work",
    "walltime": 86400, "resources": [{"hostname": f"f010{number}"} for number in range(1, 5)],
}  # fmt: skip


def job(function: str, **given: object) -> Message:
    return event("job", function, json.dumps({"jobId": 4711} | given), time=10**18, tags={})


def stop(state: str, seconds: int = 17119) -> Message:
    given = {"cluster": "fritz", "startTime": 1000, "stopTime": 1000 + seconds}
    return job("stop_job", jobState=state, **given)


def text(*messages: Message) -> str:
    texts = EventTexts()
    found = [texts.describe(message) for message in messages][-1]
    assert found is not None
    return found.text


def test_start_has_owner_nodes_partition_and_limit() -> None:
    """What the job requested, in Slurm's notation."""
    assert text(job("start_job", **START)) == (
        "job 4711 started: alice, 4 nodes f[0101-0104], partition work, limit 1-00:00:00, "
        "cluster fritz"
    )
    assert "4 GPUs" in text(job("start_job", **START, numAcc=4))


def test_start_omits_what_is_unknown() -> None:
    assert text(job("start_job", user="bob")) == "job 4711 started: bob"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("completed", "job 4711 completed after 4:45:19: alice, 4 nodes f[0101-0104], "),
        ("timeout", "job 4711 reached its time limit after 4:45:19: alice"),
        ("node_fail", "job 4711 failed with a node after 4:45:19: alice"),
        ("", "job 4711 ended after 4:45:19: alice"),
    ],
)
def test_stop_has_state_run_time_and_owner_of_start(state: str, expected: str) -> None:
    assert text(job("start_job", **START), stop(state)).startswith(expected)


def test_stop_of_unknown_start_has_state_and_run_time() -> None:
    """The event names no owner."""
    assert text(stop("failed", 61)) == "job 4711 failed after 0:01:01: cluster fritz"
    assert text(job("stop_job", jobState="failed")) == "job 4711 failed"


def test_starts_are_kept_up_to_maximum() -> None:
    """Jobs whose stop never arrives do not fill the memory."""
    texts = EventTexts()
    for number in range(MAX_STARTS + 5):
        texts.describe(job("start_job", jobId=number, user="a"))
    assert len(texts._starts) == MAX_STARTS


def test_node_states_are_counted_and_unusual_nodes_named() -> None:
    """Names of the nodes that someone must look after; allocated and idle ones are a number."""
    nodes = [{"hostname": f"n{number:02}", "states": ["allocated"]} for number in range(90)]
    nodes += [{"hostname": f"n{number}", "states": ["down"]} for number in (90, 91)]
    nodes += [{"hostname": "n92", "states": ["idle", "drain"]}, {"hostname": "n93"}]
    message = event(
        "nodestate", "nodestate", json.dumps({"cluster": "fritz", "nodes": nodes}), time=1, tags={}
    )
    assert text(message) == (
        "states of 94 nodes: 90 allocated, 2 down n[90-91], 1 idle+drain n92, 1 unknown n93, "
        "cluster fritz"
    )


def test_reasons_name_their_nodes() -> None:
    """Nodes with the same reason together."""
    nodes = [{"hostname": f"n{number}", "reason": "Not responding"} for number in (1, 2)]
    nodes.append({"hostname": "n7", "reason": "DIMM_A3"})
    payload = json.dumps({"cluster": "fritz", "nodes": nodes})
    message = event("nodereason", "nodereason", payload, time=1, tags={})
    assert text(message) == ("reasons of 3 nodes: n[1-2] Not responding; n7 DIMM_A3, cluster fritz")


@given(st.text(), st.sampled_from(["job", "nodestate", "other"]), st.text(max_size=9))
def test_other_events_are_not_described(payload: str, name: str, function: str) -> None:
    """Nor are those with a payload that is not cc-backend's; nothing raises."""
    if name == "other" or function not in ("start_job", "stop_job"):
        message = event(name, function, payload, time=1, tags={})
        assert EventTexts().describe(message) is None or name == "nodestate"


def test_table_shows_event_in_one_line_without_escapes_of_sender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After its time; a name of a user or node cannot control the terminal."""
    evil = START | {"user": "\x1b[2J", "resources": [{"hostname": "a\nb"}]}
    row = MessageTable(io.StringIO()).render([job("start_job", **evil)]).splitlines()[1]
    assert re.fullmatch(r"[\d:]{8}  job 4711 started: \\x1b\[2J, 1 node a\\nb, .*", row)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    row = MessageTable(Terminal()).render([job("start_job", **START)]).splitlines()[1]
    assert len(row) == 60
    assert row.endswith("…")


def queue(**payload: object) -> Message:
    text = json.dumps({"cluster": "fritz", "user": "alice"} | payload)
    return event("jobpending", "jobpending", text, time=1, tags={})


def test_pending_job_has_what_it_waits_for() -> None:
    one = {"jobId": 4711, "numNodes": 4, "partition": "work", "walltime": 86400,
           "reason": "Resources"}  # fmt: skip
    assert text(queue(pending=[one])) == (
        "job 4711 is pending: alice, 4 nodes, partition work, limit 1-00:00:00, "
        "reason Resources, cluster fritz"
    )
    array = {"jobId": 4711, "arrayTasks": 100}
    assert text(queue(pending=[array])) == (
        "job 4711 (100 tasks of an array) is pending: alice, cluster fritz"
    )


def test_several_pending_jobs_are_listed_by_reason() -> None:
    """As many of each as fit a line."""
    waiting = [{"jobId": number, "reason": "Priority"} for number in range(1, 11)]
    waiting.append({"jobId": 11})
    left = [{"jobId": 20, "jobState": "running"}, {"jobId": 21, "jobState": "cancelled"}]
    assert text(queue(pending=waiting, left=left)) == (
        "11 jobs are pending: alice, 1 2 3 4 5 6 7 8 and 2 more (Priority), 11; "
        "no longer pending: 20 (running), 21 (cancelled), cluster fritz"
    )
    assert text(queue(left=left[:1])) == "no longer pending: alice, 20 (running), cluster fritz"
