"""sinfo's text: nodes, their states and partitions, from whatever columns a site asks for."""

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.nodelist import expand
from ccpipe.formats.slurm import cluster
from ccpipe.formats.slurm.cluster import Cluster
from ccpipe.formats.slurm.text.sinfo import read
from ccpipe.formats.slurm.timestamp import SECOND
from tests.formats.slurm.captured import UTC, captured, names

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
    "sinfo/phase1_linux.nodelist_statecomplete.txt": ["NODELIST", "STATECOMPLETE"],
    "sinfo/phase1_linux.partition_nodes.txt": ["PARTITION", "NODELIST"],
}
TABLES = [
    name
    for name in (
        *names("sinfo/phase1*.txt"),
        *names("sinfo/phase3*all*.txt"),
        *names("snapshots/sinfo*"),
    )
    if not name.endswith(("N_states.txt", "O_fields.txt", "R_l.txt"))
]


def found(name: str) -> Cluster:
    """Read a captured table, none of whose rows may be dropped."""
    reading = read(captured(name), columns=COLUMNS.get(name), zone=UTC)
    assert reading.rejected == []
    return reading


@pytest.mark.parametrize("name", TABLES)
def test_every_captured_table_has_all_nodes_and_partitions(name: str) -> None:
    """Whether a row is a node, a node in a partition, or a group of nodes."""
    reading = found(name)
    assert sorted(node.name for node in reading.nodes) == sorted(NODES)
    if "statecomplete" in name:
        assert reading.partitions == []
        return
    members = {p.name: set(expand(p.node_list or "")) for p in reading.partitions}
    assert members == PARTITIONS
    for node in reading.nodes:
        assert set(node.partitions) == {
            name for name, them in PARTITIONS.items() if node.name in them
        }


def test_states_are_split_and_in_capitals() -> None:
    """As the specification of Sonar's ``cluster`` wants them."""
    by_name = {node.name: node.states for node in found(next(iter(COLUMNS))).nodes}
    assert by_name["c5"] == ("DOWN", "DRAIN", "NOT_RESPONDING")
    assert by_name["big03-2"] == ("DOWN", "NOT_RESPONDING")
    assert by_name["gpu-1"] == ("IDLE",)


def test_states_over_time() -> None:
    """What was planned, mixed and unknown in one snapshot."""
    states = {node.name: node.states for node in found("snapshots/sinfo_N.1795170885.txt").nodes}
    assert states["gpu-1"] == ("MIXED", "PLANNED")
    assert states["c6"] == ("UNKNOWN", "NOT_RESPONDING")


def test_which_partition_is_the_default() -> None:
    """``%P`` marks it; ``%R`` marks none, and then nobody knows."""
    marked = {p.name: p.is_default for p in found("sinfo/phase1_linux.default.txt").partitions}
    assert marked == {name: name == "normal" for name in PARTITIONS}
    unmarked = found("sinfo/phase1_linux.partition_nodes.txt").partitions
    assert {partition.is_default for partition in unmarked} == {None}


def test_all_fields() -> None:
    """Cells padded with blanks; the reason holds a comma."""
    reading = found("sinfo/phase1_linux.all_fields.txt")
    normal = next(p for p in reading.partitions if p.name == "normal")
    assert (normal.state, normal.max_time, normal.default_time) == ("UP", math.inf, 1800)
    assert next(p for p in reading.partitions if p.name == "drained").state == "DRAIN"
    assert next(p for p in reading.partitions if p.name == "bigmem").max_time == 7 * 86400
    by_name = {node.name: node for node in reading.nodes}
    drained, gpu = by_name["c5"], by_name["gpu-1"]
    assert (drained.reason, drained.reason_user) == ("maint: fan 2, see INC-17", "root")
    assert drained.reason_time == 1795171030 * SECOND
    assert drained.states == ("DRAINED", "NOT_RESPONDING")
    assert (gpu.gres, gpu.features, gpu.version) == ("gpu:a100:2", ("rack2", "gpu"), "22.05.8")
    assert (gpu.cpus, gpu.memory, gpu.cpu_load) == (4, 6000 * 2**20, 3.94)
    assert (gpu.sockets, gpu.cores_per_socket, gpu.threads_per_core) == (1, 4, 1)


