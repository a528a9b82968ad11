"""Sonar's envelopes to ClusterCockpit's messages; the mapping is in docs/sonar/metrics.md."""

import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ccpipe.config import Duration
from ccpipe.errors import DataError
from ccpipe.formats import sonar
from ccpipe.formats.lineprotocol import Lines, RejectedLine, SeriesTable
from ccpipe.formats.lineprotocol.builder import LinesBuilder
from ccpipe.formats.lineprotocol.precision import INT64_MAX, INT64_MIN, NO_TIME
from ccpipe.formats.nodelist import expand
from ccpipe.formats.slurm.records import Allocation
from ccpipe.formats.sonar import SlurmJob
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.formats.sonar.types.timestamp import parse as parse_time
from ccpipe.jobs import Job, Lifecycle, Outbox
from ccpipe.jobs import message as job_message
from ccpipe.message import Message
from ccpipe.pipeline import HoldingTranslator, Scope
from ccpipe.pipeline.state import StateStore
from ccpipe.translate.cluster_nodes import NodeNumbers, node_state_payloads
from ccpipe.translate.slurm.jobs import MIB, metadata_of, neutral_state, resources, shared_by
from ccpipe.translate.sonar.sonar_metrics import MAX_FUTURE
from ccpipe.translate.sonar.sonar_to_cc_sample import NodeCounters, NodeSamples
from ccpipe.translate.sonar.topology import topology_payload

MAX_NODES = 50_000
"""Nodes whose last counters are remembered; the one that was silent longest is forgotten first."""
SPARE_SERIES = 20_000
"""Series beyond twice those in use at which their table is rebuilt, since jobs end."""
SECOND = 10**9

Shared = Literal["none", "single_user", "multi_user"]
NodeKey = tuple[str, str]
"""Cluster and node."""
_PACKER = msgspec.msgpack.Encoder(enc_hook=array.tobytes)
_UNPACKER = msgspec.msgpack.Decoder(NodeCounters, dec_hook=lambda _, packed: array("Q", packed))


