"""The tables: the rows of each, and the rows below a row."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ccpipe.cli.top.layout import ID, Column, TopRow, age
from ccpipe.jobs import Job
from ccpipe.live.jobs import SECOND, LiveJobs
from ccpipe.live.node import LiveNode
from ccpipe.live.nodes import LiveNodes
from ccpipe.live.state import ClusterStats, LiveState
from ccpipe.terminal import plural

MAX_SERIES = 1_000_000
MAX_JOBS = 50_000

ENDED_SECONDS = 300.0

UNSEEN_SECONDS = 120.0
"""Time since the start after which a node of a job that has sent nothing counts as silent."""

REFUSED = ("down", "fail", "drain", "drained", "draining", "maint")
"""States in the scheduler in which a node gets no jobs."""

OF_NODE = {
    "load": ("load_one", "cpu_load"),
    "used": ("cpu_used",),
    "idle": ("cpu_idle",),
    "cpus": ("num_cpus",),
    "memory": ("mem_used",),
    "memory total": ("mem_total",),
    "network": ("net_bytes_in_bw",),
    "flops": ("flops_any",),
    "power": ("ipmi_power", "cpu_power"),
    "gpu": ("nv_util", "rocm_gfx_util", "acc_utilization"),
}
"""Metrics of a node by what they show; the first one that a node sends."""

SUMMED = ("net_bytes_in_bw", "cpu_power")
"""Metrics summed over a node's interfaces or sockets, if the node sends no total."""

OF_GPU = {
    "utilization": ("nv_util", "rocm_gfx_util", "acc_utilization"),
    "memory": ("nv_fb_mem_used", "rocm_mem_used", "acc_mem_used"),
    "memory total": ("nv_fb_mem_total", "rocm_mem_total"),
    "power": ("nv_power_usage", "rocm_avg_power", "acc_power"),
    "temperature": ("nv_temp", "rocm_temp_edge"),
}
"""The same for accelerators."""

_NODE_METRICS = frozenset(name for names in OF_NODE.values() for name in names)
_GPU_METRICS = frozenset(name for names in OF_GPU.values() for name in names)
_GPU = "accelerator"


def new_state() -> LiveState:
    nodes = LiveNodes(max_series=MAX_SERIES, max_rows=0, forget_seconds=math.inf, keeps=_is_shown)
    return LiveState(nodes, LiveJobs(MAX_JOBS))


def _is_shown(name: str, tags: Mapping[str, str]) -> bool:
    kind, stype = tags.get("type", "node"), tags.get("stype", "")
    if name in SUMMED and (kind == "socket" or stype == "network"):
        return True
    return not stype and (
        (kind == "node" and name in _NODE_METRICS) or (kind == _GPU and name in _GPU_METRICS)
    )


class TopView(NamedTuple):
    """One of the tables."""

    columns: tuple[Column, ...]
    rows: Callable[[LiveState], Iterable[TopRow]]


def _text(head: str, rank: int = 0) -> Column:
    return Column(head, descending=False, rank=rank)


def _percent(head: str, rank: int = 0) -> Column:
    return Column(head, "percent", rank=rank, has_bar=True)


def _quantity(
    state: LiveState, node: LiveNode, names: Sequence[str], part: str | None = None
) -> float:
    for name in names:
        value = state.nodes.quantity(node, name, part)
        if not math.isnan(value):
            return value
    return math.nan


class Use(NamedTuple):
    """What a node uses; NaN where it is unknown."""

    load: float
    cpu: float
    """Percent of the time of all hardware threads."""
    memory: float
    memory_total: float
    gpu: float
    """Mean of its GPUs, in percent."""
    network: float
    flops: float
    power: float

    @classmethod
    def of(cls, state: LiveState, node: LiveNode) -> "Use":
        load, memory, total, gpu, network, flops, power = (
            _quantity(state, node, OF_NODE[name])
            for name in ("load", "memory", "memory total", "gpu", "network", "flops", "power")
        )
        return cls(load, _busy(state, node), memory, total, gpu, network, flops, power)

    @property
    def memory_percent(self) -> float:
        return 100 * self.memory / self.memory_total if self.memory_total > 0 else math.nan


def _busy(state: LiveState, node: LiveNode) -> float:
    """Return the percentage of CPU time used; the metrics are sums over hardware threads."""
    used, idle, cpus = (_quantity(state, node, OF_NODE[name]) for name in ("used", "idle", "cpus"))
    used = 100 * cpus - idle if math.isnan(used) else used
    return used / cpus if cpus > 0 else math.nan


