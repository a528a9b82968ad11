"""The nodes' hardware threads and accelerators, from cc-backend's ``cluster.json``.

Slurm numbers the CPUs of a node by socket, core of the socket, and thread of the core, in the order
in which hwloc has them; Linux numbers hardware threads in any way, often the second threads of all
cores after the first ones.

Source: ClusterCockpit's page *cluster.json*, *topology*; ``xcpuinfo_hwloc_topo_get`` in Slurm's
``src/slurmd/common/xcpuinfo.c``.
"""

from pathlib import Path

import msgspec

from ccpipe.errors import ConfigError, DataError
from ccpipe.formats.nodelist import expand


class _Accelerator(msgspec.Struct):
    id: str = ""


class _Topology(msgspec.Struct):
    socket: list[list[int]] = []
    core: list[list[int]] = []
    accelerators: list[_Accelerator] = []


class _SubCluster(msgspec.Struct):
    nodes: str = ""
    topology: _Topology = msgspec.field(default_factory=_Topology)


class _Cluster(msgspec.Struct):
    sub_clusters: list[_SubCluster] = msgspec.field(name="subClusters", default_factory=list)


class NodeTopology(msgspec.Struct, frozen=True):
    """One node."""

    hwthreads: tuple[int, ...]
    """Linux's number of each hardware thread, in Slurm's order."""
    accelerators: tuple[str, ...]
    """Ids, in the order of Slurm's indices."""


def read_topology(path: str) -> dict[str, NodeTopology]:
    """Read the nodes of a ``cluster.json``.

    Raises
    ------
    ConfigError
        if the file cannot be read, or is something else.

    """
    try:
        cluster = msgspec.json.decode(Path(path).read_bytes(), type=_Cluster)
        return {
            name: _node(part.topology)
            for part in cluster.sub_clusters
            for name in expand(part.nodes)
        }
    except (OSError, msgspec.MsgspecError, DataError) as error:
        raise ConfigError(f"cluster_json: {path}: {error}") from None


def _node(topology: _Topology) -> NodeTopology:
    cores = sorted(sorted(core) for core in topology.core)
    order = [
        thread
        for socket in sorted(sorted(socket) for socket in topology.socket)
        for core in cores
        if core and core[0] in socket
        for thread in core
    ]
    return NodeTopology(tuple(order), tuple(each.id for each in topology.accelerators))
