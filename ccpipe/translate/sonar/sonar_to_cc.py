"""Sonar's envelopes to ClusterCockpit's messages; docs/sonar-metrics.md says what becomes what."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.clustercockpit import Accelerator, NodeState, NodeStates, Topology
from ccpipe.formats.lineprotocol import Lines, SeriesTable
from ccpipe.formats.lineprotocol.builder import LinesBuilder
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.formats.lineprotocol.precision import INT64_MAX, INT64_MIN, NO_TIME
from ccpipe.formats.nodelist import expand
from ccpipe.formats.sonar import (
    ClusterAttributes,
    ClusterData,
    Envelope,
    ErrorObject,
    JobsData,
    SampleAttributes,
    SampleData,
    SysinfoAttributes,
    SysinfoData,
    encode,
)
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.formats.sonar.timestamp import parse as parse_time
from ccpipe.pipeline import Translator
from ccpipe.translate.sonar.sonar_to_cc_jobs import Jobs, Shared
from ccpipe.translate.sonar.sonar_to_cc_sample import Node

MAX_NODES = 50_000
"""Nodes of which the last counters are kept; the one goes first that was silent for longest."""
SPARE_SERIES = 20_000
"""Series beyond twice those in use at which their table begins anew: jobs come and go."""
MAX_STATES = 1000
"""Nodes in one event ``nodestate``, so that it stays below what a broker takes at once."""


class SonarToCc(Translator):
    """Makes lines of envelopes: metrics, events and log lines.

    Counters become what they grew by, so it remembers each node's last sample. Nothing else is
    held back.
    """

    takes = Envelopes
    gives = Messages

    def __init__(
        self,
        *,
        envelopes: bool = True,
        all_jobs: bool = False,
        shared: Shared = "none",
        hostname: str = "",
    ) -> None:
        """Take the options.

        Parameters
        ----------
        envelopes
            Whether each envelope travels along whole, in an event ``sonar``, so that nothing of
            it is lost.
        all_jobs
            Whether jobs that are no batch jobs have metrics too: every process group is one.
        shared
            What cc-backend is told of every job's nodes, since Sonar does not know.
        hostname
            What the tag ``hostname`` says where a message is about the whole cluster; empty for
            the cluster's name.

        """
        self.envelopes = envelopes
        self.all_jobs = all_jobs
        self.hostname = hostname
        self._rejected: list[tuple[Envelope, str]] = []
        self._jobs = Jobs(shared=shared)
        self._table = SeriesTable()
        self._nodes: OrderedDict[tuple[str, str], Node] = OrderedDict()
        self._live = 0  # series of these nodes

    def feed(self, records: Sequence[Envelope]) -> Lines:
        """Return the lines that the envelopes make."""
        if len(self._table) > SPARE_SERIES + 2 * self._live:
            self._table = SeriesTable()
        columns = LinesBuilder(self._table)
        for envelope in records:
            try:
                self._add(envelope, columns)
            except DataError as error:
                self._rejected.append((envelope, str(error)))
        return columns.lines()

    def take_rejected(self) -> list[tuple[Any, str]]:
        """Return what could not be translated since the last call, with reasons."""
        rejected, self._rejected = self._rejected, []
        return rejected

    def flush(self) -> Lines:
        """Return nothing: nothing is held."""
        return Lines()

    def _add(self, envelope: Envelope, columns: LinesBuilder) -> None:
        kind, cluster, node, time = about(envelope)
        hostname = node or self.hostname or cluster
        tags = {"cluster": cluster, "hostname": hostname, "type": "node"}
        columns.begin(time)
        if self.envelopes:
            payload = encode(envelope).rstrip(b"\n").decode()
            _event(columns, "sonar", kind, payload, tags)
        if time != NO_TIME:
            self._add_data(envelope, time, columns, tags)

    def _add_data(
        self, envelope: Envelope, time: int, columns: LinesBuilder, tags: dict[str, str]
    ) -> None:
        match envelope.data:
            case SampleData(attributes=sample):
                self._add_sample(sample, time, columns, tags)
            case SysinfoData(attributes=node):
                _event(columns, "topology", "sysinfo", topology(node), tags)
            case JobsData(attributes=jobs):
                for function, reported in self._jobs.feed(jobs, time):
                    payload = msgspec.json.encode(reported).decode()
                    _event(columns, "job", function, payload, tags)
            case ClusterData(attributes=cluster):
                for payload in node_states(cluster):
                    _event(columns, "nodestate", "nodestate", payload, tags)
            case None:
                _log(columns, "error", envelope.errors, tags)

    def _add_sample(
        self, sample: SampleAttributes, time: int, columns: LinesBuilder, tags: dict[str, str]
    ) -> None:
        key = sample.cluster, sample.node
        node = self._nodes.pop(key, None)
        if node is None:
            node = Node(*key, columns)
            self._live += node.series
        elif not node.fits(columns):
            self._live -= node.series
            node = Node(*key, columns).take(node, columns)
            self._live += node.series
        self._nodes[key] = node
        self._live -= node.series
        node.add(sample, time, columns, batch_only=not self.all_jobs)
        self._live += node.series
        if len(self._nodes) > MAX_NODES:
            _, gone = self._nodes.popitem(last=False)
            self._live -= gone.series
        _log(columns, "warn", sample.errors, tags)


class About(NamedTuple):
    """What an envelope is about: by this messages are known to be made of it."""

    kind: str
    """``sample``, ``sysinfo``, ``job``, ``cluster`` or ``error``."""
    cluster: str
    node: str
    """Empty where it is about the whole cluster."""
    time: int
    """Nanoseconds since the epoch; ``NO_TIME`` where it tells none that can be written."""


def about(envelope: Envelope) -> About:
    """Say what an envelope is about."""
    if envelope.data is None:
        first = envelope.errors[0]
        return About("error", first.cluster, first.node, _moment(first.time))
    attributes = envelope.data.attributes
    node = getattr(attributes, "node", "")
    return About(envelope.data.type, attributes.cluster, node, _moment(attributes.time))


def _moment(text: str) -> int:
    time = parse_time(text)
    return time if time is not None and INT64_MIN < time <= INT64_MAX else NO_TIME


def _event(
    columns: LinesBuilder, cls: str, function: str, payload: str, tags: dict[str, str]
) -> None:
    columns.text(cls, "event", payload, {**tags, "function": function})


def _log(
    columns: LinesBuilder, level: str, errors: Sequence[ErrorObject], tags: dict[str, str]
) -> None:
    """Write errors as log lines at the envelope's time, by which they are known to be of it."""
    for error in errors:
        columns.text("sonar", "log", error.detail, {**tags, "loglevel": level})


