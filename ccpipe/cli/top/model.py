"""The state of clusters, derived from messages: nodes, jobs, GPUs, rates and errors.

It is independent of screen and broker. Its memory is bounded by the numbers of nodes, jobs and
GPUs, each of which has a maximum.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ccpipe.cli.console.quantity import SCALED
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.lineprotocol.series import SeriesTable
from ccpipe.message import Kind, Message

MAX_NODES = 50_000
MAX_JOBS = 50_000
MAX_GPUS = 100_000
MAX_ERRORS = 200
"""Maximum number of errors remembered."""

MAX_PARTS = 64
"""Maximum number of interfaces and sockets summed per node."""

STALE_SECONDS = 120.0
"""Time without a message after which a node counts as silent."""

ENDED_SECONDS = 300.0
"""How long a finished job is listed."""

NODE_METRICS: Mapping[str, tuple[str, float]] = {
    "load_one": ("load", 1),
    "cpu_load": ("load", 1),
    "cpu_used": ("cpu", 1),
    "cpu_idle": ("idle", 1),
    "num_cpus": ("cpus", 1),
    "mem_used": ("memory", 1e3),
    "mem_total": ("memory_total", 1e3),
    "net_bytes_in_bw": ("network", 1),
    "flops_any": ("flops", 1),
    "cpu_power": ("power", 1),
    "ipmi_power": ("power", 1),
}
"""Metrics of a whole node: the field that they set, and the factor to its unit."""

SUMMED = {"net_bytes_in_bw": "network", "cpu_power": "power"}
"""Fields summed over a node's interfaces or sockets, if the node reports no total."""

RATE_SECONDS = 10.0
"""Rates cover the last one to two intervals of this length: publishers send every few seconds."""

GPU_METRICS: Mapping[str, tuple[str, float]] = {
    "nv_util": ("utilization", 1),
    "rocm_gfx_util": ("utilization", 1),
    "acc_utilization": ("utilization", 1),
    "nv_fb_mem_used": ("memory", 1e6),
    "rocm_mem_used": ("memory", 1e6),
    "acc_mem_used": ("memory", 1e6),
    "nv_power_usage": ("power", 1),
    "rocm_avg_power": ("power", 1),
    "acc_power": ("power", 1),
    "nv_temp": ("temperature", 1),
    "rocm_temp_edge": ("temperature", 1),
}
"""The same for accelerators."""


@dataclass(slots=True)
class Counted:
    """Line counters and rate."""

    lines: int = 0
    rate: float = 0.0
    """Lines per second."""
    counts: tuple[int, int] = (0, 0)
    """Lines at the start of the last interval and of the one before."""


@dataclass(slots=True)
class PartUsage:
    """A network interface or a socket."""

    value: float = float("nan")


@dataclass(slots=True, kw_only=True)
class NodeUsage(Counted):
    """A node; unknown values are NaN."""

    cluster: str
    name: str
    load: float = float("nan")
    cpu: float = float("nan")
    """Percent, summed over all hardware threads."""
    idle: float = float("nan")
    cpus: float = float("nan")
    memory: float = float("nan")
    """Bytes."""
    memory_total: float = float("nan")
    network: float = float("nan")
    """Bytes received per second."""
    flops: float = float("nan")
    power: float = float("nan")
    """Watts."""
    parts: dict[tuple[str, str], PartUsage] = field(default_factory=dict)
    """By field and number or name."""
    heard: float = 0.0
    """When its last line was received, in seconds since the epoch."""
    gpus: int = 0
    jobs: set[int] = field(default_factory=set)

    def whole(self, name: str) -> float:
        """Return a field: the node's own value, else the sum of its parts."""
        own: float = getattr(self, name)
        values = [part.value for (of, _), part in self.parts.items() if of == name]
        return math.fsum(values) if values and math.isnan(own) else own

    @property
    def busy(self) -> float:
        """Percentage of CPU time used."""
        used = 100 * self.cpus - self.idle if math.isnan(self.cpu) else self.cpu
        return used / self.cpus if self.cpus > 0 else math.nan