def test_what_is_of_a_group_is_not_of_each_node() -> None:
    """Sums and spans are left out; what sinfo groups by is kept."""
    payload = b"NODELIST|CPUS|CPUS(A/I/O/T)|MEMORY|FREE_MEM|CPU_LOAD\n"
    payload += b"c[1-2]|4|2/6/0/8|6000+|21498-21631|3.83-3.95\nc3|4|1/3/0/4|6000|21498|3.95\n"
    first, _, third = read(payload).nodes
    assert (first.cpus, first.alloc_cpus, first.memory, first.cpu_load) == (4, None, None, None)
    assert (third.alloc_cpus, third.free_memory, third.cpu_load) == (1, 21498 * 2**20, 3.95)


def test_reasons_of_nodes_that_are_down() -> None:
    """``sinfo -R -l``, where the first column holds blanks and is cut off."""
    by_name = {node.name: node for node in found("sinfo/phase1_linux.R_l.txt").nodes}
    assert set(by_name) == {"c4", "c5", "c6"} | PARTITIONS["bigmem"]
    assert by_name["c5"].reason == "maint: fan 2, see IN"
    assert by_name["c4"].reason_user == "slurm"


def test_delimiters_in_a_reason() -> None:
    """They are the reason's."""
    payload = b"NODELIST|REASON|STATE\nc1|disk | full|down*\nc2|none|idle\n"
    one, two = read(payload).nodes
    assert (one.reason, one.states) == ("disk | full", ("DOWN", "NOT_RESPONDING"))
    assert two.reason is None


def test_tables_that_do_not_name_nodes() -> None:
    """HOSTNAMES is what a node calls itself: without NODELIST only partitions are read."""
    reading = found("sinfo/phase1_linux.O_fields.txt")
    assert reading.nodes == []
    assert {partition.name for partition in reading.partitions} == set(PARTITIONS)
    with pytest.raises(DataError, match="no column NODELIST or PARTITION"):
        read(captured("sinfo/phase1_linux.N_states.txt"))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"c[1-|idle|4", "expected ',' or ']'"),
        (b"c1|no state|4", "not a node's state: 'no state'"),
        (b"c1|idle|four", "cpus: not an amount: 'four'"),
        (b"c1", "1 fields where the header has 3"),
        (b"c[1-999999]|idle|4", "more than 100000"),
    ],
)
def test_a_bad_row_costs_itself_only(row: bytes, reason: str) -> None:
    """It is named with its line."""
    reading = read(b"NODELIST|STATE|CPUS\nc8|idle|4\n" + row + b"\nc9|idle|4\n")
    assert [node.name for node in reading.nodes] == ["c8", "c9"]
    (rejected,) = reading.rejected
    assert rejected.line == 3
    assert reason in rejected.reason


def test_an_aligned_row_that_is_cut_off() -> None:
    """Of a partition without nodes only the list may be missing."""
    payload = b"PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\nempty up infinite 0 n/a \nx up\n"
    reading = read(payload)
    assert [(p.name, p.node_list, p.max_time) for p in reading.partitions] == [
        ("empty", None, math.inf)
    ]
    assert [bad.line for bad in reading.rejected] == [3]


def test_an_empty_output() -> None:
    """It holds nothing."""
    assert read(b"") == Cluster()


CELLS = st.sampled_from(["", "c1", "c[1-3]", "idle", "down*", "4+", "n/a", "1:00:00"]) | st.text(
    max_size=6
)
NAMES = ["NODELIST", "PARTITION", "STATE", "CPUS", "REASON", "TIMELIMIT", "TIMESTAMP", "S:C:T"]


@given(st.lists(st.sampled_from(NAMES), max_size=6), st.lists(st.lists(CELLS), max_size=6))
def test_any_cells_are_a_cluster_or_rejected(columns: list[str], table: list[list[str]]) -> None:
    """Whatever stands in whatever columns, each as often as it likes."""
    payload = "".join("|".join(cells) + "\n" for cells in table).encode("utf-8", "surrogatepass")
    reading = read(payload, columns=["NODELIST", *columns], zone=UTC)
    assert all(bad.reason for bad in reading.rejected)


@given(
    st.binary(max_size=150),
    st.sampled_from([b"", b"NODELIST|REASON\n", b"NODELIST NODES STATE\n", b"REASON NODELIST\n"]),
)
def test_any_bytes_are_a_cluster_or_a_named_error(payload: bytes, header: bytes) -> None:
    """No bytes end in another error."""
    with suppress(DataError):
        reading = read(header + payload, zone=UTC)
        assert len(reading.nodes) <= cluster.MAX_NODES
