"""The messages of a simulated cluster, sample by sample, and Sonar's samples of its nodes."""

import random
from array import array
from collections.abc import Iterable, Iterator, Sequence
from operator import getitem
from typing import NamedTuple

import ccpipe
from ccpipe.bus.subjects import Subjects, escape
from ccpipe.formats.clustercockpit import NodeState, encode_node_reasons, encode_node_states
from ccpipe.formats.lineprotocol import encode
from ccpipe.formats.lineprotocol.series import escape_key
from ccpipe.formats.sonar import encode as encode_envelope
from ccpipe.formats.sonar import timestamp
from ccpipe.formats.sonar.types.envelope import SampleData, SampleEnvelope
from ccpipe.formats.sonar.types.meta import MetadataObject
from ccpipe.formats.sonar.types.sample import (
    SampleAttributes,
    SampleJob,
    SampleProcess,
    SampleSystem,
)
from ccpipe.jobs import Job
from ccpipe.jobs.events import message
from ccpipe.jobs.pending import QueueReports
from ccpipe.message import Kind, Message, event
from ccpipe.pipeline.state import StateStore
from ccpipe.simulate.jobs import SECOND, JobChange, Scheduler
from ccpipe.simulate.kinds import IDLE, NODE_MEMORY, JobKind
from ccpipe.simulate.series import (
    MASK,
    RING,
    NodeParts,
    Rings,
    SimulatedSeries,
    node_series,
    scale_of,
)

_HOST = b"\0"  # placeholder of the node's name in lines shared by all nodes
_JOB = b"\1"  # and of the id of the job on it
GPU_SHARE = 1 / 3
"""Share of the nodes that have GPUs, if there are any."""
STATES_INTERVAL = 60 * SECOND
"""Time between two reports of the states of all nodes, if a sample is not longer."""
LATE_SAMPLES = 30  # maximum delay of a late payload, in samples
_BROKEN = (b"cpu_load,type=node value= 1\n", b"cpu_load type=node\n", b"\xff\xfe,=\n")


class SimulationOptions(NamedTuple):
    """Size of a simulated cluster, and share of bad data."""

    nodes: int = 100
    metrics: int = 100  # series per node
    parts: NodeParts = NodeParts()
    """Parts of each node; only some of the nodes have accelerators."""
    interval: int = 10 * SECOND  # nanoseconds between samples
    sonar_interval: int = 0
    """Nanoseconds between Sonar's samples, a multiple of the interval; 0 disables them."""
    failures: float = 0.01  # failures per node and day
    late: float = 0.0
    """Share of payloads that arrive late, by up to ``LATE_SAMPLES`` samples."""
    broken: float = 0.0  # share of payloads with a malformed line
    repeated: float = 0.0  # share of payloads sent twice


class Payload(NamedTuple):
    """A message to publish."""

    subject: str
    body: bytes
    lines: int  # number of valid lines
    broken: int = 0  # number of malformed lines


