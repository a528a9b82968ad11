"""States of nodes, with what the jobs that run on them have, as events ``nodestate``."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ccpipe.formats.clustercockpit import NodeState, encode_node_states
from ccpipe.jobs import Job, JobNode


class NodeUse(msgspec.Struct):
    """What the running jobs have of one node; None where that is not known of each of them."""

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
    uses = uses_of(jobs)
    rows = [_node_state(name, known, uses.get(name)) for name, known in states.items()]
    yield from encode_node_states(cluster, rows)


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
