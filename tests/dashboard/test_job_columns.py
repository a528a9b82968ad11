"""The job page's live columns: its own time, its own parts of nodes."""

import json
import math
from typing import Any

import pytest

from ccpipe.config import Bus, Site
from ccpipe.dashboard.access import EVERYTHING
from ccpipe.dashboard.views import MAX_LINES, view_of
from ccpipe.formats.lineprotocol import decode
from ccpipe.live.feed import LiveFeed
from ccpipe.message import event
from ccpipe.node.sampling.collector import Metric
from ccpipe.telemetry import Telemetry
from tests.dashboard.test_views import read

QUERY = '{"view": "job", "cluster": "c", "job": 5, "start": 100}'


@pytest.fixture
def feed() -> LiveFeed:
    feed = LiveFeed(Site(bus=Bus(servers=["nats://127.0.0.1:1"])), Telemetry(), name="dashboard")
    feed.state.nodes.known = {"ipc": Metric("ipc", "", float, "")}
    return feed


def say(feed: LiveFeed, at: float, *lines: str) -> None:
    text = "".join(f"{line} 1740027951\n" for line in lines)
    feed.state.nodes.feed(decode(text.replace("@", "cluster=c,hostname=").encode()), at)
    feed.state.nodes.tick(at)


def report(feed: LiveFeed, function: str, **more: Any) -> None:
    payload = {"jobId": 5, "cluster": "c", "startTime": 100, **more}
    message = event("job", function, json.dumps(payload), time=1, tags={})
    feed.state.jobs.feed(message, 1.0)


def test_job_page_has_rows_of_own_time_only(feed: LiveFeed) -> None:
    """Neither from before its start nor from after its end."""
    for at in range(94, 130, 2):
        say(feed, at, f"cpu_load,@n1,type=node value={at}")
    report(feed, "start_job", resources=[{"hostname": "n1"}])
    header, numbers = read(view_of(feed, QUERY, EVERYTHING).frame())
    assert header["times"] == list(range(102, 130, 2))
    report(feed, "stop_job", stopTime=111, jobState="completed")
    header, numbers = read(view_of(feed, QUERY, EVERYTHING).frame())
    assert header["times"] == [102, 104, 106, 108, 110]
    assert numbers == header["times"]


def test_job_page_adds_up_own_hwthreads_and_accelerators(feed: LiveFeed) -> None:
    """Other values of a shared node are the whole node's, but means need no label."""
    lines = [f"flops_any,@n1,type=hwthread,type-id={n} value={10**n}" for n in range(4)]
    lines += [f"ipc,@n1,type=hwthread,type-id={n} value={n}" for n in range(4)]
    lines += [f"nv_util,@n1,type=accelerator,type-id=g{n} value={n}" for n in range(2)]
    say(feed, 102, *lines, "mem_bw,@n1,type=node value=7")
    node = {"hostname": "n1", "hwthreads": [1, 3], "accelerators": ["g1"]}
    report(feed, "start_job", resources=[node], shared="multi_user")
    header, numbers = read(view_of(feed, QUERY, EVERYTHING).frame())
    found = dict(zip(header["metrics"], numbers, strict=True))
    assert found == {"flops_any": 1010, "mem_bw": 7, "ipc": 2, "nv_util": 1}
    assert header["whole_node"] == ["mem_bw"]


def test_job_page_has_whole_nodes_of_exclusive_job(feed: LiveFeed) -> None:
    """Whatever hardware threads its scheduler lists."""
    lines = [f"flops_any,@n1,type=hwthread,type-id={n} value={10**n}" for n in range(4)]
    say(feed, 102, *lines)
    report(feed, "start_job", resources=[{"hostname": "n1", "hwthreads": [1]}], shared="none")
    header, numbers = read(view_of(feed, QUERY, EVERYTHING).frame())
    assert numbers == [1111]
    assert header["whole_node"] == []


def test_job_page_combines_own_parts_of_many_nodes(feed: LiveFeed) -> None:
    """A thread without a value is left out of a sum; a node without any is NaN."""
    count = MAX_LINES + 1
    names = [f"n{number}" for number in range(count)]
    lines = [
        f"flops_any,@{name},type=hwthread,type-id={n} value={place + 1}"
        for place, name in enumerate(names)
        for n in range(3)
    ]
    say(feed, 102, *lines)
    nodes = [{"hostname": name, "hwthreads": [0, 2, 9]} for name in names]
    report(feed, "start_job", resources=nodes, shared="multi_user")
    header, numbers = read(view_of(feed, QUERY, EVERYTHING).frame())
    assert header["nodes"] is None
    assert numbers == [2, count + 1, 2 * count]
    feed.state.nodes.values[:] = type(feed.state.nodes.values)("d", [math.nan]) * len(
        feed.state.nodes.values
    )
    feed.state.nodes.tick(104)
    _, numbers = read(view_of(feed, QUERY, EVERYTHING).frame())
    assert all(map(math.isnan, numbers[3:]))
