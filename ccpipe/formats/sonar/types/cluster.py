"""How a cluster's nodes are grouped, and the states they are in.

Source: Sonar JSON format output specification, the types of the same names.
"""

from ccpipe.formats.sonar.types.primitives import (
    Hostname,
    NodeRange,
    NonemptyString,
    Record,
    Timestamp,
)


class ClusterPartition(Record, frozen=True):
    """A Partition has a unique name and some nodes.

    Nodes may be in multiple partitions.
    """

    name: NonemptyString = ""
    """Partition name."""
    nodes: tuple[NodeRange, ...] = ()
    """Nodes in the partition."""


class ClusterNodes(Record, frozen=True):
    """Managed nodes and the states they are in.

    A managed node is always on some state. A node may be multiple states, in cluster-dependent
    ways (some of them really are "flags" on more general states); we expose as many as possible.

    NOTE: Node state depends on the cluster type. For Slurm, see sinfo(1), it's a long list.
    """

    names: tuple[NodeRange, ...] = ()
    """Constraint: The array of names may not be empty."""
    states: tuple[str, ...] = ()
    """The state(s) of the nodes in the range. This is the output of sinfo as for the StateComplete
    specifier, split into individual states, and the state names are always folded to upper case.
    """


class ClusterAttributes(Record, frozen=True):
    """Cluster description.

    NOTE: All clusters are assumed to have some unmanaged jobs.
    """

    time: Timestamp = ""
    """Time the current data were obtained."""
    cluster: Hostname = ""
    """The canonical cluster name."""
    slurm: bool = False
    """The `slurm` attribute is true if at least some nodes are under Slurm management."""
    partitions: tuple[ClusterPartition, ...] = ()
    """Descriptions of the partitions on the cluster."""
    nodes: tuple[ClusterNodes, ...] = ()
    """Descriptions of the managed nodes on the cluster."""
