"""The tables: rows, sort order and filter of each."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ccpipe.cli.console.message_table import short
from ccpipe.jobs import Job
from ccpipe.live.jobs import SECOND, LiveJobs
from ccpipe.live.nodes import LiveNode, LiveNodes
from ccpipe.live.state import ClusterStats, LiveState
from ccpipe.terminal import printable

MAX_SERIES = 1_000_000
MAX_JOBS = 50_000

SILENT_SECONDS = 120.0

ENDED_SECONDS = 300.0

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
}
"""Metrics of a node by what they show; the first one that a node sends."""

SUMMED = ("net_bytes_in_bw", "cpu_power")
"""Metrics summed over a node's interfaces or sockets, if the node sends no total."""

OF_GPU = {
    "utilization": ("nv_util", "rocm_gfx_util", "acc_utilization"),
    "memory": ("nv_fb_mem_used", "rocm_mem_used", "acc_mem_used"),
    "power": ("nv_power_usage", "rocm_avg_power", "acc_power"),
    "temperature": ("nv_temp", "rocm_temp_edge"),
}
"""The same for accelerators."""

_NODE_METRICS = frozenset(name for names in OF_NODE.values() for name in names)
_GPU_METRICS = frozenset(name for names in OF_GPU.values() for name in names)
_GPU = "accelerator"


def new_state() -> LiveState:
    nodes = LiveNodes(
        max_series=MAX_SERIES, max_rows=0, silent_seconds=SILENT_SECONDS,
        forget_seconds=math.inf, keeps=_is_shown,
    )  # fmt: skip
    return LiveState(nodes, LiveJobs(MAX_JOBS))


def _is_shown(name: str, tags: Mapping[str, str]) -> bool:
    kind, stype = tags.get("type", "node"), tags.get("stype", "")
    if name in SUMMED and (kind == "socket" or stype == "network"):
        return True
    return not stype and (
        (kind == "node" and name in _NODE_METRICS) or (kind == _GPU and name in _GPU_METRICS)
    )


class Column(NamedTuple):
    """A column: title and unit, and whether large values are first."""

    head: str
    unit: str = ""
    descending: bool = True

    @property
    def justify(self) -> Literal["left", "right"]:
        return "right" if self.descending or self.unit else "left"


class TopRow(NamedTuple):
    """A row: its key, and the raw values of its cells."""

    key: str
    values: tuple[Any, ...]


class TopView(NamedTuple):
    """One of the tables."""

    columns: tuple[Column, ...]
    rows: Callable[[LiveState], Iterable[TopRow]]


def _text(head: str) -> Column:
    return Column(head, descending=False)


def _quantity(
    state: LiveState, node: LiveNode, names: Sequence[str], part: str | None = None
) -> float:
    for name in names:
        value = state.nodes.quantity(node, name, part)
        if not math.isnan(value):
            return value
    return math.nan


def _busy(state: LiveState, node: LiveNode) -> float:
    """Return the percentage of CPU time used; the metrics are sums over hardware threads."""
    used, idle, cpus = (_quantity(state, node, OF_NODE[name]) for name in ("used", "idle", "cpus"))
    used = 100 * cpus - idle if math.isnan(used) else used
    return used / cpus if cpus > 0 else math.nan


def _all_nodes(state: LiveState) -> list[LiveNode]:
    nodes = state.nodes.nodes
    return [*nodes.values(), *(LiveNode(id_) for id_ in state.jobs.nodes if id_ not in nodes)]


def _gpus_of(node: LiveNode) -> list[str]:
    parts = (part for name in _GPU_METRICS for part in node.parts.get(name, ()))
    return sorted({part for part in parts if part.startswith(_GPU)})


def listed_jobs(state: LiveState) -> dict[str, Job]:
    ended, now = state.jobs.ended, time.time()
    runs = {f"{job.cluster}/{job.id}": job for job in reversed(list(state.jobs.latest()))}
    return {
        key: job for key, job in runs.items() if now - ended.get(job.run_key, now) <= ENDED_SECONDS
    }


def _clusters(state: LiveState) -> Iterable[TopRow]:
    nodes = _all_nodes(state)
    jobs = Counter(job.cluster for job in state.jobs.running)
    names = [*state.clusters, *dict.fromkeys(node.id[0] for node in nodes)]
    for name in dict.fromkeys(names):
        cluster = state.clusters.get(name) or ClusterStats(name)
        own = [node for node in nodes if node.id[0] == name]
        loads = (_quantity(state, node, OF_NODE["load"]) for node in own)
        load = math.fsum(load for load in loads if not math.isnan(load))
        silent = sum(node.is_silent or not node.seen for node in own)
        yield TopRow(
            name,
            (name, len(own), silent, jobs[name], load, cluster.rate, cluster.bytes,
             cluster.dead, cluster.errors),
        )  # fmt: skip


