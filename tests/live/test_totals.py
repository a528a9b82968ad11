"""What nodes are doing, and how many of them, over time."""

import json

import pytest

from ccpipe.formats.lineprotocol import decode
from ccpipe.live.node import LiveNode, SchedulerState
from ccpipe.live.state import LiveState
from ccpipe.live.totals import BUSY, DOWN, DRAINED, IDLE, SILENT, condition


def node(*states: str, is_silent: bool = False) -> LiveNode:
    made = LiveNode(("c", "n1"))
    made.has_metrics, made.is_silent = True, is_silent
    made.scheduler = SchedulerState(states, 0.0) if states else None
    return made


@pytest.mark.parametrize(
    ("states", "is_silent", "has_job", "expected"),
    [
        ((), False, False, IDLE),
        ((), False, True, BUSY),
        ((), True, True, SILENT),
        (("idle",), False, False, IDLE),
        (("mixed",), False, False, BUSY),
        (("allocated", "completing"), False, False, BUSY),
        (("idle", "drain"), True, False, DRAINED),
        (("mixed", "drain"), False, True, DRAINED),
        (("down", "drain", "not_responding"), True, False, DOWN),
        (("idle",), True, False, SILENT),
        (("something",), False, False, IDLE),
    ],
)
def test_condition_follows_from_scheduler_metrics_and_jobs(
    states: tuple[str, ...], is_silent: bool, has_job: bool, expected: int
) -> None:
    """The scheduler's down and drain explain silence."""
    assert condition(node(*states, is_silent=is_silent), has_job=has_job) == expected


def event(name: str, function: str, payload: object, cluster: str = "c") -> str:
    text = json.dumps(json.dumps(payload))
    return f"{name},cluster={cluster},function={function},hostname=x event={text} 1740027951\n"


def test_totals_count_nodes_and_jobs_of_each_cluster() -> None:
    """A row every two seconds; without a cluster the sum over all."""
    state = LiveState()
    start = {"jobId": 7, "startTime": 900, "resources": [{"hostname": "n1"}], "user": "ann"}
    states = {"cluster": "d", "nodes": [{"hostname": "n9", "states": ["down"]}]}
    payload = (
        "".join(f"load,cluster=c,hostname=n{n},type=node value=1 1740027951\n" for n in (1, 2))
        + event("job", "start_job", {**start, "cluster": "c"})
        + event("nodestate", "nodestate", states, "d")
        + event("nodestate", "nodestate", "no object", "d")
        + event("jobpending", "jobpending", {"cluster": "c", "pending": [{"jobId": 8}]})
    )
    state.feed(decode(payload.encode()), 1000.0)
    for second in range(4):
        state.tick(1000.0 + second)
    assert state.totals.after(0.0, "c") == ([1000.0, 1002.0], [[1, 1, 0, 0, 0, 1, 1]] * 2)
    assert state.totals.after(1000.0, "d") == ([1002.0], [[0, 0, 0, 1, 0, 0, 0]])
    assert state.totals.after(1000.0) == ([1002.0], [[1, 1, 0, 1, 0, 1, 1]])
    assert state.totals.after(1000.0, "none") == ([1002.0], [[0, 0, 0, 0, 0, 0, 0]])


def test_reason_is_kept_until_scheduler_reports_other_states() -> None:
    """A reason of a node without a state is ignored."""
    state = LiveState()

    def feed(name: str, **node: object) -> None:
        payload = {"cluster": "c", "nodes": [{"hostname": "n1", **node}]}
        state.feed(decode(event(name, name, payload).encode()), 1000.0)

    feed("nodereason", reason="early")
    assert state.nodes.in_order() == []
    feed("nodestate", states=["idle", "drain"])
    feed("nodereason", reason="bad DIMM")
    feed("nodestate", states=["idle", "drain"])
    [node] = state.nodes.in_order()
    assert node.scheduler == SchedulerState(("idle", "drain"), 1000.0, "bad DIMM")
    feed("nodestate", states=["idle"])
    assert node.scheduler == SchedulerState(("idle",), 1000.0)
