"""The series of a simulated node, from the real collectors' metric tables, and their values.

Each series walks along a ring of some thousand values; nodes start at different positions. A ring
contains text, so that a line needs no formatting.
"""

import importlib
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ccpipe.node.sampling.collector import Metric

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
    "storage.nfs",
)
"""Modules of collectors, in the order in which nodes get their metrics."""

_DEVICES = {
    "network": ("eth0", "ib0"),
    "device": ("nvme0n1",),
    "filesystem": ("scratch",),
    "sensor": ("Package",),
    "disk": ("nvme0n1",),
}
"""Values of the tag ``stype-id``, by value of ``stype``."""


_FIRST = (
    "cpu_load", "cpu_user", "mem_used", "flops_any", "mem_bw", "cpu_power", "nv_util",
    "nv_fb_mem_used", "nv_power_usage", "nv_temp", "net_bytes_in_bw", "net_bytes_out_bw",
    "ib_recv_bw", "ib_xmit_bw", "lustre_read_bw", "lustre_write_bw", "temperature", "mem_power",
    "ipc", "flops_dp", "flops_sp", "psi_cpu_some", "psi_memory_some", "psi_io_some", "io_reads",
    "io_writes", "part_max_used", "procs_running", "procs_disk_sleep", "procs_zombie",
)  # fmt: skip
"""Metrics shown by cc-backend's pages and Grafana's dashboards; the others follow."""
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


def node_series(parts: NodeParts, limit: int) -> list[SimulatedSeries]:
    """Return the first `limit` series of a node, starting with series of the whole node.

    Metrics that only parts have, such as a socket's power, are among them. Other series of parts
    follow in turn, so that a small limit includes some of each.
    """
    metrics = sorted(_metrics(parts), key=lambda each: _RANK.get(each.name, len(_RANK)))
    found = [each for metric in metrics for each in _whole(metric, parts)]
    for index in range(max(parts)):
        for metric in metrics:
            if "node" in metric.types:
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

    idle: tuple[float, float]
    busy: tuple[float, float]


_RANGES = {
    "percent": GaugeRange((0, 5), (60, 100)),
    "kB": GaugeRange((2e6, 8e6), (6e7, 2.4e8)),
    "MByte": GaugeRange((0, 500), (1e4, 8e4)),
    "W": GaugeRange((60, 110), (250, 420)),
    "degC": GaugeRange((30, 40), (55, 80)),
    "MHz": GaugeRange((800, 1500), (2400, 3500)),
    "Flops/s": GaugeRange((0, 1e7), (2e11, 9e11)),
    "bytes/s": GaugeRange((0, 1e5), (1e7, 2e9)),
    "MByte/s": GaugeRange((0, 500), (4e4, 2.5e5)),
    "": GaugeRange((0, 2), (20, 128)),
}
_RANGES_BY_NAME = {
    "cpu_load": GaugeRange((0, 0.02), (0.85, 1.05)),  # per hardware thread
    "cpu_idle": GaugeRange((95, 100), (0, 5)),
    "ipc": GaugeRange((0.1, 0.4), (0.6, 2.6)),
}
_COUNTERS = {"bytes", "packets", "pages", "requests", "J", "512 bytes", "ms"}
NODE_MEMORY = 263_000_000  # kB
_CONSTANTS = {"mem_total": NODE_MEMORY, "num_cpus": 64, "swap_total": 0, "nv_fb_mem_total": 81_559}
_CUMULATIVE_RATE = 5_000.0  # mean increase of a counter from one sample to the next


class EncodedValues(NamedTuple):
    """The values of one metric, encoded as on the wire."""

    idle: list[bytes]
    busy: list[bytes]


def encoded_values(metric: Metric, seed: int, scale: int = 1) -> EncodedValues:
    """Return the encoded values of a metric, times `scale`; reproducible by seed."""
    if metric.name in _CONSTANTS:
        ring = [_encode(metric, _CONSTANTS[metric.name])] * RING
        return EncodedValues(ring, ring)
    draw = random.Random(f"{seed}/{metric.name}")  # noqa: S311 - reproducible on purpose
    if metric.unit in _COUNTERS:
        ring = _counter(metric, draw)
        return EncodedValues(ring, ring)
    limits = _RANGES_BY_NAME.get(metric.name) or _RANGES.get(metric.unit, _RANGES[""])
    idle, busy = ((low * scale, high * scale) for low, high in limits)
    return EncodedValues(_gauge(metric, idle, draw), _gauge(metric, busy, draw))


def _gauge(metric: Metric, limits: tuple[float, float], draw: random.Random) -> list[bytes]:
    """Return a random walk that reverts to the middle of its limits."""
    low, high = limits
    middle, width = (low + high) / 2, high - low
    value, found = middle, []
    for _ in range(RING):
        value += 0.1 * (middle - value) + draw.gauss(0, width / 10)
        value = min(max(value, low), high)
        found.append(_encode(metric, value))
    return found


def _counter(metric: Metric, draw: random.Random) -> list[bytes]:
    total, found = 0.0, []
    for _ in range(RING):
        total += draw.expovariate(1 / _CUMULATIVE_RATE)
        found.append(_encode(metric, total))
    return found


def _encode(metric: Metric, value: float) -> bytes:
    return b"%di" % round(value) if metric.kind is int else b"%.6g" % value
