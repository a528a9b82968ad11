"""The state of clusters as their messages tell it."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli.top import model as module
from ccpipe.cli.top.model import Model
from ccpipe.formats.lineprotocol import decode

NODE = b"""\
load_one,cluster=fritz,hostname=e1,type=node value=3.5 1740027951
num_cpus,cluster=fritz,hostname=e1,type=node value=4 1740027951
cpu_used,cluster=fritz,hostname=e1,type=node value=100 1740027951
cpu_used,cluster=fritz,hostname=e1,type=hwthread,type-id=0 value=99 1740027951
mem_used,cluster=fritz,hostname=e1,type=node value=1000 1740027951
mem_total,cluster=fritz,hostname=e1,type=node,unit=GBytes value=2 1740027951
nv_util,cluster=fritz,hostname=e1,type=accelerator,type-id=0 value=80 1740027951
nv_fb_mem_used,cluster=fritz,hostname=e1,type=accelerator,type-id=0 value=5 1740027951
cpu_idle,cluster=fritz,hostname=e2,type=node value=150 1740027951
num_cpus,cluster=fritz,hostname=e2,type=node value=2 1740027951
"""


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def job_event(function: str, **given: object) -> bytes:
    """Make the start or stop of a job."""
    text = json.dumps(json.dumps({"jobId": 7, **given}))
    return f"job,cluster=fritz,function={function},hostname=e1 event={text} 1740027951\n".encode()


def feed(model: Model, payload: bytes) -> None:
    """Take a payload."""
    model.add_lines(decode(payload), len(payload))


def test_metrics_set_what_a_node_and_its_gpus_show() -> None:
    """In bytes, percent and watts, whatever the sender's unit; hardware threads do not."""
    model = Model()
    feed(model, NODE)
    node = model.nodes["fritz", "e1"]
    assert (node.load, node.busy, node.memory, node.memory_total) == (3.5, 25.0, 1e6, 2e9)
    assert model.nodes["fritz", "e2"].busy == 25.0
    gpu = model.gpus["fritz", "e1", "0"]
    assert (gpu.utilization, gpu.memory, node.gpus) == (80, 5e6, 1)
    assert math.isnan(gpu.power)


def test_a_job_lives_from_its_start_to_a_while_after_its_stop() -> None:
    """Its nodes know it meanwhile."""
    clock = Clock()
    model = Model(clock)
    feed(model, NODE)
    start = {"user": "ann", "startTime": 900, "resources": [{"hostname": "e1"}, {"hostname": "e9"}]}
    feed(model, job_event("start_job", **start))
    job = model.jobs["fritz", 7]
    assert (job.user, job.nodes, job.state) == ("ann", ("e1", "e9"), "running")
    assert [node.name for node in model.nodes_of(job)] == ["e1", "e9"]
    assert model.nodes["fritz", "e1"].jobs == {7}
    feed(model, job_event("stop_job", jobState="failed"))
    assert (job.state, model.nodes["fritz", "e1"].jobs) == ("failed", set())
    clock.now += module.ENDED_SECONDS + 1
    model.tick()
    assert not model.jobs


def test_rates_are_of_the_last_seconds() -> None:
    """Of 10 to 20 s: where publishers send every 5 s they neither jump nor reach back further."""
    clock = Clock()
    model = Model(clock)
    for _ in range(20):
        feed(model, NODE)
        for _ in range(5):
            clock.now += 1
            model.tick()
    assert model.clusters["fritz"].rate == pytest.approx(10 / 5, rel=0.35)
    assert model.nodes["fritz", "e1"].rate == pytest.approx(8 / 5, rel=0.35)
    for _ in range(25):
        clock.now += 1
        model.tick()
    assert model.clusters["fritz"].rate == 0


def test_interfaces_and_sockets_are_added_up() -> None:
    """Where a node sends no value of its own."""
    model = Model(Clock())
    feed(
        model,
        b"net_bytes_in_bw,cluster=c,hostname=n,type=node,stype=network,stype-id=eth0 value=1 1\n"
        b"net_bytes_in_bw,cluster=c,hostname=n,type=node,stype=network,stype-id=ib0 value=4 1\n"
        b"cpu_power,cluster=c,hostname=n,type=socket,type-id=0 value=100 1\n"
        b"cpu_power,cluster=c,hostname=n,type=socket,type-id=1 value=110 1\n",
    )
    node = model.nodes["c", "n"]
    assert (node.whole("network"), node.whole("power")) == (5, 210)
    feed(model, b"cpu_power,cluster=c,hostname=n,type=node value=300 1\n")
    assert node.whole("power") == 300


def test_a_node_is_silent_after_a_while() -> None:
    """It has failed, or its publisher has."""
    clock = Clock()
    model = Model(clock)
    feed(model, NODE)
    node = model.nodes["fritz", "e1"]
    assert not model.is_silent(node)
    clock.now += module.STALE_SECONDS + 1
    assert model.is_silent(node)


def test_errors_are_dead_letters_and_bad_news_of_the_log() -> None:
    """Counted by cluster; the latest are kept."""
    model = Model()
    feed(model, b'kernel,cluster=fritz,hostname=e1,loglevel=err log="oops" 1740027951\n')
    feed(model, b'kernel,cluster=fritz,hostname=e1,loglevel=info log="fine" 1740027951\n')
    feed(model, b"broken\n")
    model.add_dead_letter("fritz", "no number", "fritz.metrics")
    assert [error[1:] for error in model.errors] == [
        ("e1 kernel", "oops"), ("dead letter from fritz.metrics", "no number"),
    ]  # fmt: skip
    cluster = model.clusters["fritz"]
    assert (cluster.errors, cluster.dead, model.rejected) == (1, 1, 1)
    for _ in range(module.MAX_ERRORS):
        model.add_dead_letter("fritz", "again", "x")
    assert len(model.errors) == module.MAX_ERRORS


def test_the_number_of_nodes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes up names does not fill the memory; those that are known stay correct."""
    monkeypatch.setattr(module, "MAX_NODES", 1)
    model = Model()
    feed(model, NODE)
    assert list(model.nodes) == [("fritz", "e1")]
    assert model.nodes["fritz", "e1"].load == 3.5


@given(st.lists(st.binary(max_size=200) | st.sampled_from(NODE.splitlines()), max_size=8))
def test_no_payload_ends_it(pieces: list[bytes]) -> None:
    """Nor an event that is no job."""
    model = Model()
    feed(model, b"\n".join(pieces))
    feed(model, job_event("start_job", resources="none"))
    model.tick()