def _sum(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) if known else math.nan


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _max(values: Iterable[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def _all_nodes(state: LiveState) -> list[LiveNode]:
    nodes = state.nodes.nodes
    return [*nodes.values(), *(LiveNode(id_) for id_ in state.jobs.nodes if id_ not in nodes)]


def _is_silent(state: LiveState, node: LiveNode) -> bool:
    """Return whether a node has stopped sending, or was not seen long enough after our start."""
    if node.seen:
        return node.is_silent
    rates = state.health.rates
    return bool(rates) and rates[-1][0] - rates[0][0] >= UNSEEN_SECONDS


def _gpus_of(node: LiveNode) -> list[str]:
    parts = (part for name in _GPU_METRICS for part in node.parts.get(name, ()))
    return sorted({part for part in parts if part.startswith(_GPU)})


def listed_jobs(state: LiveState) -> dict[str, Job]:
    ended, now = state.jobs.ended, time.time()
    runs = {f"{job.cluster}/{job.id}": job for job in reversed(list(state.jobs.latest()))}
    return {
        key: job for key, job in runs.items() if now - ended.get(job.run_key, now) <= ENDED_SECONDS
    }


def elapsed(job: Job) -> float:
    """Return how long a job has run, in seconds; NaN if its start is unknown."""
    end = job.end / SECOND if job.end else time.time()
    return end - job.start / SECOND if job.start else math.nan


def _clusters(state: LiveState) -> Iterable[TopRow]:
    nodes = _all_nodes(state)
    jobs = Counter(job.cluster for job in state.jobs.running)
    names = [*state.clusters, *dict.fromkeys(node.id[0] for node in nodes)]
    for name in dict.fromkeys(names):
        cluster = state.clusters.get(name) or ClusterStats(name)
        own = [node for node in nodes if node.id[0] == name]
        uses = [Use.of(state, node) for node in own]
        known = [use for use in uses if use.memory_total > 0 and not math.isnan(use.memory)]
        memory, total = _sum(use.memory for use in known), _sum(use.memory_total for use in known)
        yield TopRow(
            name,
            (name, len(own), sum(_is_silent(state, node) for node in own), jobs[name],
             math.fsum(use.load for use in uses if not math.isnan(use.load)),
             _mean(use.cpu for use in uses), 100 * memory / total if total > 0 else math.nan,
             _mean(use.gpu for use in uses), _sum(use.flops for use in uses),
             _sum(use.power for use in uses), cluster.rate, cluster.bytes, cluster.dead,
             cluster.errors),
        )  # fmt: skip


def _nodes(state: LiveState) -> Iterable[TopRow]:
    for node in _all_nodes(state):
        use, jobs = Use.of(state, node), len(state.jobs.on(*node.id))
        condition = "silent" if _is_silent(state, node) else "busy" if jobs else "idle"
        known = node.scheduler
        refused = [each for each in known.states if each in REFUSED] if known else []
        condition = "+".join(refused) or condition
        reason = known.reason if known and refused else ""
        yield TopRow(
            "/".join(node.id),
            (*node.id, condition, use.load, use.cpu, use.memory, use.memory_percent, use.gpu,
             use.network, use.flops, use.power, len(_gpus_of(node)), jobs, node.rate,
             time.time() - node.seen if node.seen else math.nan, reason),
        )  # fmt: skip


def _jobs(state: LiveState) -> Iterable[TopRow]:
    nodes = state.nodes.nodes
    for key, job in listed_jobs(state).items():
        # the nodes of a job that has ended are someone else's
        own = () if job.run_key in state.jobs.ended else job.nodes
        ids = ((job.cluster, each.hostname) for each in own)
        uses = [Use.of(state, nodes[id_]) for id_ in ids if id_ in nodes]
        yield TopRow(
            key,
            (job.cluster, job.id, job.user, job.partition, job.state, len(job.nodes),
             _mean(use.load for use in uses), _mean(use.cpu for use in uses),
             _max(use.memory for use in uses), _max(use.memory_percent for use in uses),
             _mean(use.gpu for use in uses), _sum(use.flops for use in uses),
             _sum(use.power for use in uses), elapsed(job)),
        )  # fmt: skip


def _gpus(state: LiveState) -> Iterable[TopRow]:
    for node in state.nodes.nodes.values():
        for part in _gpus_of(node):
            gpu = part.removeprefix(_GPU).strip()
            used, memory, total, power, heat = (
                _quantity(state, node, names, part) for names in OF_GPU.values()
            )
            share = 100 * memory / total if total > 0 else math.nan
            key = "/".join((*node.id, gpu))
            yield TopRow(key, (*node.id, gpu, used, memory, share, power, heat))


def _errors(state: LiveState) -> Iterable[TopRow]:
    for number, (at, place, text) in enumerate(state.errors):
        yield TopRow(str(number), (time.time() - at, place, text))


VIEWS: dict[str, TopView] = {
    "clusters": TopView(
        (_text("cluster"), Column("nodes"), Column("silent"), Column("jobs"),
         Column("load", rank=6), _percent("cpu"), _percent("mem"), _percent("gpu"),
         Column("flops", "Flops/s", rank=4), Column("power", "W", rank=1),
         Column("lines/s", rank=3), Column("received", "bytes", rank=7), Column("dead", rank=2),
         Column("errors", rank=2)),
        _clusters,
    ),
    "nodes": TopView(
        (_text("cluster", rank=9), _text("node"), _text("state", rank=1), Column("load"),
         _percent("cpu"), Column("memory", "bytes", rank=4), _percent("mem"), _percent("gpu"),
         Column("net in", "bytes/s", rank=5), Column("flops", "Flops/s", rank=2),
         Column("power", "W", rank=1), Column("gpus", rank=6), Column("jobs", rank=5),
         Column("lines/s", rank=8), Column("age", "s", rank=7), _text("reason", rank=3)),
        _nodes,
    ),
    "jobs": TopView(
        (_text("cluster", rank=9), Column("job", ID), _text("user"), _text("partition", rank=6),
         _text("state", rank=2), Column("nodes"), Column("load", rank=8), _percent("cpu"),
         Column("memory", "bytes", rank=7), _percent("mem"), _percent("gpu"),
         Column("flops", "Flops/s", rank=3), Column("power", "W", rank=4), Column("elapsed", "s")),
        _jobs,
    ),
    "gpus": TopView(
        (_text("cluster", rank=9), _text("node"), _text("gpu"), _percent("used"),
         Column("memory", "bytes"), _percent("mem"), Column("power", "W"),
         Column("temperature", "degC", rank=1)),
        _gpus,
    ),
    "errors": TopView(
        (Column("age", "s", descending=False), _text("from"), _text("text")),
        _errors,
    ),
}  # fmt: skip
"""All tables, in the order of their keys 1 to 5."""

DEFAULT_SORT = {"clusters": 0, "nodes": 3, "jobs": 13, "gpus": 3, "errors": 0}


class SelectedRow(NamedTuple):
    """The row whose details are shown."""

    view: str
    key: str


DETAILS = {"clusters": "nodes", "nodes": "jobs", "jobs": "nodes", "gpus": "nodes"}
"""The table with the details of a row of another one."""


def keys_of(state: LiveState, origin: SelectedRow) -> set[str]:
    """Return the keys of the rows that are the details of a row.

    These are the nodes of a cluster, a job or a GPU, and the jobs on a node.
    """
    view, key = origin
    if view == "clusters":
        return {"/".join(node.id) for node in _all_nodes(state) if node.id[0] == key}
    if view == "jobs":
        job = listed_jobs(state).get(key)
        return {f"{job.cluster}/{node.hostname}" for node in job.nodes} if job else set()
    cluster, _, rest = key.partition("/")
    if view == "gpus":
        return {f"{cluster}/{rest.rpartition('/')[0]}"}
    return {f"{job.cluster}/{job.id}" for job in state.jobs.on(cluster, rest)}


def describe(state: LiveState, origin: SelectedRow) -> str:
    """Return a row whose details are shown in words."""
    if origin.view == "jobs" and (job := listed_jobs(state).get(origin.key)):
        time_ = "" if math.isnan(seconds := elapsed(job)) else f", {age(seconds)}"
        return f"job {job.id}: {job.user}, {job.state}{time_}, {plural(len(job.nodes), 'node')}"
    return f"{origin.view.removesuffix('s')} {origin.key}"


def as_json(state: LiveState) -> dict[str, Any]:
    """Return all tables as plain data with raw values; unknown ones are null."""
    return {
        name: [
            {
                column.head.replace(" ", "_").replace("/", "_per_"): _plain(value)
                for column, value in zip(view.columns, row.values, strict=True)
            }
            for row in view.rows(state)
        ]
        for name, view in VIEWS.items()
    } | {"rejected": state.health.rejected}


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