@dataclass(slots=True)
class Gpu:
    """An accelerator of a node."""

    cluster: str
    node: str
    id: str
    utilization: float = float("nan")
    """Percent."""
    memory: float = float("nan")
    """Bytes."""
    power: float = float("nan")
    """Watts."""
    temperature: float = float("nan")
    """Degrees Celsius."""


@dataclass(slots=True)
class JobSummary:
    """A job, as its start told it."""

    cluster: str
    id: int
    user: str = ""
    project: str = ""
    partition: str = ""
    start: int = 0
    """Seconds since the epoch."""
    nodes: tuple[str, ...] = ()
    state: str = "running"
    ended: float = 0.0
    """When its stop was received; 0 while it runs."""


@dataclass(slots=True, kw_only=True)
class ClusterCounts(Counted):
    """Counters of one cluster."""

    name: str
    messages: int = 0
    bytes: int = 0
    dead: int = 0
    errors: int = 0


class _Resource(msgspec.Struct):
    hostname: str = ""


class _JobEvent(msgspec.Struct):
    """Fields that start and stop events have in common, of ClusterCockpit's schema."""

    job: int = msgspec.field(name="jobId")
    user: str = ""
    project: str = ""
    partition: str = ""
    start: int = msgspec.field(name="startTime", default=0)
    state: str = msgspec.field(name="jobState", default="")
    resources: list[_Resource] = []


