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
from ccpipe.dashboard.access import EVERYTHING
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
        "jobId": 5, "cluster": "c", "startTime": 100, "resources": [{"hostname": n} for n in nodes]
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


def test_running_jobs_precede_ended_ones(feed: LiveFeed) -> None:
    """And the list is sent only when it has changed."""
    start(feed, ["n1"])
    view = view_of(feed, '{"view": "jobs"}', EVERYTHING)
    assert [job["id"] for job in read(view.frame())[0]["jobs"]] == [5]
    assert "jobs" not in read(view.frame())[0]


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
