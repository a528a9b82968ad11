"""sinfo's text: distinct nodes and partitions, from any columns."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.nodelist import expand
from ccpipe.formats.slurm import cluster
from ccpipe.formats.slurm.cluster import Cluster, Node, read_sinfo
from tests.formats.slurm.captured import captured, names

NODES = (
    {f"c{n}" for n in range(1, 7)} | {"gpu-1"} | {f"big0{a}-{b}" for a in (1, 2, 3) for b in (1, 2)}
)
PARTITIONS = {
    "normal": {f"c{n}" for n in range(1, 7)},
    "accel": {"gpu-1"},
    "bigmem": {name for name in NODES if name.startswith("big")},
    "devel": {"c1", "gpu-1"},
    "drained": {"c3"},
}
COLUMNS = {
    "sinfo/phase1_linux.nodelist_statecomplete.txt": ["nodelist", "statecomplete"],
    "sinfo/phase1_linux.partition_nodes.txt": ["partition", "nodelist"],
}
TABLES = [*names("sinfo/*all_fields.txt"), *names("snapshots/sinfo*"), *COLUMNS]


def found(name: str) -> Cluster:
    reading = read_sinfo(captured(name), columns=COLUMNS.get(name))
    assert reading.rejected == []
    return reading


@pytest.mark.parametrize("name", TABLES)
def test_sinfo_reader_finds_all_nodes_and_partitions_of_captured_tables(name: str) -> None:
    reading = found(name)
    assert sorted(node.name for node in reading.nodes) == sorted(NODES)
    members = {p.name: set(expand(p.node_list or "")) for p in reading.partitions}
    assert members == ({} if "statecomplete" in name else PARTITIONS)


def test_sinfo_reader_splits_states_into_capitalized_flags() -> None:
    by_name = {node.name: node.states for node in found(next(iter(COLUMNS))).nodes}
    assert by_name["c5"] == ("DOWN", "DRAIN", "NOT_RESPONDING")
    assert by_name["big03-2"] == ("DOWN", "NOT_RESPONDING")
    assert by_name["gpu-1"] == ("IDLE",)


def test_sinfo_reader_reads_states_of_snapshot() -> None:
    nodes = found("snapshots/sinfo_N.1795170885.txt").nodes
    states = {node.name: node.states for node in nodes}
    assert states["gpu-1"] == ("MIXED", "PLANNED")
    assert states["c6"] == ("UNKNOWN", "NOT_RESPONDING")


def test_sinfo_reader_merges_groups_of_partition() -> None:
    rows = b"a*|c[1-2]|idle\na*|c3|down\na*|c3|down\nb|x[01]-1|idle\nempty||n/a\n"
    reading = read_sinfo(rows, columns=["partition", "nodelist", "state"])
    assert dict(reading.partitions) == {"a": "c[1-3]", "b": "x[01]-1", "empty": None}


def test_sinfo_reader_keeps_states_of_node_in_several_groups() -> None:
    reading = read_sinfo(b"PARTITION|NODELIST|STATE\na|c1|idle\nb|c1|\n")
    assert reading.nodes == [Node("c1", ("IDLE",))]


def test_sinfo_reader_rejects_nodes_beyond_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "MAX_NODES", 2)
    reading = read_sinfo(b"NODELIST|STATE\na|idle\nb|idle\na|down\nc|idle\n")
    assert reading.nodes == [Node("a", ("DOWN",)), Node("b", ("IDLE",))]
    assert [(bad.line, bad.reason) for bad in reading.rejected] == [(5, "more than 2 nodes")]


@pytest.mark.parametrize("name", ["N_states", "default"])
def test_sinfo_reader_requires_column_of_nodes_or_partitions(name: str) -> None:
    """HOSTNAMES is not NODELIST; sinfo's default table has no delimiter."""
    with pytest.raises(DataError, match="no column NODELIST or PARTITION|no delimiter between"):
        read_sinfo(captured(f"sinfo/phase1_linux.{name}.txt"))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"c[1-|idle", "expected ',' or ']'"),
        (b"c1|no state", "not a node's state: 'no state'"),
        (b"c1", "expected 2 fields, got 1"),
        (b"c[1-999999]|idle", "more than 100000"),
    ],
)
def test_sinfo_reader_rejects_bad_row_only(row: bytes, reason: str) -> None:
    reading = read_sinfo(b"NODELIST|STATE\nc8|idle\n" + row + b"\nc9|idle\n")
    assert [node.name for node in reading.nodes] == ["c8", "c9"]
    (rejected,) = reading.rejected
    assert (rejected.line, rejected.original) == (3, row)
    assert reason in rejected.reason


def test_sinfo_reader_returns_empty_cluster_for_empty_output() -> None:
    assert read_sinfo(b"") == Cluster()


CELLS = st.sampled_from(["", "c1", "c[1-3]", "idle", "down*", "n/a"]) | st.text(max_size=6)
NAMES = ["nodelist", "partition", "state", "statecomplete", "reason"]


@given(st.lists(st.sampled_from(NAMES), max_size=6), st.lists(st.lists(CELLS), max_size=6))
def test_sinfo_reader_reads_or_rejects_any_cells(
    columns: list[str], table: list[list[str]]
) -> None:
    payload = "".join("|".join(cells) + "\n" for cells in table).encode("utf-8", "surrogatepass")
    reading = read_sinfo(payload, columns=["nodelist", *columns])
    assert all(bad.reason for bad in reading.rejected)


@given(st.binary(max_size=150), st.sampled_from([b"", b"NODELIST|STATE\n", b"PARTITION\n"]))
def test_sinfo_reader_raises_only_data_error_for_any_bytes(payload: bytes, header: bytes) -> None:
    with suppress(DataError):
        reading = read_sinfo(header + payload)
        assert len(reading.nodes) <= cluster.MAX_NODES
