"""Partitions and nodes of a cluster, gathered from the rows that name them.

sinfo prints groups: the nodes of one partition that are alike in what was asked for. A node of
several partitions stands in several groups, and a partition in as many as its nodes differ.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import structs

from ccpipe.errors import DataError
from ccpipe.formats import nodelist
from ccpipe.formats.slurm.reading import RejectedRecord
from ccpipe.formats.slurm.records import Node, Partition

MAX_NODES = 200_000
"""Nodes of a cluster."""
_NOTHING: tuple[object, ...] = (None, ())


@dataclass(slots=True)
class Cluster:
    """What an output holds of a cluster."""

    nodes: list[Node] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    rejected: list[RejectedRecord] = field(default_factory=list)


class ClusterBuilder:
    """Puts groups of nodes together, each node and each partition once."""

    def __init__(self) -> None:
        """Begin without any."""
        self._nodes: dict[str, Node] = {}
        self._partitions: dict[str, Partition] = {}
        self._members: dict[str, dict[str, None]] = {}
        """Of each partition, the nodes of all its groups."""

    def add(self, nodes: Iterable[Node], partition: Partition | None = None) -> None:
        """Take the nodes of a group, and their partition.

        Raises
        ------
        DataError
            if there are more than ``MAX_NODES``.

        """
        for node in nodes:
            self._add_node(node)
            if partition is not None:
                self._members.setdefault(partition.name, {})[node.name] = None
        if partition is not None:
            self._add_partition(partition)

    def _add_node(self, node: Node) -> None:
        known = self._nodes.get(node.name)
        if known is not None:  # each group may have what the other lacks
            present = {
                name: value for name, value in structs.asdict(node).items() if value not in _NOTHING
            }
            partitions = tuple(dict.fromkeys((*known.partitions, *node.partitions)))
            node = structs.replace(known, **{**present, "partitions": partitions})
        elif len(self._nodes) >= MAX_NODES:
            raise DataError(f"more than {MAX_NODES} nodes")
        self._nodes[node.name] = node

    def _add_partition(self, partition: Partition) -> None:
        known = self._partitions.get(partition.name)
        if known is not None and known.node_list != partition.node_list:
            members = self._members.get(partition.name, {})
            node_list = ",".join(nodelist.compress(members)) or None
            partition = structs.replace(partition, node_list=node_list)
        self._partitions[partition.name] = partition

    def build(self, rejected: list[RejectedRecord]) -> Cluster:
        """Return what was taken, in its order."""
        return Cluster(list(self._nodes.values()), list(self._partitions.values()), rejected)
