"""A cluster's nodes: numbers of their hardware threads and GPUs, and events of their states.

Slurm numbers the CPUs of a node by socket, core of the socket, and thread of the core, in the order
in which hwloc has them; Linux numbers hardware threads in any way, often the second threads of all
cores after the first ones. ``NodeNumbers`` has both from cc-backend's ``cluster.json``.

Source: ClusterCockpit's page *cluster.json*, *topology*; ``xcpuinfo_hwloc_topo_get`` in Slurm's
``src/slurmd/common/xcpuinfo.c``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from ccpipe.errors import ConfigError, DataError
from ccpipe.formats.clustercockpit import NodeState, encode_node_states
from ccpipe.formats.nodelist import expand
from ccpipe.jobs import Job, JobNode
from ccpipe.message import Message, metric


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
    """Read the nodes of a ``cluster.json``."""
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


class NodeNumbers:
    """Linux's numbers of hardware threads, and the ids of accelerators, by Slurm's numbers."""

    def __init__(
        self, gpu_ids: Mapping[str, Sequence[str]], hwthreads: Mapping[str, Sequence[int]]
    ) -> None:
        """Take both by node, in the order of Slurm's numbers."""
        self._gpu_ids = gpu_ids
        self._hwthreads = hwthreads

    @classmethod
    def read(cls, gpu_ids: Mapping[str, list[str]] | None, cluster_json: str) -> Self | None:
        """Take them from cc-backend's file, if there is one; `gpu_ids`, by node list, override it.

        None without either.
        """
        if not (gpu_ids or cluster_json):
            return None
        topology = read_topology(cluster_json) if cluster_json else {}
        ids = {name: node.accelerators for name, node in topology.items() if node.accelerators}
        try:
            own = {
                name: known for names, known in (gpu_ids or {}).items() for name in expand(names)
            }
        except DataError as error:
            raise ConfigError(f"gpu_ids: {error}") from None
        return cls({**ids, **own}, {name: node.hwthreads for name, node in topology.items()})

    def apply(self, job: Job) -> Job:
        """Return a job that has Slurm's numbers replaced by these; other nodes keep theirs."""
        return msgspec.structs.replace(job, nodes=tuple(map(self._node, job.nodes)))

    def _node(self, node: JobNode) -> JobNode:
        ids, order = self._gpu_ids.get(node.hostname, ()), self._hwthreads.get(node.hostname)
        return msgspec.structs.replace(
            node,
            hwthreads=node.hwthreads if order is None else _physical(node.hwthreads, order),
            accelerators=tuple(
                ids[int(index)] if int(index) < len(ids) else index for index in node.accelerators
            ),
        )


def _physical(cpus: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    """Return Linux's numbers of Slurm's CPUs; none where the node's topology has fewer."""
    return tuple(sorted(order[cpu] for cpu in cpus)) if max(cpus, default=0) < len(order) else ()


class NodeUse(msgspec.Struct):
    """Resources of one node used by its running jobs; None unless known for each of them."""

    jobs: int = 0
    cpus: int | None = 0
    gpus: int | None = 0
    memory: int | None = 0
    """MB."""

    def add(self, node: JobNode) -> None:
        self.jobs += 1
        self.cpus = _sum(self.cpus, node.cpus)
        self.gpus = _sum(self.gpus, node.gpus)
        self.memory = _sum(self.memory, node.memory)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def uses_of(jobs: Iterable[Job]) -> dict[str, NodeUse]:
    uses: dict[str, NodeUse] = {}
    for job in jobs:
        for node in job.nodes:
            uses.setdefault(node.hostname, NodeUse()).add(node)
    return uses


def node_state_payloads(
    cluster: str, states: Mapping[str, list[str]], jobs: Iterable[Job]
) -> Iterator[str]:
    """Yield the payloads of events ``nodestate``; `jobs` are those that are known to run."""
    yield from encode_node_states(cluster, _rows(states, jobs))


def node_metrics(
    cluster: str, states: Mapping[str, list[str]], jobs: Iterable[Job], time: int
) -> Iterator[Message]:
    """Yield the numbers of the events as metrics of the nodes; memory in kB of 1024 bytes."""
    for row in _rows(states, jobs):
        tags = {"cluster": cluster, "hostname": row.hostname, "type": "node"}
        memory = row.memoryAllocated
        numbers = {
            "cpus_allocated": row.cpusAllocated,
            "gpus_allocated": row.gpusAllocated,
            "mem_allocated": None if memory is None else memory * 1024,
            "jobs_running": row.jobsRunning,
        }
        for name, number in numbers.items():
            if number is not None:
                yield metric(name, number, time=time, tags=tags)


def _rows(states: Mapping[str, list[str]], jobs: Iterable[Job]) -> list[NodeState]:
    uses = uses_of(jobs)
    return [_node_state(name, known, uses.get(name)) for name, known in states.items()]


def _node_state(name: str, states: list[str], use: NodeUse | None) -> NodeState:
    """Return the state of a node; without a known job, only an idle one has numbers: 0."""
    if use is None and "idle" not in states:
        return NodeState(name, states)
    use = use or NodeUse()
    return NodeState(
        name,
        states,
        cpusAllocated=use.cpus,
        memoryAllocated=use.memory,
        gpusAllocated=use.gpus,
        jobsRunning=use.jobs,
    )
