"""The series of a simulated node, from the real collectors' metric tables, and their values.

Each series walks along a ring of some thousand values; nodes start at different positions. The
values of a ring are encoded once. Nodes that run the same kind of job share rings.
"""

import functools
import importlib
import random
from array import array
from collections.abc import Iterator, Sequence
from operator import add
from typing import NamedTuple

from ccpipe.node.sampling.collector import Metric
from ccpipe.simulate.kinds import (
    GPU_MEMORY,
    IDLE,
    JOB_MEMORY,
    NODE_MEMORY,
    JobKind,
    Limits,
    limits,
)

COLLECTORS = (
    "load",
    "memory",
    "cpu",
    "network",
    "rapl",
    "counters.perf",
    "gpu.nvidia",
    "pressure",
    "infiniband",
    "storage.disk",
    "storage.lustre",
    "processes",
    "temperature",
    "numa",
    "slurm_cgroup",
    "storage.nfs",
)
"""Modules of collectors, in the order in which nodes get their metrics."""

_DEVICES = {
    "network": ("eth0", "ib0"),
    "device": ("nvme0n1",),
    "filesystem": ("scratch",),
    "sensor": ("Package",),
    "disk": ("nvme0n1",),
    "job": ("\1",),  # a placeholder of the job's id
}
"""Values of the tag ``stype-id``, by value of ``stype``."""


_FIRST = (
    "cpu_load", "cpu_user", "mem_used", "flops_any", "mem_bw", "cpu_power", "nv_util",
    "nv_fb_mem_used", "nv_power_usage", "nv_temp", "net_bytes_in_bw", "net_bytes_out_bw",
    "ib_recv_bw", "ib_xmit_bw", "lustre_read_bw", "lustre_write_bw", "temperature", "mem_power",
    "ipc", "flops_dp", "flops_sp", "psi_cpu_some", "psi_memory_some", "psi_io_some", "io_reads",
    "io_writes", "part_max_used", "procs_running", "procs_disk_sleep", "procs_zombie",
    "num_cpus", "cpu_used", "cpu_system", "cpu_idle", "cpu_iowait", "mem_total", "mem_cached",
    "mem_free", "swap_used", "load_five", "load_fifteen", "nv_fb_mem_total", "nv_mem_util",
    "ib_total_bw", "job_mem_used", "job_max_mem_used", "job_mem_limit", "job_user_cpu",
    "job_sys_cpu", "job_read_bytes", "job_write_bytes", "job_psi_cpu_some",
    "job_psi_memory_some", "job_psi_io_some",
)  # fmt: skip
"""Metrics shown by the pages of the dashboard and cc-backend, and by Grafana's dashboards; the
hardware threads of ``_OF_HWTHREADS`` are next, and then the others."""
_OF_HWTHREADS = "cpu_used"
_RANK = {name: rank for rank, name in enumerate(_FIRST)}


class NodeParts(NamedTuple):
    """Number of parts of each type in a node."""

    hwthread: int = 64
    socket: int = 2
    memoryDomain: int = 2  # noqa: N815 - the value of the tag ``type``
    accelerator: int = 0


class SimulatedSeries(NamedTuple):
    """One series of a node."""

    metric: Metric
    tags: tuple[tuple[str, str], ...]  # without ``cluster`` and ``hostname``

    @property
    def is_of_job(self) -> bool:
        """Whether it is about a job, whose id is then the tag ``stype-id``."""
        return ("stype", "job") in self.tags


def node_series(parts: NodeParts, limit: int) -> list[SimulatedSeries]:
    """Return the first `limit` series of a node, starting with series of the whole node.

    Metrics that only parts have, such as a socket's power, are among them, and those of the job on
    the node. Other series of parts follow in turn, so that a small limit includes some of each.
    """
    metrics = sorted(_metrics(parts), key=lambda each: _RANK.get(each.name, len(_RANK)))
    shown = [each for each in metrics if each.name in _RANK]
    found = [series for each in shown for series in _whole(each, parts)]
    for metric in shown:
        if metric.name == _OF_HWTHREADS:
            for index in range(parts.hwthread):
                found.extend(_part(metric, parts, index))
    others = [each for each in metrics if each.name not in _RANK]
    found += [series for each in others for series in _whole(each, parts)]
    for index in range(max(parts)):
        for metric in metrics:
            if "node" in metric.types and metric.name != _OF_HWTHREADS:
                found.extend(_part(metric, parts, index))
        if len(found) >= limit:
            break
    return found[:limit]