class SonarToCc(HoldingTranslator[Envelopes, Lines]):
    """Turns envelopes into lines: metrics, events and log lines.

    Counters become their increase, so it remembers each node's last sample. Of jobs it sends each
    start and each stop once. With a `state_file`, both go on after a restart or SIGKILL.
    """

    takes = Envelopes
    gives = Lines

    def __init__(
        self,
        *,
        envelopes: bool = True,
        jobs: bool = True,
        all_jobs: bool = False,
        shared: Shared = "none",
        gpu_ids: dict[str, list[str]] | None = None,
        cluster_json: str = "",
        hostname: str = "",
        stop_delay: Duration = Duration(2),
        max_future: Duration = MAX_FUTURE,
        state_file: str = "",
    ) -> None:
        """Take the options.

        Parameters
        ----------
        envelopes
            Whether each envelope is sent as a whole too, in an event ``sonar``, so that nothing
            of it is lost.
        jobs
            Whether records of jobs become starts and stops. These need the records of all nodes;
            without them several processes may share the samples by node.
        all_jobs
            Whether jobs other than batch jobs, such as process groups, have metrics too.
        shared
            Whether a job's nodes are shared if its record does not state it, as Sonar's do not.
        gpu_ids
            Ids of a node's accelerators, in the order of Slurm's indices, by list of nodes, such
            as ``"gpu-[1-8]"``. For any other, the id is Slurm's index.
        cluster_json
            cc-backend's file of the cluster. Jobs then have the hardware threads that Linux
            numbers, and the ids of its accelerators, of the nodes in it; Slurm's own numbers of
            others.
        hostname
            The tag ``hostname`` of messages about the whole cluster; empty for its name.
        stop_delay
            Time between a start and a stop that are known at different times; see ``Lifecycle``.
        max_future
            How far ahead of this machine's clock a sample may be: one beyond has no gains, and
            later ones grow by the samples before it.
        state_file
            A file, on a local disk, that keeps the nodes' counters, and which starts and stops
            were sent. Without it, after a restart the first sample of each node has no gains, and
            starts are sent again.

        """
        self.envelopes = envelopes
        self.jobs = jobs
        self.scope = Scope.CLUSTER if jobs else Scope.NODE
        self.all_jobs = all_jobs
        self.hostname = hostname
        self._rejected: list[RejectedLine] = []  # envelopes of this feed
        self.shared: Shared = shared
        self._numbers = NodeNumbers.read(gpu_ids, cluster_json)
        self._max_future = round(max_future * SECOND)
        self.clock: Callable[[], int] = time.time_ns
        self._state = StateStore(state_file)
        self._jobs = Lifecycle(self._state, delay=round(stop_delay * SECOND))
        self._outbox = Outbox(self._state)
        self._stored = self._state.table(
            "node",
            tuple[str, str],
            NodeCounters,
            maximum=MAX_NODES,
            encode=_PACKER.encode,
            decode=_UNPACKER.decode,
        )
        self._unstored: deque[tuple[int, NodeKey, NodeCounters]] = deque()
        """Counters by the feed that delivered them, until that is committed."""
        self._table = SeriesTable()
        self._nodes: OrderedDict[NodeKey, NodeSamples] = OrderedDict()
        self._live = 0  # series of these nodes

    def oldest_held(self) -> int | None:
        """Return the oldest feed of which a stop is held back; see ``HoldingTranslator``."""
        return self._outbox.oldest_held

    def commit(self, feed: int) -> None:
        """Forget what was returned up to a feed: it is safe downstream; see ``HoldingTranslator``.

        Only now counters are stored: a sample that is delivered again has its gains again.
        """
        while self._unstored and self._unstored[0][0] <= feed:
            _, key, counters = self._unstored.popleft()
            self._stored.put(key, counters)
        self._outbox.commit(feed)

    def feed(self, records: Envelopes) -> Lines:
        self._state.open()
        if len(self._table) > SPARE_SERIES + 2 * self._live:
            self._table = SeriesTable()
        columns = LinesBuilder(self._table)
        for envelope in records:
            try:
                self._add(envelope, columns)
            except DataError as error:
                self._reject(envelope, str(error))
        _add_messages(columns, self._outbox.put(self._job_events()))
        lines = columns.lines()
        lines.rejected, self._rejected = self._rejected, []
        return lines

    def _reject(self, envelope: sonar.Envelope, reason: str) -> None:
        self._rejected.append(RejectedLine(0, 0, 0, reason, Envelopes([envelope]).original(0)))

    def flush(self) -> Lines:
        columns = LinesBuilder(self._table)
        _add_messages(columns, self._outbox.flush())
        return columns.lines()

    def _job_events(self) -> Iterator[tuple[Message, int]]:
        """Yield the starts and stops of this feed, and the time before which each is held back.

        They have the envelope's time and the cluster's host name, by which ``cc_to_sonar``
        recognises them.
        """
        for event in self._jobs.take():
            hostname = self.hostname or event.job.cluster
            message = job_message(event.function, event.job, time=event.time, hostname=hostname)
            yield message, event.not_before

    def _add(self, envelope: sonar.Envelope, columns: LinesBuilder) -> None:
        kind, cluster, node, time = envelope_id(envelope)
        hostname = node or self.hostname or cluster
        tags = {"cluster": cluster, "hostname": hostname, "type": "node"}
        columns.begin(time)
        if self.envelopes:
            payload = sonar.encode(envelope).rstrip(b"\n").decode()
            _event(columns, "sonar", kind, payload, tags)
        if time == NO_TIME:
            raise DataError(_time_error(envelope))
        self._add_data(envelope, time, columns, tags)

    def _add_data(
        self, envelope: sonar.Envelope, time: int, columns: LinesBuilder, tags: dict[str, str]
    ) -> None:
        match envelope.data:
            case sonar.SampleData(attributes=sample):
                self._add_sample(sample, time, columns, tags)
            case sonar.SysinfoData(attributes=node):
                _event(columns, "topology", "sysinfo", topology_payload(node), tags)
            case sonar.JobsData(attributes=jobs) if self.jobs:
                self._add_jobs(envelope, jobs, time)
            case sonar.ClusterData(attributes=cluster):
                states, wrong = _node_states(cluster)
                running = self._jobs.running(cluster.cluster)
                for payload in node_state_payloads(cluster.cluster, states, running):
                    _event(columns, "nodestate", "nodestate", payload, tags)
                if wrong:
                    raise DataError("; ".join(wrong))
            case None:
                _log(columns, "error", envelope.errors, tags)

    def _add_jobs(self, envelope: sonar.Envelope, jobs: sonar.JobsAttributes, time: int) -> None:
        """Add the records; those that cannot be used are rejected in an envelope of their own."""
        wrong: dict[sonar.SlurmJob, str] = {}
        for record in jobs.slurm_jobs:
            try:
                job = job_of(jobs.cluster, record, self.shared)
                if job is not None:
                    job = self._numbers.apply(job) if self._numbers else job
                    self._jobs.add(job, time)
                    self._jobs.check_reported(job)
            except DataError as error:
                wrong[record] = f"job {record.job_id}: {error}"
        if wrong:
            rest = sonar.JobsData(replace(jobs, slurm_jobs=tuple(wrong)))
            self._reject(replace(envelope, data=rest), "; ".join(wrong.values()))

    def _add_sample(
        self, sample: sonar.SampleAttributes, time: int, columns: LinesBuilder, tags: dict[str, str]
    ) -> None:
        key = sample.cluster, sample.node
        node = self._nodes.pop(key, None)
        if node is not None:
            self._live -= node.series
        before = node.counters if node else self._stored.get(key) or NodeCounters()
        if node is None or not node.fits(columns):
            node = NodeSamples(*key, columns, before)
        self._nodes[key] = node
        newest = self.clock() + self._max_future
        try:
            node.add(sample, time, columns, newest=newest, batch_only=not self.all_jobs)
        finally:
            self._live += node.series
        if self._state.is_persistent and node.counters is not before:
            self._unstored.append((self._outbox.feed + 1, key, node.counters))
        if len(self._nodes) > MAX_NODES:
            _, gone = self._nodes.popitem(last=False)
            self._live -= gone.series
        _log(columns, "warn", sample.errors, tags)