class NodeLines:
    """The lines of the nodes that have the same series."""

    def __init__(
        self, series: Sequence[SimulatedSeries], parts: NodeParts, cluster: str, rings: Rings
    ) -> None:
        """Take the series, the parts of the nodes, and the rings with their values."""
        self.count = len(series)
        self._series = [(each.metric, scale_of(each, parts), _shift(each)) for each in series]
        self._prefixes = [_prefix(each, cluster) for each in series]
        self._rings = rings
        self._values: dict[str, tuple[list[Sequence[bytes]], array[int]]] = {}
        """By kind of job: the levels of each series, and its level at each place of the ring.

        A node's sample is one row of these.
        """
        self._stamp = b""
        self._pieces: list[bytes] = []

    def encode(self, kind: JobKind, at: int, stamp: bytes) -> bytes:
        """Return a node's lines at a place of its rings.

        The name of the node and the id of the job on it are placeholders.
        """
        if stamp != self._stamp:
            self._begin(stamp)
        levels, rows = self._values.get(kind.name) or self._values_of(kind)
        begin = (at & MASK) * self.count
        pieces = self._pieces.copy()
        pieces[1::2] = map(getitem, levels, rows[begin : begin + self.count])
        return b"".join(pieces)

    def _begin(self, stamp: bytes) -> None:
        """Make the pieces of a sample, with room for the values between them."""
        self._stamp = stamp
        self._pieces = [b""] * (2 * self.count + 1)
        self._pieces[0::2] = [*self._prefixes, b""]
        self._pieces[2::2] = [stamp + piece for piece in self._pieces[2::2]]

    def _values_of(self, kind: JobKind) -> "tuple[list[Sequence[bytes]], array[int]]":
        levels, rows = [], array("H", bytes(2 * RING * self.count))
        for column, (metric, scale, shift) in enumerate(self._series):
            ring = self._rings.ring(metric, kind, scale)
            levels.append(ring.levels)
            rows[column :: self.count] = ring.course[shift:] + ring.course[:shift]
        self._values[kind.name] = levels, rows
        return levels, rows