def node_states(cluster: ClusterAttributes) -> Iterator[str]:
    """Yield the payloads of events ``nodestate``; a node that stands twice has all its states.

    Raises
    ------
    DataError
        at the end, where some names are no list of nodes.

    """
    states: dict[str, list[str]] = {}
    wrong = []
    for nodes in cluster.nodes:
        for names in nodes.names:
            try:
                expanded = expand(names)
            except DataError as error:
                wrong.append(str(error))
                continue
            for name in expanded:
                known = states.setdefault(name, [])
                known += [state.lower() for state in nodes.states if state.lower() not in known]
    rows = [NodeState(name, known) for name, known in states.items()]
    for start in range(0, len(rows), MAX_STATES):
        part = NodeStates(cluster.cluster, rows[start : start + MAX_STATES])
        yield msgspec.json.encode(part).decode()
    if wrong:
        raise DataError("; ".join(wrong))


def topology(node: SysinfoAttributes) -> str:
    """Return the payload of an event ``topology``."""
    cards = [
        Accelerator(
            id=card.uuid,
            type=card.manufacturer,
            model=card.model,
            index=card.index,
            address=card.address,
            architecture=card.architecture,
            driver=card.driver,
            firmware=card.firmware,
            memory=card.memory,
            powerLimit=card.power_limit,
            maxPowerLimit=card.max_power_limit,
            minPowerLimit=card.min_power_limit,
            maxClock=card.max_ce_clock,
            maxMemoryClock=card.max_memory_clock,
        )
        for card in node.cards
    ]
    reported = Topology(
        cluster=node.cluster,
        hostname=node.node,
        processorType=node.cpu_model,
        socketsPerNode=node.sockets,
        coresPerSocket=node.cores_per_socket,
        threadsPerCore=node.threads_per_core,
        memoryDomains=node.numa_nodes,
        memory=node.memory,
        architecture=node.architecture,
        osName=node.os_name,
        osRelease=node.os_release,
        accelerators=cards,
    )
    return msgspec.json.encode(reported).decode()
