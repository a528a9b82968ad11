"""Nodes and partitions in JSON: 22.05's nodes, 24.11's groups, slurmrestd's partitions."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.slurm.cluster import Cluster
from ccpipe.formats.slurm.json.sinfo import read_json
from ccpipe.formats.slurm.text import scontrol, sinfo
from ccpipe.formats.slurm.timestamp import SECOND
from tests.formats.slurm.agreement import differences
from tests.formats.slurm.captured import UTC, captured, names

NODES = [*names("sinfo/*.json"), "slurmrestd/slurm_v0.0.38_nodes.json"]
MODERN = "modern24.11/sinfo/sinfo.json"
PARTITIONS = "slurmrestd/slurm_v0.0.38_partitions.json"


def found(name: str) -> Cluster:
    """Read a captured document, none of whose objects may be dropped."""
    reading = read_json(captured(name))
    assert reading.rejected == []
    return reading


@pytest.mark.parametrize("name", NODES)
def test_every_captured_node_is_read(name: str) -> None:
    """With all the words of its state."""
    raw = json.loads(captured(name))["nodes"]
    words = {node["name"]: [node["state"].upper(), *node["state_flags"]] for node in raw}
    assert {node.name: list(node.states) for node in found(name).nodes} == words


def test_scontrol_and_json_of_the_same_moment_agree() -> None:
    """All fields of all nodes, but for what scontrol of 22.05 prints only where it knows when."""
    text = scontrol.read_nodes(captured("scontrol/phase1_linux.show_node.txt"), zone=UTC).records
    differ = differences(text, found("sinfo/phase1_linux.json").nodes, lambda node: node.name)
    assert differ.keys() == {"gres_used", "reason_user"}
    assert all(mine is None for rows in differ.values() for _, mine, _ in rows)


def test_sinfos_text_and_json_of_the_same_moment_agree() -> None:
    """In every field that its text names for each node."""
    payload = captured("snapshots/sinfo_N.1795171170.txt")
    text = {node.name: node for node in sinfo.read(payload).nodes}
    for node in found("sinfo/phase1_linux.json").nodes:
        mine = text[node.name]
        assert (mine.memory, mine.alloc_memory, mine.gres, mine.gres_used) == (
            node.memory, node.alloc_memory, node.gres, node.gres_used,
        )  # fmt: skip
        assert sorted(mine.partitions) == sorted(node.partitions)
        assert mine.alloc_cpus == node.alloc_cpus


def test_scontrol_and_slurmrestd_agree_on_partitions() -> None:
    """All fields, but for what slurmrestd does not say."""
    text = scontrol.read_partitions(captured("scontrol/phase1_linux.show_partition.txt")).records
    differ = differences(text, found(PARTITIONS).partitions, lambda partition: partition.name)
    assert differ.keys() == {"oversubscribe"}


def test_groups_of_24_11() -> None:
    """Each group's nodes, and its partition in full."""
    reading = found(MODERN)
    groups = json.loads(captured(MODERN))["sinfo"]
    states = {name: group["node"]["state"] for group in groups for name in group["nodes"]["nodes"]}
    assert {node.name: list(node.states) for node in reading.nodes} == states
    gpu = next(node for node in reading.nodes if node.name == "gpu-1")
    assert set(gpu.partitions) == {"accel", "devel"}
    assert (gpu.gres, gpu.features, gpu.cpu_load) == ("gpu:a100:2", ("rack2", "gpu"), 1.78)
    normal = next(p for p in reading.partitions if p.name == "normal")
    assert (normal.node_list, normal.total_cpus, normal.state) == ("c[1-6]", 24, "UP")
    assert (normal.max_time, normal.default_time, normal.max_nodes) == (math.inf, 1800, math.inf)


def test_what_is_said_of_one_node_is_not_of_its_group() -> None:
    """c2 and c3 stand in one group of several racks, of which it names one."""
    by_name = {node.name: node for node in found(MODERN).nodes}
    assert by_name["c2"].features == ()
    assert by_name["c2"].free_memory is None
    assert (by_name["c2"].cpus, by_name["c2"].memory) == (4, 6000 * 2**20)
    assert by_name["c3"].features != ()


def test_a_node_of_later_versions() -> None:
    """``scontrol show node --json`` of 23.02 and later; there is no captured document of theirs."""
    node = {
        "name": "n1", "state": ["IDLE", "DRAIN"], "partitions": ["a", "b"], "cpu_load": 250,
        "free_mem": {"set": True, "infinite": False, "number": 1000}, "features": ["x", "y"],
        "boot_time": {"set": True, "infinite": False, "number": 1795169921}, "version": "24.05.1",
    }  # fmt: skip
    (read,) = read_json(json.dumps({"nodes": [node]}).encode()).nodes
    assert (read.states, read.partitions, read.cpu_load) == (("IDLE", "DRAIN"), ("a", "b"), 2.5)
    assert (read.free_memory, read.features) == (1000 * 2**20, ("x", "y"))
    assert (read.boot_time, read.version) == (1795169921 * SECOND, "24.05.1")


def test_marks_for_what_is_not_known() -> None:
    """A node that does not respond has neither load nor free memory."""
    by_name = {node.name: node for node in found("sinfo/phase1_linux.json").nodes}
    assert (by_name["big01-1"].cpu_load, by_name["big01-1"].free_memory) == (None, None)


@pytest.mark.parametrize("key", ["nodes", "sinfo", "partitions"])
def test_what_has_no_name_is_rejected(key: str) -> None:
    """And the next one is read."""
    good = {"name": "a", "nodes": {"nodes": ["a"]}, "partition": {"name": "a"}}
    reading = read_json(json.dumps({key: [{}, good]}).encode())
    assert len(reading.rejected) == 1
    assert "without a name" in reading.rejected[0].reason
    assert reading.nodes or reading.partitions


JUNK = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["set", "number", "minimum", "nodes", "name"]), inner, max_size=2
        )
    ),
    max_leaves=5,
)
KEYS = {
    "nodes": sorted(json.loads(captured(NODES[0]))["nodes"][0]),
    "sinfo": sorted(json.loads(captured(MODERN))["sinfo"][0]),
    "partitions": sorted(json.loads(captured(PARTITIONS))["partitions"][0]),
}


@given(st.sampled_from(sorted(KEYS)), st.data())
def test_any_members_are_read_or_rejected(key: str, data: st.DataObject) -> None:
    """Whatever stands in whichever member."""
    good: dict[str, Any] = {"name": "a", "partition": {"name": "a"}}
    members = data.draw(st.dictionaries(st.sampled_from(KEYS[key]), JUNK, max_size=5))
    reading = read_json(json.dumps({key: [{**good, **members}]}).encode())
    assert len(reading.rejected) <= 1