class Model:
    """The state derived from messages so far."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Start empty; `clock` returns seconds since the epoch."""
        self._clock = clock
        self.clusters: dict[str, ClusterCounts] = {}
        self.nodes: dict[tuple[str, str], NodeUsage] = {}
        self.gpus: dict[tuple[str, str, str], Gpu] = {}
        self.jobs: dict[tuple[str, int], JobSummary] = {}
        self.errors: deque[tuple[float, str, str]] = deque(maxlen=MAX_ERRORS)
        """Time, origin and text of dead letters and of errors in logs."""
        self.rejected = 0
        """Lines that could not be read."""
        self._spans = (clock(), clock())
        """Start times of the last rate interval and of the one before."""
        self._table: SeriesTable | None = None
        self._targets: list[tuple[NodeUsage | None, Any, str, float] | None] = []

    def add_lines(self, lines: Lines, size: int) -> None:
        """Process one payload of `size` bytes."""
        self.rejected += len(lines.rejected)
        if lines.table is not self._table:
            self._table, self._targets = lines.table, []
        now = self._clock()
        heard: dict[str, int] = {}
        for row, (code, number) in enumerate(zip(lines.series, lines.numbers, strict=True)):
            if code >= len(self._targets):
                self._targets.extend([None] * (len(lines.table) - len(self._targets)))
            target = self._targets[code]
            if target is None:
                target = self._targets[code] = self._target(*lines.table.series[code][:2])
            node, owner, name, factor = target
            if node is not None:
                node.lines += 1
                node.heard = now
                heard[node.cluster] = heard.get(node.cluster, 0) + 1
            if name == "event":
                self._add_message(lines[row])
            elif name:
                setattr(owner, name, number * factor)
        for cluster, count in heard.items():
            found = self._cluster(cluster)
            found.messages += 1
            found.lines += count
            found.bytes += size

    def _target(
        self, name: str, tags: Mapping[str, str]
    ) -> tuple[NodeUsage | None, Any, str, float]:
        """Return what a series sets: node, owner of the field, field and factor."""
        cluster, hostname = tags.get("cluster", ""), tags.get("hostname", "")
        node = self._node(cluster, hostname)
        if tags.get("function") or tags.get("loglevel"):
            return node, None, "event", 0
        if node is None:
            return node, None, "", 0
        kind = tags.get("type", "node")
        owner: NodeUsage | Gpu | PartUsage | None = None
        if (kind == "socket" or tags.get("stype") == "network") and name in SUMMED:
            part = tags.get("stype-id") or tags.get("type-id", "")
            owner, attribute, factor = self._part(node, SUMMED[name], part), "value", 1.0
        elif tags.get("stype"):
            pass
        elif kind == "node" and name in NODE_METRICS:
            owner, (attribute, factor) = node, NODE_METRICS[name]
        elif kind == "accelerator" and name in GPU_METRICS:
            owner = self._gpu(node, tags.get("type-id", ""))
            attribute, factor = GPU_METRICS[name]
        if owner is None:
            return node, None, "", 0
        # A tag `unit` says what the sender means; without it it is what ccpipe's collectors send.
        _, factor = SCALED.get(tags.get("unit", ""), ("", factor))
        return node, owner, attribute, factor

    def _node(self, cluster: str, name: str) -> NodeUsage | None:
        found = self.nodes.get((cluster, name))
        if found is None and name and len(self.nodes) < MAX_NODES:
            found = self.nodes[cluster, name] = NodeUsage(cluster=cluster, name=name)
        return found

    def _part(self, node: NodeUsage, name: str, number: str) -> PartUsage | None:
        if (name, number) not in node.parts and len(node.parts) < MAX_PARTS:
            node.parts[name, number] = PartUsage()
        return node.parts.get((name, number))

    def _gpu(self, node: NodeUsage, number: str) -> Gpu | None:
        key = (node.cluster, node.name, number)
        if key not in self.gpus and len(self.gpus) < MAX_GPUS:
            self.gpus[key] = Gpu(*key)
            node.gpus += 1
        return self.gpus.get(key)

    def _cluster(self, name: str) -> ClusterCounts:
        if name not in self.clusters:
            self.clusters[name] = ClusterCounts(name=name)
        return self.clusters[name]

    def _add_message(self, message: Message) -> None:
        cluster = message.tags.get("cluster", "")
        if message.kind is Kind.LOG:
            if message.tags.get("loglevel", "").lower() in (
                "err",
                "error",
                "crit",
                "alert",
                "emerg",
            ):
                self._cluster(cluster).errors += 1
                self._add_error(f"{message.hostname} {message.name}".strip(), str(message.value))
        elif message.kind is Kind.EVENT and message.name == "job":
            self._add_job(cluster, message.tags.get("function", ""), str(message.value))

    def _add_job(self, cluster: str, function: str, text: str) -> None:
        try:
            event = msgspec.json.decode(text, type=_JobEvent)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return
        key = (cluster, event.job)
        if function == "start_job" and (key in self.jobs or len(self.jobs) < MAX_JOBS):
            nodes = tuple(resource.hostname for resource in event.resources)
            self.jobs[key] = JobSummary(
                cluster, event.job, event.user, event.project, event.partition, event.start, nodes
            )
            for name in nodes:
                if node := self._node(cluster, name):
                    node.jobs.add(event.job)
        elif function == "stop_job" and (job := self.jobs.get(key)):
            job.state = event.state or "ended"
            job.ended = self._clock()
            for name in job.nodes:
                if node := self.nodes.get((cluster, name)):
                    node.jobs.discard(job.id)

    def add_dead_letter(self, cluster: str, reason: str, origin: str) -> None:
        """Process a dead letter."""
        self._cluster(cluster).dead += 1
        self._add_error(f"dead letter from {origin}", reason)

    def _add_error(self, place: str, text: str) -> None:
        self.errors.append((self._clock(), place, text))

    def tick(self) -> None:
        """Compute rates and drop jobs that ended a while ago."""
        now = self._clock()
        last, before = self._spans
        is_over = now - last >= RATE_SECONDS
        if is_over:
            self._spans = now, last
        everything: list[Counted] = [*self.nodes.values(), *self.clusters.values()]
        for counted in everything:
            counted.rate = (counted.lines - counted.counts[1]) / max(now - before, 1e-9)
            if is_over:
                counted.counts = counted.lines, counted.counts[0]
        for key in [
            k for k, job in self.jobs.items() if job.ended and now - job.ended > ENDED_SECONDS
        ]:
            del self.jobs[key]

    def is_silent(self, node: NodeUsage) -> bool:
        """Return whether there was no message from a node for a while."""
        return self._clock() - node.heard > STALE_SECONDS

    def nodes_of(self, job: JobSummary) -> list[NodeUsage]:
        """Return the known nodes of a job."""
        found = (self.nodes.get((job.cluster, name)) for name in job.nodes)
        return [node for node in found if node is not None]