class EnvelopeId(NamedTuple):
    """Identity of an envelope, by which the messages made of it are recognised."""

    kind: str
    """``sample``, ``sysinfo``, ``job``, ``cluster`` or ``error``."""
    cluster: str
    node: str
    """Empty where it is about the whole cluster."""
    time: int
    """Nanoseconds since the epoch; ``NO_TIME`` where it has none that can be written."""


def envelope_id(envelope: sonar.Envelope) -> EnvelopeId:
    if envelope.data is None:
        first = envelope.errors[0]
        return EnvelopeId("error", first.cluster, first.node, _time(first.time))
    attributes = envelope.data.attributes
    node = getattr(attributes, "node", "")
    return EnvelopeId(envelope.data.type, attributes.cluster, node, _time(attributes.time))


def _time(text: str) -> int:
    time = parse_time(text)
    return time if time is not None and INT64_MIN < time <= INT64_MAX else NO_TIME


def _time_error(envelope: sonar.Envelope) -> str:
    text = (envelope.errors[0] if envelope.data is None else envelope.data.attributes).time
    if not text:
        return "the time is missing"
    return f"the time {text} is outside of 1678 to 2262, the range of line protocol"


def _event(
    columns: LinesBuilder, cls: str, function: str, payload: str, tags: dict[str, str]
) -> None:
    columns.text(cls, "event", payload, {**tags, "function": function})


def _add_messages(columns: LinesBuilder, messages: Sequence[Message]) -> None:
    for message in messages:
        assert message.time is not None
        columns.begin(message.time)
        columns.text(message.name, message.field, str(message.value), dict(message.tags))


def _log(
    columns: LinesBuilder, level: str, errors: Sequence[sonar.ErrorObject], tags: dict[str, str]
) -> None:
    """Add errors as log lines with the envelope's time, by which they are recognised."""
    for error in errors:
        columns.text("sonar", "log", error.detail, {**tags, "loglevel": level})


def _node_states(cluster: sonar.ClusterAttributes) -> tuple[dict[str, list[str]], list[str]]:
    """Return the states by node, and what is wrong with names that are not lists of nodes."""
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
    return states, wrong


_NO_NODES = frozenset({(), ("None assigned",)})
"""Of a job that never ran: Slurm's text."""


def job_of(cluster: str, record: SlurmJob, shared: Shared = "none") -> Job | None:
    """Return the job of a record; None for a step, which adds nothing.

    `shared` is for records without that field. Hardware threads and accelerators have Slurm's
    numbers.

    Raises DataError if the record does not identify a job, or its nodes cannot be read.
    """
    if record.job_step:
        return None
    if not record.job_id or not cluster:
        raise DataError(f"the {'cluster' if record.job_id else 'job_id'} is missing")
    names = [] if record.nodes in _NO_NODES else expand(",".join(record.nodes))
    parts = [_allocation(text) for text in record.gres_detail if text.startswith("Nodes=")]
    allocated = record.allocated_resources or (record.sacct.AllocTRES if record.sacct else "")
    # Slurm's additions to a state, as in "CANCELLED by 1000", are dropped.
    state, has_run = record.job_state.partition(" ")[0], bool(record.start_time and record.end_time)
    return Job(
        cluster=cluster,
        id=record.job_id,
        array_id=record.array_job_id,
        array_task=record.array_task_id if record.array_job_id else None,
        het_id=record.het_job_id,
        het_offset=record.het_job_offset if record.het_job_id else None,
        state=neutral_state(state, has_run=has_run),
        name=record.job_name,
        user=record.user_name,
        project=record.account,
        partition=record.partition,
        submit=parse_time(record.submit_time) or 0,
        start=parse_time(record.start_time) or 0,
        end=parse_time(record.end_time) or 0,
        **resources(names, parts, allocated),
        requested_hwthreads=record.requested_cpus,
        memory=record.requested_memory_per_node // 1024 * 10**6,
        shared=_shared(record, shared),
        walltime=60 * (record.time_limit.value or 0),
        metadata=metadata_of(
            record.reservation,
            record.distribution,
            record.requested_cpus,
            record.requested_node_count,
            allocated,
        ),
    )


def _shared(record: SlurmJob, default: Shared) -> str:
    found = next((text for text in record.gres_detail if text.startswith("OverSubscribe=")), "")
    oversubscribe = found.partition("=")[2]
    return shared_by(oversubscribe) if oversubscribe else "" if default == "none" else default


def _allocation(text: str) -> Allocation:
    """Read ``Nodes=c[1-2] CPU_IDs=0-3 Mem=800 GRES=gpu:a100:1(IDX:0)``."""
    values = dict(pair.partition("=")[::2] for pair in text.split(" "))
    memory = values.get("Mem", "")
    return Allocation(
        node_list=values["Nodes"],
        cpu_ids=values.get("CPU_IDs"),
        memory=int(memory) * MIB if memory.isascii() and memory.isdecimal() else None,
        gres=values.get("GRES"),
    )
