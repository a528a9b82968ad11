"""Groups of nodes are put together, each node and each partition once."""

import pytest

from ccpipe.errors import DataError
from ccpipe.formats.slurm import cluster
from ccpipe.formats.slurm.cluster import ClusterBuilder
from ccpipe.formats.slurm.records import Node, Partition


def test_a_node_of_two_partitions() -> None:
    """Each group says what the other does not; nothing known is lost for it."""
    builder = ClusterBuilder()
    builder.add([Node(name="c1", partitions=("a",), cpus=4)], Partition(name="a", node_list="c1"))
    builder.add([Node(name="c1", partitions=("b",), states=("IDLE",))], Partition(name="b"))
    found = builder.build([])
    assert found.nodes == [Node(name="c1", partitions=("a", "b"), cpus=4, states=("IDLE",))]
    assert [partition.name for partition in found.partitions] == ["a", "b"]


def test_a_partition_in_several_groups() -> None:
    """Its list of nodes is that of all of them; one that stands alone is left as it is."""
    builder = ClusterBuilder()
    for node_list, names in (("c[1-2]", ["c1", "c2"]), ("c3", ["c3"]), ("c3", ["c3"])):
        nodes = [Node(name=name) for name in names]
        builder.add(nodes, Partition(name="a", node_list=node_list))
    builder.add([Node(name="x01-1")], Partition(name="b", node_list="x[01]-1"))
    builder.add([], Partition(name="empty"))
    found = {partition.name: partition.node_list for partition in builder.build([]).partitions}
    assert found == {"a": "c[1-3]", "b": "x[01]-1", "empty": None}


def test_nodes_without_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows can name very many."""
    monkeypatch.setattr(cluster, "MAX_NODES", 2)
    builder = ClusterBuilder()
    builder.add([Node(name="a"), Node(name="b"), Node(name="a")])
    with pytest.raises(DataError, match="more than 2 nodes"):
        builder.add([Node(name="c")])
