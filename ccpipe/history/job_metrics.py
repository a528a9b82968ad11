"""The statistics of a job's metrics, attributed to the job.

Only what belongs to the job counts. On a node that it does not share that is everything; on a
shared one it is the job's cgroup (collector ``slurm_cgroup``), its hardware threads and its GPUs.
What cannot be attributed to the job is unknown, not the node's.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.units import parse_unit
from ccpipe.history.interfaces import MetricStatistics
from ccpipe.jobs import Job, JobNode
from ccpipe.node.sampling.collector import PLATFORM_POWER, POWERS

MIB = 2**20
GPU_POWERS = ("nv_power_usage", "rocm_avg_power")
GPU_USE = ("nv_util", "rocm_gfx_util")
"""Percent of the time that a GPU was busy."""
BUSY = ("cpu_user", "cpu_nice", "cpu_system", "cpu_irq", "cpu_softirq")
"""Add up to ``cpu_used``, which cc-metric-collector does not send; percent of one hardware thread,
where the value of a whole node is the sum over its hardware threads."""
SHOWN = (
    "cpu_used", "cpu_user", "cpu_load", "flops_any", "mem_bw", "ipc", "clock", "mem_used",
    *GPU_USE, "nv_fb_mem_used", "rocm_mem_used", "net_bytes_in_bw", "net_bytes_out_bw",
    "ib_total_bw", "lustre_read_bw", "lustre_write_bw", *POWERS, PLATFORM_POWER,
)  # fmt: skip
"""Metrics whose statistics a report has."""
NEEDED = (
    *BUSY, "num_cpus", "mem_total", "job_user_cpu", "job_sys_cpu", "job_mem_used", "job_mem_limit",
)  # fmt: skip
"""Metrics from which a report is computed besides."""
UNITS = {
    "mem_used": "kB", "mem_total": "kB", "job_mem_used": "bytes", "job_mem_limit": "bytes",
}  # fmt: skip


class Efficiency(msgspec.Struct, frozen=True):
    """How much was used of what was allocated, on the nodes where both are known."""

    used: float
    allocated: float
    nodes: int
    """Number of nodes on which both are known."""

    @property
    def share(self) -> float:
        return self.used / self.allocated


class JobMetrics:
    """The statistics of a job's metrics, attributed to the job."""

    def __init__(
        self, job: Job, statistics: Collection[MetricStatistics], units: Mapping[str, str]
    ) -> None:
        self.job = job
        self.metrics = {each.metric for each in statistics if each.count}
        self._units = units
        self._parts: dict[tuple[str, str], dict[str, MetricStatistics]] = defaultdict(dict)
        for each in statistics:
            if each.count:
                self._parts[each.hostname, each.metric][each.part] = each

    def has(self, node: JobNode) -> bool:
        return any(hostname == node.hostname for hostname, _ in self._parts)

    def of(self, node: JobNode, metric: str, part: str = "") -> MetricStatistics | None:
        return self._parts.get((node.hostname, metric), {}).get(part)

    def mean(self, metric: str, node: JobNode) -> float | None:
        """Return the mean of a metric on a node that the job does not share."""
        found = None if self.job.shares_nodes else self.of(node, metric)
        return found.mean if found else None

    def threads(self, node: JobNode) -> float | None:
        """Return how many hardware threads the job has on a node."""
        if own := len(node.hwthreads) or node.cpus:
            return own
        if self.job.hwthreads:
            return self.job.hwthreads / len(self.job.nodes)
        count = self.of(node, "num_cpus")
        return count.maximum if count and not self.job.shares_nodes else None

    def share(self, node: JobNode) -> float | None:
        """Return the part of a node that the job has, by hardware threads; None if unknown."""
        if not self.job.shares_nodes:
            return 1.0
        own, count = len(node.hwthreads) or node.cpus, self.of(node, "num_cpus")
        return min(1.0, own / count.maximum) if own and count and count.maximum else None

    def busy(self, node: JobNode) -> float | None:
        """Return the mean number of hardware threads in use on a node."""
        part = f"job {self.job.id}"
        own = [self.of(node, metric, part) for metric in ("job_user_cpu", "job_sys_cpu")]
        if found := [each.mean for each in own if each]:
            return sum(found) / 100
        used = self.of(node, "cpu_used")
        parts = [used] if used else [self.of(node, metric) for metric in BUSY]
        known = [each for each in parts if each]
        if not self.job.shares_nodes:
            return sum(each.mean for each in known) / 100 if known else None
        if not known or not all(each.is_restricted for each in known):
            return None  # the store has no values of single hardware threads
        # of some hardware threads a store returns the mean, of a whole node what it sent: the sum
        return sum(each.mean for each in known) / 100 * len(node.hwthreads)

    def peak_memory(self, node: JobNode) -> float | None:
        """Return the highest memory use on a node, in bytes."""
        own = self._bytes(node, "job_mem_used", f"job {self.job.id}")
        if own is not None or self.job.shares_nodes:
            return own
        return self._bytes(node, "mem_used")

    def memory_limit(self, node: JobNode) -> float | None:
        """Return the memory that is allocated on a node, in bytes."""
        if node.memory:
            return node.memory * MIB
        if limit := self._bytes(node, "job_mem_limit", f"job {self.job.id}"):
            return limit
        if self.job.memory:
            return self.job.memory
        return None if self.job.shares_nodes else self._bytes(node, "mem_total")

    def _bytes(self, node: JobNode, metric: str, part: str = "") -> float | None:
        found = self.of(node, metric, part)
        if found is None:
            return None
        try:
            scale = parse_unit(self._units.get(metric) or UNITS[metric]).scale
        except DataError:
            return None
        return found.maximum * float(scale)

    def gpus(self) -> Iterator[tuple[str, str, MetricStatistics]]:
        """Yield node, id and utilization of each GPU of the job."""
        for node in self.job.nodes:
            for metric in GPU_USE:
                for id_ in self._own_gpus(node, metric):
                    yield node.hostname, id_, self._parts[node.hostname, metric][_gpu(id_)]

    def _own_gpus(self, node: JobNode, metric: str) -> list[str]:
        parts = self._parts.get((node.hostname, metric), {})
        words = [part.split(" ") for part in sorted(parts)]
        ids = [word[1] for word in words if word[0] == "accelerator" and len(word) == 2]  # noqa: PLR2004
        own = [id_ for id_ in ids if id_ in node.accelerators]
        return own if own or self.job.shares_nodes else ids

    def _sum(
        self, of_node: Callable[[JobNode], float | None], limit: Callable[[JobNode], float | None]
    ) -> Efficiency | None:
        pairs = [(of_node(node), limit(node)) for node in self.job.nodes]
        known = [(used, most) for used, most in pairs if used is not None and most]
        if not known:
            return None
        used, allocated = (sum(column) for column in zip(*known, strict=True))
        return Efficiency(used, allocated, len(known))

    def cpu(self) -> Efficiency | None:
        return self._sum(self.busy, self.threads)

    def memory(self) -> Efficiency | None:
        return self._sum(self.peak_memory, self.memory_limit)

    def gpu(self) -> Efficiency | None:
        found = list(self.gpus())
        used = sum(each.mean for *_, each in found) / 100
        nodes = len({hostname for hostname, *_ in found})
        return Efficiency(used, len(found), nodes) if found else None

    def power_shares(
        self, powers: Sequence[str]
    ) -> Iterator[tuple[JobNode, tuple[str, ...], float]]:
        """Yield nodes with those power metrics that the job has a known share of, and the share.

        Of a node that it shares the job has a part, and whole GPUs.
        """
        for node in self.job.nodes:
            share = self.share(node)
            if share == 1:
                shared = [(tuple(name for name in powers if self.of(node, name)), 1.0)]
            else:
                gpus = [name for name in powers if name in GPU_POWERS]
                others = [name for name in powers if name not in gpus and self.of(node, name)]
                shared = [(tuple(name for name in gpus if self._own_gpus(node, name)), 1.0)]
                if share is not None:
                    shared.append((tuple(others), share))
            for names, part in shared:
                if names:
                    yield node, names, part


def _gpu(id_: str) -> str:
    return f"accelerator {id_}"