def _metrics(parts: NodeParts) -> Iterator[Metric]:
    for name in COLLECTORS:
        if name == "gpu.nvidia" and not parts.accelerator:
            continue
        module = importlib.import_module(f"ccpipe.node.collectors.{name}")
        table: Sequence[Metric] = module.METRICS
        yield from table


def _whole(metric: Metric, parts: NodeParts) -> Iterator[SimulatedSeries]:
    if "node" not in metric.types:
        for index in range(max(parts)):
            yield from _part(metric, parts, index)
        return
    if not metric.stype:
        yield SimulatedSeries(metric, (("type", "node"),))
    for device in _DEVICES.get(metric.stype, ()):
        yield SimulatedSeries(
            metric, (("stype", metric.stype), ("stype-id", device), ("type", "node"))
        )


def _part(metric: Metric, parts: NodeParts, index: int) -> Iterator[SimulatedSeries]:
    for kind in metric.types:
        if kind != "node" and not metric.stype and index < getattr(parts, kind, 0):
            yield SimulatedSeries(metric, (("type", kind), ("type-id", str(index))))


RING = 4096
"""Length of a ring: eleven hours of samples every ten seconds.

A counter then starts over, as after a reboot.
"""
MASK = RING - 1


class GaugeRange(NamedTuple):
    """The values of a gauge on an idle and on a busy node."""

    idle: Limits
    busy: Limits


_RANGES = {
    "percent": GaugeRange((0, 0.2), (0, 2)),
    "kB": GaugeRange((1e4, 2e6), (1e5, 4e6)),
    "MByte": GaugeRange((0, 500), (0, 500)),
    "W": GaugeRange((10, 20), (20, 40)),
    "degC": GaugeRange((30, 40), (55, 80)),
    "MHz": GaugeRange((800, 1500), (2400, 3500)),
    "bytes/s": GaugeRange((0, 1e5), (1e7, 2e9)),
    "": GaugeRange((0, 2), (0, 8)),
}
_RANGES_BY_NAME = {
    "proc_total": GaugeRange((400, 450), (500, 700)),
    "procs_total": GaugeRange((400, 450), (500, 700)),
    "procs_sleeping": GaugeRange((380, 430), (420, 600)),
    "threads_total": GaugeRange((800, 900), (1200, 1500)),
    "procs_disk_sleep": GaugeRange((0, 1), (0, 3)),
    "part_max_used": GaugeRange((62, 63), (62, 63)),
    "mem_cached": GaugeRange((2e6, 3e6), (3e6, 6e6)),
    "psi_cpu_some": GaugeRange((0, 0.1), (0.5, 6)),
    "job_psi_cpu_some": GaugeRange((0, 0.1), (0.5, 6)),
}
_COUNTERS = {"bytes", "packets", "pages", "requests", "J", "512 bytes", "ms", "ticks"}
_COUNTS = {"io_reads", "io_writes", "forks", "context_switches", "interrupts"}
"""Counters without a unit; the operations of network file systems are others."""
_CONSTANTS = {
    "mem_total": NODE_MEMORY, "swap_total": 0, "swap_free": 0, "swap_used": 0, "cpu_nice": 0,
    "cpu_steal": 0, "cpu_guest": 0, "cpu_guest_nice": 0, "nv_fb_mem_total": GPU_MEMORY,
    "nv_ecc_mode": 1, "procs_zombie": 0, "procs_stopped": 0, "num_cpus": 1,
    "job_mem_limit": 1000 * JOB_MEMORY, "ib_active": 1,
}  # fmt: skip
"""Values that never change; of ``num_cpus`` for one hardware thread."""
_ZERO = ("error", "nv_xid", "nv_last_xid", "nv_violation", "nv_remapped", "nv_throttle", "discard")
"""Parts of the names of metrics that are 0 on a healthy node."""
_CUMULATIVE_RATE = 5_000.0  # mean increase of a counter from one sample to the next
TOP = 255
"""The level of a gauge with full activity; without any it is 0."""
_NOISE = 0.04
"""Deviation of a metric from the activity of its node."""
_NOISES = 8
"""Number of noises, of which each metric has one."""
_EXACT = frozenset({"cpu_used", "cpu_user", "cpu_system", "cpu_idle"})
"""Metrics without deviation, as they add up."""