class SimulatedCluster:
    """Nodes with metrics, jobs and Sonar's samples; the same for the same seed and times.

    The cluster's name is taken from `subjects`; `start`, the first time in nanoseconds since the
    epoch, is rounded down to a multiple of the interval.
    """

    def __init__(
        self, shape: SimulationOptions, subjects: Subjects, *, start: int, seed: int = 1
    ) -> None:
        self.shape = shape
        self.subjects = subjects
        self.time = start - start % shape.interval
        width = max(4, len(str(shape.nodes)))
        self.nodes = [f"n{number:0{width}}" for number in range(1, shape.nodes + 1)]
        parts = shape.parts
        gpu_nodes = max(1, round(GPU_SHARE * shape.nodes)) if parts.accelerator else 0
        self.jobs = Scheduler(
            subjects.cluster, self.nodes, hwthreads=parts.hwthread, gpus=parts.accelerator,
            gpu_nodes=gpu_nodes, start=self.time, seed=seed, failures=shape.failures,
        )  # fmt: skip
        self._draw = random.Random(f"{seed}/cluster")  # noqa: S311 - reproducible on purpose
        self._places = [self._draw.randrange(MASK) for _ in self.nodes]
        rings = Rings(seed)
        plain, with_gpus = (
            self._node_lines(each, rings) for each in (parts._replace(accelerator=0), parts)
        )
        self._lines = [plain] * (shape.nodes - gpu_nodes) + [with_gpus] * gpu_nodes
        """Those of each node without and with a job."""
        self._subjects = [self._subject("metrics", name) for name in self.nodes]
        self._samples = 0
        self._late: dict[int, list[Payload]] = {}
        """Delayed payloads, by the sample with which they are sent."""
        self._queue = QueueReports(subjects.cluster, StateStore())
        self._jobs_before = [JobChange("start_job", job) for job in self.jobs.running()]

    def sample(self) -> Iterator[Payload]:
        """Yield the payloads of ``time``, then advance by one interval."""
        now, self.time = self.time, self.time + self.shape.interval
        number, self._samples = self._samples, self._samples + 1
        for change in [*self._jobs_before, *self.jobs.advance(now)]:
            yield self._event(message(change.function, change.job))
        self._jobs_before = []
        yield from self._queue_changes(now)
        yield from self._node_changes()
        if number == 0 or now % STATES_INTERVAL < self.shape.interval:
            yield from self._node_states(now)
        yield from self._late.pop(number, ())
        yield from self._with_faults(self._metrics(number, b" %d\n" % (now // SECOND)), number)
        if self.shape.sonar_interval and now % self.shape.sonar_interval == 0:
            yield from self._sonar(now)

    def end(self) -> Iterator[Payload]:
        """Yield the stops of the jobs that run at ``time``, and the end of the queue.

        There are none before the starts were yielded.
        """
        if not self._jobs_before:
            for change in self.jobs.cancel_all(self.time):
                yield self._event(message(change.function, change.job))
            yield from map(self._event, self._queue.update((), self.time, state_of=_cancelled))

    def _queue_changes(self, now: int) -> Iterator[Payload]:
        queue = self._queue.update(self.jobs.queue(), now, state_of=self.jobs.state_of)
        yield from map(self._event, queue)

    def _node_lines(self, parts: NodeParts, rings: Rings) -> tuple[NodeLines, NodeLines]:
        """Return the lines of nodes without and with a job."""
        series = node_series(parts, self.shape.metrics)
        idle = [each for each in series if not each.is_of_job]
        cluster = self.subjects.cluster
        return NodeLines(idle, parts, cluster, rings), NodeLines(series, parts, cluster, rings)

    def _metrics(self, number: int, stamp: bytes) -> Iterator[Payload]:
        jobs = self.jobs
        nodes = zip(
            self.nodes, self._subjects, self._places, self._lines, jobs.kind_of, jobs.job_of,
            jobs.is_away, strict=True,
        )  # fmt: skip
        for name, subject, place, (idle, busy), kind, job, is_away in nodes:
            if is_away:
                continue
            lines = idle if job is None else busy
            body = lines.encode(kind or IDLE, place + number, stamp)
            body = body.replace(_HOST, name.encode())
            if job is not None:
                body = body.replace(_JOB, b"%d" % job.id)
            yield Payload(subject, body, lines.count)

    def _subject(self, kind: str, node: str, name: str = "") -> str:
        template = self.subjects.templates[kind]
        if "{" not in template:
            return template
        return template.format(
            cluster=escape(self.subjects.cluster), hostname=escape(node), name=name, method=""
        )

    def _with_faults(self, payloads: Iterable[Payload], number: int) -> Iterator[Payload]:
        """Yield payloads as they arrive: in time, late, duplicated, or with a malformed line."""
        shape = self.shape
        if not (shape.late or shape.broken or shape.repeated):
            yield from payloads
            return
        for payload in payloads:
            fate = self._draw.random()
            if fate < shape.broken:
                line = self._draw.choice(_BROKEN)
                yield payload._replace(body=payload.body + line, broken=1)
            elif fate < shape.broken + shape.late:
                due = number + self._draw.randint(1, LATE_SAMPLES)
                self._late.setdefault(due, []).append(payload)
                continue
            else:
                yield payload
            if fate > 1 - shape.repeated:
                yield payload

    def _event(self, one: Message) -> Payload:
        return Payload(self.subjects.of_message(one), encode([one]), 1)

    def _node_changes(self) -> Iterator[Payload]:
        """Yield log messages of the scheduler about nodes that failed or were drained."""
        for time, node, state, reason in self.jobs.node_changes:
            tags = {"cluster": self.subjects.cluster, "hostname": node, "type": "node"}
            text, level = _CHANGES[state]
            text = text.format(node=node, reason=reason)
            yield self._event(
                Message("slurmctld", {**tags, "loglevel": level}, text, time, str(Kind.LOG))
            )
        self.jobs.node_changes.clear()

    def _node_states(self, now: int) -> Iterator[Payload]:
        """Yield the state of every node, with what the job on it has allocated."""
        jobs, rows, threads = self.jobs, [], self.shape.parts.hwthread
        for name, job, is_away, is_drained in zip(
            self.nodes, jobs.job_of, jobs.is_away, jobs.is_drained, strict=True
        ):
            states = ["down" if is_away else "idle" if job is None else "allocated"]
            states += ["drain"] if is_drained else []
            gpus = len(job.nodes[0].accelerators) if job else 0
            used = (threads, NODE_MEMORY // 1000, gpus, 1) if job else (0, 0, 0, 0)
            rows.append(NodeState(name, states, *used))
        tags = {"cluster": self.subjects.cluster, "hostname": self.nodes[0], "type": "node"}
        for payload in encode_node_states(self.subjects.cluster, rows):
            yield self._event(event("nodestate", "nodestate", payload, time=now, tags=tags))
        for payload in encode_node_reasons(self.subjects.cluster, self.jobs.reasons):
            yield self._event(event("nodereason", "nodereason", payload, time=now, tags=tags))

    def _sonar(self, now: int) -> Iterator[Payload]:
        for index, name in enumerate(self.nodes):
            if self.jobs.is_away[index]:
                continue
            body = sample_envelope(
                self.subjects.cluster, name, now, self.jobs.job_of[index],
                self.shape.parts, self._places[index],
            )  # fmt: skip
            yield Payload(self._subject("sonar", name, "sample"), body, 0)


def _cancelled(_: int) -> str:
    return "cancelled"


def _prefix(each: SimulatedSeries, cluster: str) -> bytes:
    """Return a line up to its value; the node's name is a zero byte."""
    tags = sorted([("cluster", cluster), ("hostname", "\0"), *each.tags])
    encoded = ",".join(f"{key}={escape_key(value)}" for key, value in tags)
    return f"{each.metric.name},{encoded} value=".encode()


def _shift(each: SimulatedSeries) -> int:
    """Return how far a series is from its node's place: parts differ, metrics go together."""
    tags = dict(each.tags)
    number = tags.get("type-id", "0")
    device = sum(tags.get("stype-id", "").encode())
    return (7 * (int(number) + device)) & MASK


_CHANGES = {
    "down": ("error: Nodes {node} not responding, setting DOWN", "error"),
    "drain": ("update_node: node {node} reason set to: {reason}, state set to DRAIN", "warn"),
    "resume": ("update_node: node {node} state set to IDLE", "info"),
}
"""What Slurm's controller logs of a node, and the level."""


PROCESSES = 4  # number of processes of a job on a node
BOOT_PERIOD = 30 * 86_400  # uptime of all nodes at the start, in seconds

_COMMANDS = ("gromacs", "python3", "vasp_std", "lmp", "cp2k.psmp")


def sample_envelope(
    cluster: str, node: str, now: int, job: Job | None, parts: NodeParts, place: int
) -> bytes:
    """Return the envelope of one sample as JSON, with the processes of the job on the node."""
    seconds = (now - job.start) // SECOND if job else 0
    share = parts.hwthread / PROCESSES
    processes = tuple(
        SampleProcess(
            cmd=_COMMANDS[job.id % len(_COMMANDS)],
            pid=2000 + rank,
            ppid=1999,
            num_threads=round(share) - 1,
            resident_memory=1_000_000 + 1000 * (place % 977),
            virtual_memory=4_000_000,
            cpu_avg=95.0 * share,
            cpu_util=95.0 * share,
            cpu_time=round(0.95 * share * seconds),
            data_read=500 * seconds,
            data_written=100 * seconds,
        )
        for rank in range(PROCESSES)
        if job
    )
    jobs = (SampleJob(job=job.id, user=job.user, processes=processes),) if job else ()
    load = 0.95 * parts.hwthread if job else 0.5
    attributes = SampleAttributes(
        time=timestamp.write(now),
        cluster=cluster,
        node=node,
        system=SampleSystem(
            cpus=(round(0.7 * (now // SECOND % BOOT_PERIOD)),) * parts.hwthread,
            used_memory=sum(each.resident_memory for each in processes) + 2_000_000,
            load1=load,
            load5=load,
            load15=load,
            runnable_entities=round(load),
            existing_entities=round(load) + 300,
        ),
        jobs=jobs,
    )
    meta = MetadataObject(producer="ccpipe", version=ccpipe.__version__)
    return encode_envelope(SampleEnvelope(meta=meta, data=SampleData(attributes=attributes)))
