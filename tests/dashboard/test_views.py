"""The frames of each view: the first, and updates."""

import json
import math
import struct
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.config import Bus, Site
from ccpipe.dashboard.access import EVERYTHING, AccessError, Role, Viewer
from ccpipe.dashboard.views import MAX_LINES, frame, view_of
from ccpipe.formats.lineprotocol import decode
from ccpipe.live.feed import LiveFeed
from ccpipe.message import event
from ccpipe.node.sampling.collector import Metric
from ccpipe.telemetry import Telemetry


@pytest.fixture
def feed() -> LiveFeed:
    feed = LiveFeed(Site(bus=Bus(servers=["nats://127.0.0.1:1"])), Telemetry(), name="dashboard")
    rows = Metric("load", "", int, "the load"), Metric("cpu_user", "percent", float, "")
    feed.state.nodes.known = {row.name: row for row in rows}
    return feed


def say(feed: LiveFeed, at: float, *lines: str) -> None:
    text = "".join(f"{line} 1740027951\n" for line in lines)
    feed.state.nodes.feed(decode(text.replace("@", "cluster=c,hostname=").encode()), at)
    feed.state.nodes.tick(at)


def start(feed: LiveFeed, nodes: list[str]) -> None:
    payload = {
        "jobId": 5, "cluster": "c", "startTime": 100, "partition": "main",
        "resources": [{"hostname": n} for n in nodes],
    }  # fmt: skip
    tags = {"function": "start_job"}
    feed.state.jobs.feed(event("job", "start_job", json.dumps(payload), time=1, tags=tags), 1.0)


def read(data: bytes) -> tuple[dict[str, Any], list[float]]:
    (size,) = struct.unpack_from("<I", data)
    rest = data[4 + size :]
    return json.loads(data[4 : 4 + size]), list(struct.unpack(f"<{len(rest) // 4}f", rest))


def test_overview_names_nodes_once(feed: LiveFeed) -> None:
    """Then only values, until nodes or metrics are added or removed."""
    say(feed, 1000, "load,@n1,type=node value=1", "load,@n2,type=node value=2")
    view = view_of(feed, '{"view": "overview", "metrics": ["load", "none"]}', EVERYTHING)
    header, numbers = read(view.frame())
    assert header["first"]
    assert header["nodes"] == [["c", "n1"], ["c", "n2"]]
    assert header["metrics"] == {"load": 2}
    assert header["known"] == {"load": {"unit": "", "meaning": "the load", "averaged": False}}
    assert numbers[:2] == [1, 2]
    assert all(map(math.isnan, numbers[2:]))
    say(feed, 1001, "load,@n1,type=node value=5")
    header, numbers = read(view.frame())
    assert "nodes" not in header
    assert numbers[:2] == [5, 2]
    say(feed, 1002, "load,@n3,type=node value=7")
    assert len(read(view.frame())[0]["nodes"]) == 3


def test_overview_has_sums_of_power_and_speed(feed: LiveFeed) -> None:
    """In base units, row by row: everything at first and after a change of nodes, then new rows."""
    feed.state.nodes.known = {"flops_any": Metric("flops_any", "MFlops/s", float, "")}
    lines = "flops_any,@n{0},type=node value=2", "cpu_power,@n{0},type=socket,type-id=0 value=10"
    for at in (1000, 1002):
        say(feed, at, *[line.format(n) for n in (1, 2) for line in lines])
    view = view_of(feed, '{"view": "overview"}', EVERYTHING)
    header, numbers = read(view.frame())
    assert (header["restart"], header["times"]) == (True, [1000, 1002])
    assert numbers == [20, 4e6, 20, 4e6]
    say(feed, 1004, "platform_power,@n1,type=node value=100")
    header, numbers = read(view.frame())
    assert (header["restart"], len(header["times"])) == (True, 3)
    assert numbers[-2:] == [110, 4e6]
    say(feed, 1006, "flops_any,@n1,type=node value=3")
    header, numbers = read(view.frame())
    assert ("restart" in header, header["times"], numbers) == (False, [1006], [110, 5e6])


