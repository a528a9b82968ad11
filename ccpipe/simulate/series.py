"""The series of a simulated node: those of the real collectors' metric tables."""

import importlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ccpipe.node.sampling.metrics import Metric

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
"""Values of the tag ``stype-id``, by those of ``stype``."""


_FIRST = (
    "cpu_load", "cpu_user", "mem_used", "flops_any", "mem_bw", "cpu_power", "nv_util",
    "nv_fb_mem_used", "nv_power_usage", "nv_temp", "net_bytes_in_bw", "net_bytes_out_bw",
    "ib_recv_bw", "ib_xmit_bw", "lustre_read_bw", "lustre_write_bw", "temperature", "mem_power",
    "ipc", "flops_dp", "flops_sp", "psi_cpu_some", "psi_memory_some", "psi_io_some", "io_reads",
    "io_writes", "part_max_used", "procs_running", "procs_disk_sleep", "procs_zombie",
)  # fmt: skip
"""What the pages of cc-backend and Grafana show; the other metrics follow."""
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
    """Return the first `limit` series of a node, starting with those of the whole node.

    Metrics that only parts have, such as a socket's power, stand among them. Other series of parts
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