def _nodes(state: LiveState) -> Iterable[TopRow]:
    for node in _all_nodes(state):
        load, memory, total, network, flops, power = (
            _quantity(state, node, OF_NODE[name])
            for name in ("load", "memory", "memory total", "network", "flops", "power")
        )
        used = 100 * memory / total if total > 0 else math.nan
        yield TopRow(
            "/".join(node.id),
            (*node.id, load, _busy(state, node), memory, used, network, flops, power,
             len(_gpus_of(node)), len(state.jobs.on(*node.id)), node.rate,
             time.time() - node.seen if node.seen else math.nan),
        )  # fmt: skip


def _jobs(state: LiveState) -> Iterable[TopRow]:
    for key, job in listed_jobs(state).items():
        nodes = [
            node
            for each in job.nodes
            if (node := state.nodes.nodes.get((job.cluster, each.hostname))) is not None
        ]
        loads, memory, flops = (
            [v for node in nodes if not math.isnan(v := _quantity(state, node, OF_NODE[name]))]
            for name in ("load", "memory", "flops")
        )
        yield TopRow(
            key,
            (job.cluster, job.id, job.user, job.partition, job.state, len(job.nodes),
             math.fsum(loads) / len(loads) if loads else math.nan,
             max(memory, default=math.nan), math.fsum(flops) if flops else math.nan,
             time.time() - job.start / SECOND if job.start else math.nan),
        )  # fmt: skip


def _gpus(state: LiveState) -> Iterable[TopRow]:
    for node in state.nodes.nodes.values():
        for part in _gpus_of(node):
            gpu = part.removeprefix(_GPU).strip()
            values = (_quantity(state, node, names, part) for names in OF_GPU.values())
            yield TopRow("/".join((*node.id, gpu)), (*node.id, gpu, *values))


def _errors(state: LiveState) -> Iterable[TopRow]:
    for number, (at, place, text) in enumerate(state.errors):
        yield TopRow(str(number), (time.time() - at, place, text))


VIEWS: dict[str, TopView] = {
    "clusters": TopView(
        (_text("cluster"), Column("nodes"), Column("silent"), Column("jobs"), Column("load"),
         Column("lines/s"), Column("received", "bytes"), Column("dead"), Column("errors")),
        _clusters,
    ),
    "nodes": TopView(
        (_text("cluster"), _text("node"), Column("load"), Column("cpu", "percent"),
         Column("memory", "bytes"), Column("used", "percent"), Column("net in", "bytes/s"),
         Column("flops", "Flops/s"), Column("power", "W"), Column("gpus"), Column("jobs"),
         Column("lines/s"), Column("age", "s")),
        _nodes,
    ),
    "jobs": TopView(
        (_text("cluster"), Column("job"), _text("user"), _text("partition"), _text("state"),
         Column("nodes"), Column("load"), Column("memory", "bytes"), Column("flops", "Flops/s"),
         Column("elapsed", "s")),
        _jobs,
    ),
    "gpus": TopView(
        (_text("cluster"), _text("node"), _text("gpu"), Column("used", "percent"),
         Column("memory", "bytes"), Column("power", "W"), Column("temperature", "degC")),
        _gpus,
    ),
    "errors": TopView(
        (Column("age", "s", descending=False), _text("from"), _text("text")),
        _errors,
    ),
}  # fmt: skip
"""All tables, in the order of their keys 1 to 5."""

DEFAULT_SORT = {"clusters": 0, "nodes": 2, "jobs": 9, "gpus": 3, "errors": 0}


def select_rows(
    view: TopView,
    rows: Iterable[TopRow],
    *,
    sort: int,
    reverse: bool,
    words: Sequence[str],
    maximum: int,
) -> list[TopRow]:
    """Return the rows that contain all words, sorted; NaN is last."""
    wanted = [word.lower() for word in words]
    found = [
        row
        for row in rows
        if all(word in " ".join(map(str, row.values)).lower() for word in wanted)
    ]
    descending = view.columns[sort].descending != reverse

    def is_missing(row: TopRow) -> bool:
        value = row.values[sort]
        return isinstance(value, float) and math.isnan(value)

    known = [row for row in found if not is_missing(row)]
    known.sort(key=lambda row: row.values[sort], reverse=descending)
    return (known + [row for row in found if is_missing(row)])[:maximum]


def printable_cells(view: TopView, row: TopRow) -> list[str]:
    return [
        _cell(value, column.unit) for value, column in zip(row.values, view.columns, strict=True)
    ]


def _cell(value: object, unit: str) -> str:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float) and math.isnan(value):
        return "-"
    assert isinstance(value, int | float)
    return age(value) if unit == "s" else short(value, unit, digits=3)


def age(seconds: float) -> str:
    """Format an elapsed time as ``12s``, ``5m`` or ``3d04h``."""
    whole = max(0, int(seconds))
    minute, hour, day = 60, 3600, 86400
    if whole < minute:
        return f"{whole}s"
    if whole < hour:
        return f"{whole // minute}m{whole % minute:02d}s"
    if whole < day:
        return f"{whole // hour}h{whole % hour // minute:02d}m"
    return f"{whole // day}d{whole % day // hour:02d}h"


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