def test_overview_counts_nodes_and_jobs_over_time(feed: LiveFeed) -> None:
    """Of one cluster if one is requested."""
    say(feed, 1000, "load,@n1,type=node value=1", "load,cluster=d,hostname=m1,type=node value=1")
    start(feed, ["n1"])
    feed.state.tick(1000.0)
    header, _ = read(view_of(feed, '{"view": "overview"}', EVERYTHING).frame())
    assert (header["counted"], header["counts"]) == ([1000], [[1, 1, 0, 0, 0, 1, 0]])
    assert header["conditions"] == [0, 1]
    assert header["clusters"] == ["c", "d"]
    header, _ = read(view_of(feed, '{"view": "overview", "cluster": "d"}', EVERYTHING).frame())
    assert (header["counts"], header["nodes"]) == ([[0, 1, 0, 0, 0, 0, 0]], [["d", "m1"]])
    assert (header["jobs"], header["clusters"]) == ([], ["c", "d"])


def test_overview_names_exceeded_thresholds(feed: LiveFeed) -> None:
    """Until the values are below them again."""
    say(feed, 1000, "mem_used,@n1,type=node value=96", "mem_total,@n1,type=node value=100")
    view = view_of(feed, '{"view": "overview"}', EVERYTHING)
    [found] = read(view.frame())[0]["exceeded"]
    assert (found["alert"], found["places"]) == ("NodeMemoryFull", [["c", "n1", 0.96]])
    assert "exceeded" not in read(view.frame())[0]
    say(feed, 1001, "mem_used,@n1,type=node value=90")
    assert read(view.frame())[0]["exceeded"] == []


def test_list_of_nodes_has_facts_of_each(feed: LiveFeed) -> None:
    """Condition, scheduler's states, reason, partition, subcluster, jobs, end of its metrics."""
    say(feed, 1000, "load,@n1,type=node value=1", "load,@n2,type=node value=1")
    start(feed, ["n1"])
    feed.state.nodes.report(("c", "n3"), ("down", "drain"), 1000.0)
    feed.state.tick(2000.0)
    say(feed, 2000, "load,@n1,type=node value=2")
    view = view_of(feed, '{"view": "nodes", "metrics": ["load"]}', EVERYTHING)
    feed.state.tick(2002.0)
    header, numbers = read(view.frame())
    assert header["facts"] == [
        [0, "", "", "main", "", 1, 0], [4, "", "", "", "", 0, 1000],
        [3, "down, drain", "", "", "", 0, -1],
    ]  # fmt: skip
    assert numbers[0] == 2
    assert all(map(math.isnan, numbers[1:]))
    assert (header["status"]["nodes"], header["status"]["silent"]) == (3, 1)
    assert "facts" not in read(view.frame())[0]


def test_page_of_node_that_is_down_has_its_state(feed: LiveFeed) -> None:
    """Also once its series are forgotten."""
    say(feed, 1000, "load,@n1,type=node value=1")
    feed.state.nodes.report(("c", "n1"), ("down",), 5000.0)
    feed.state.tick(5000.0)
    feed.state.nodes.forget()
    header, _ = read(
        view_of(feed, '{"view": "node", "cluster": "c", "node": "n1"}', EVERYTHING).frame()
    )
    assert (header["series"], header["facts"]) == ([], [3, "down", "", "", "", 0, 1000])
    header, _ = read(
        view_of(feed, '{"view": "node", "cluster": "c", "node": "n2"}', EVERYTHING).frame()
    )
    assert header["missing"]


def test_node_page_has_history_then_new_rows(feed: LiveFeed) -> None:
    """Everything again when a series is added; threads are only part of their sum or mean."""
    say(feed, 1000, "load,@n1,type=node value=1")
    say(feed, 1002, "load,@n1,type=node value=2")
    view = view_of(feed, '{"view": "node", "cluster": "c", "node": "n1"}', EVERYTHING)
    header, numbers = read(view.frame())
    assert (header["series"], header["times"], numbers) == ([["load", ""]], [1000, 1002], [1, 2])
    assert read(view.frame())[0]["times"] == []
    threads = [f"cpu_user,@n1,type=hwthread,type-id={n} value={n * 10}" for n in (1, 3)]
    say(feed, 1004, *threads, "power,@n1,type=socket,type-id=0 value=9")
    header, numbers = read(view.frame())
    series = [["cpu_user", ""], ["load", ""], ["power", ""], ["power", "socket 0"]]
    assert header["series"] == series
    assert header["times"] == [1000, 1002, 1004]
    assert numbers[-4:] == [20, 2, 9, 9]