class Ring(NamedTuple):
    """The values of a series: at place `i` of the ring, ``levels[course[i]]``."""

    levels: Sequence[bytes]
    """Encoded values, each once."""
    course: "array[int]"


class Rings:
    """The rings of a simulated cluster, made when a node first needs them; reproducible by seed."""

    def __init__(self, seed: int) -> None:
        self._known: dict[tuple[str, float, Limits | None], Ring] = {}
        self._draw = functools.partial(_random, seed)
        self._activity = functools.cache(self._walk)
        self._noise = functools.cache(self._deviations)
        self._course = functools.cache(self._combined)

    def ring(self, metric: Metric, kind: JobKind, scale: float = 1.0) -> Ring:
        """Return the values of a metric, times `scale`, while a kind of job runs."""
        between = _limits(metric, kind)
        key = metric.name, scale, between
        found = self._known.get(key)
        if found is None:
            draw = self._draw(metric.name)
            if between is None:
                found = Ring(_counter(metric, draw), array("H", range(RING)))
            elif between[0] == between[1]:
                found = Ring([_encode(metric, between[0] * scale)], array("H", bytes(2 * RING)))
            else:
                first, span = between[0] * scale, (between[1] - between[0]) * scale
                levels = [_encode(metric, first + span * i / TOP) for i in range(TOP + 1)]
                noise = -1 if metric.name in _EXACT else draw.randrange(_NOISES)
                found = Ring(levels, self._course(kind.name, noise))
            self._known[key] = found
        return found

    def _combined(self, kind: str, noise: int) -> "array[int]":
        """Return the course of the gauges of a kind of job that have one of the noises, or none."""
        deviations = self._noise(noise) if noise >= 0 else [0] * RING
        levels = map(add, self._activity(kind), deviations)
        return array("H", [min(max(level, 0), TOP) for level in levels])

    def _walk(self, kind: str) -> list[int]:
        """Return a random walk that reverts to the middle, and dips at times, in levels."""
        draw, value, found = self._draw(f"activity/{kind}"), 0.6, []
        for _ in range(RING):
            value += 0.1 * (0.6 - value) + draw.gauss(0, 0.1)
            value = min(max(value, 0.0), 1.0)
            found.append(round(TOP * value))
        return found

    def _deviations(self, noise: int) -> list[int]:
        draw = self._draw(f"noise/{noise}")
        return [round(TOP * draw.gauss(0, _NOISE)) for _ in range(RING)]


def _random(seed: int, of: str) -> random.Random:
    return random.Random(f"{seed}/{of}")  # noqa: S311 - reproducible on purpose


def _limits(metric: Metric, kind: JobKind) -> Limits | None:
    """Return between which values a gauge is; None for a counter."""
    name = metric.name
    if name in _CONSTANTS:
        return _CONSTANTS[name], _CONSTANTS[name]
    if any(each in name for each in _ZERO):
        return 0, 0
    if (found := limits(metric, kind)) is not None:
        return found
    if metric.unit in _COUNTERS or name in _COUNTS or name.startswith("nfs"):
        return None
    idle, busy = _RANGES_BY_NAME.get(name) or _RANGES.get(metric.unit, _RANGES[""])
    return idle if kind is IDLE else busy


def _counter(metric: Metric, draw: random.Random) -> list[bytes]:
    total, found = 0.0, []
    for _ in range(RING):
        total += draw.expovariate(1 / _CUMULATIVE_RATE)
        found.append(_encode(metric, total))
    return found


def _encode(metric: Metric, value: float) -> bytes:
    return b"%di" % round(value) if metric.kind is int else b"%.6g" % value


def scale_of(series: SimulatedSeries, parts: NodeParts) -> float:
    """Return the factor of a series.

    A node's loads and percentages are sums over its hardware threads; a part has its share of what
    a node has.
    """
    metric, tags = series
    kind = dict(tags)["type"]
    if metric.name in _SUMS or (metric.unit == "percent" and "hwthread" in metric.types):
        return parts.hwthread if kind == "node" else 1
    if kind == "node" or "node" not in metric.types or metric.is_averaged:
        return 1
    return 1 / float(getattr(parts, kind))


_SUMS = {
    "cpu_load", "load_five", "load_fifteen", "proc_run", "procs_running", "num_cpus",
    "job_user_cpu", "job_sys_cpu",
}  # fmt: skip