def test_large_job_is_shown_by_extremes(feed: LiveFeed) -> None:
    """Minimum, mean and maximum of each metric rather than a line for each node."""
    names = [f"n{number}" for number in range(MAX_LINES + 3)]
    say(feed, 1000, *[f"cpu_load,@{name},type=node value={n}" for n, name in enumerate(names)])
    start(feed, [*names, "never-heard"])
    query = '{"view": "job", "cluster": "c", "job": 5, "start": 100}'
    header, numbers = read(view_of(feed, query, EVERYTHING).frame())
    assert (header["metrics"], header["nodes"], header["count"]) == (["cpu_load"], None, 11)
    assert numbers == [0, 5, 10]


def test_small_job_has_line_for_each_node(feed: LiveFeed) -> None:
    """Its power metrics are last; the platform's power includes the others."""
    for at, power in enumerate(("cpu_power", "platform_power")):
        say(feed, 1000 + 2 * at, *[f"{power},@n{n},type=node value={n}" for n in (1, 2)])
    say(feed, 1004, "cpu_load,@n1,type=node value=8")
    start(feed, ["n1", "n2"])
    view = view_of(feed, '{"view": "job", "cluster": "c", "job": 5, "start": 100}', EVERYTHING)
    header, numbers = read(view.frame())
    assert header["metrics"] == ["cpu_load", "platform_power"]
    assert header["powers"] == ["platform_power"]
    assert header["nodes"] == ["n1", "n2"]
    assert len(numbers) == 4 * len(header["times"])
    assert numbers[-2:] == [1, 2]


def test_user_sees_rows_of_own_job_only(feed: LiveFeed) -> None:
    """From its start to its end; on the page of the node while it runs."""
    alice = Viewer("alice", Role.USER)
    payload = {"jobId": 5, "cluster": "c", "user": "alice", "startTime": 1001}
    tags = {"function": "start_job"}
    text = json.dumps({**payload, "resources": [{"hostname": "n1"}]})
    feed.state.jobs.feed(event("job", "start_job", text, time=1, tags=tags), 1.0)
    for at in (1000, 1002):
        say(feed, at, f"cpu_load,@n1,type=node value={at}")
    node, job = (
        '{"view": "node", "cluster": "c", "node": "n1"}',
        '{"view": "job", "cluster": "c", "job": 5, "start": 1001}',
    )
    for query in (node, job):
        view = view_of(feed, query, alice)
        header, numbers = read(view.frame())
        assert (header["times"], numbers) == ([1002], [1002])
        assert read(view_of(feed, query, EVERYTHING).frame())[0]["times"][-1] == 1002
    assert read(view_of(feed, node, EVERYTHING).frame())[0]["times"] == [1000, 1002]
    page = view_of(feed, node, alice)
    page.frame()
    stop = json.dumps({**payload, "stopTime": 1003, "jobState": "completed"})
    feed.state.jobs.feed(event("job", "stop_job", stop, time=1, tags={"function": "stop_job"}), 2.0)
    say(feed, 1004, "cpu_load,@n1,type=node value=1004")
    header, numbers = read(view_of(feed, job, alice).frame())
    assert (header["times"], numbers) == ([1002], [1002])
    assert header["job"]["stop"] == 1003
    with pytest.raises(AccessError, match="no job of yours"):
        page.frame()


def test_job_list_is_requested_anew_when_a_job_changes(feed: LiveFeed) -> None:
    """A frame has no jobs, which may be many; it tells when they have changed."""
    view = view_of(feed, '{"view": "jobs"}', EVERYTHING)
    assert [read(view.frame())[0]["changed"] for _ in range(2)] == [True, False]
    start(feed, ["n1"])
    assert [read(view.frame())[0]["changed"] for _ in range(2)] == [True, False]


@given(
    st.dictionaries(st.text(), st.integers(-(2**31), 2**31) | st.text()),
    st.lists(st.floats(width=32)),
)
def test_frame_has_json_and_floats(header: dict[str, int | str], values: list[float]) -> None:
    """The floats begin at a multiple of four, as typed arrays require."""
    encoded = frame(header, array("f", values))
    (size,) = struct.unpack_from("<I", encoded)
    assert size % 4 == 0
    assert json.loads(encoded[4 : 4 + size]) == header
    read = struct.unpack(f"<{len(values)}f", encoded[4 + size :])
    assert all(
        a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(read, values, strict=True)
    )


def test_frame_may_have_no_floats() -> None:
    """It ends with its JSON."""
    assert frame({}) == b"\x04\x00\x00\x00{}  "
