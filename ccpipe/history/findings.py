"""What went wrong in a job, in words: each finding is one sentence with its number and unit."""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import msgspec

from ccpipe.history.job_metrics import Efficiency, JobMetrics
from ccpipe.jobs import Job, JobNode
from ccpipe.terminal import format_elapsed, in_bytes, listed, plural

MIN_SECONDS = 60
"""Shorter jobs consist mostly of their start, and have too few samples for a judgement."""
IDLE_GPU = 1.0
"""Percent of the time: the driver's own work is less, any program's is more."""
LOW_CPU = 0.4
"""One thread on each core of two hardware threads uses 0.5 of them, which is normal."""
FULL_MEMORY = 0.95
"""Beyond it the kernel reclaims page cache all the time, and the next allocation may fail."""
OUTLIER = 0.5
"""A node's distance from the median, relative to it: work that is distributed unevenly on purpose
rarely differs by half."""
MIN_NODES = 3
"""With fewer nodes there is no majority that one of them could differ from."""
MAX_OUTLIERS = 0.2
"""Share of the nodes: if more differ, the work is uneven, and no single node is at fault."""
KILLED = 137  # 128 + SIGKILL
OUT_OF_MEMORY = 253  # 128 + 125, Slurm's exit code 0:125
COMPARED = (("flops_any", "floating-point rate"), ("mem_bw", "memory bandwidth"))


class JobFinding(msgspec.Struct, frozen=True):
    """Something that went wrong."""

    kind: str
    """Such as ``timeout`` or ``idle_gpus``."""
    text: str
    """One sentence, with numbers and units."""


def findings(metrics: JobMetrics, seconds: float, cpu: Efficiency | None) -> list[JobFinding]:
    """Return what went wrong in a job that took some time, the cause of its end first."""
    job = metrics.job
    found = [*_end(job, seconds), *_memory(metrics)]
    if seconds >= MIN_SECONDS:
        found += [*_gpus(metrics), *_low_cpu(job, cpu), *_outliers(metrics)]
    return [*found, *_missing(metrics)]


def _end(job: Job, seconds: float) -> Iterator[JobFinding]:
    code = job.exit_code
    if job.state == "out_of_memory" or code == OUT_OF_MEMORY:
        yield JobFinding("out_of_memory", "The kernel ended the job because it was out of memory.")
    elif code == KILLED:
        yield JobFinding(
            "killed", "Killed by signal 9 (exit code 137), as by the kernel when out of memory."
        )
    elif job.state in ("timeout", "deadline"):
        limit = f" of {format_elapsed(job.walltime)}" if job.walltime else ""
        yield JobFinding(
            "timeout",
            f"Reached its time limit{limit}, and was ended after {format_elapsed(seconds)}.",
        )
    elif job.state in _ENDS:
        yield JobFinding(job.state, _ENDS[job.state])
    elif job.state == "failed" or code:
        text = f" with exit code {code}" if code else ""
        yield JobFinding("failed", f"Failed{text} after {format_elapsed(seconds)}.")


_ENDS = {
    "node_fail": "A node of the job failed.",
    "boot_fail": "A node of the job could not be started.",
    "preempted": "Preempted by another job.",
}


def _memory(metrics: JobMetrics) -> Iterator[JobFinding]:
    full: list[tuple[float, str, float, float]] = []
    for node in metrics.job.nodes:
        peak, limit = metrics.peak_memory(node), metrics.memory_limit(node)
        if peak is not None and limit and peak >= FULL_MEMORY * limit:
            full.append((peak / limit, node.hostname, peak, limit))
    if full:
        share, hostname, peak, limit = max(full)
        more = f", and at least {_percent(FULL_MEMORY)} on {plural(len(full) - 1, 'other node')}"
        yield JobFinding(
            "memory",
            f"Memory reached {_percent(share)} of its limit on {hostname}: "
            f"{in_bytes(peak)} of {in_bytes(limit)}{more if len(full) > 1 else ''}.",
        )


def _gpus(metrics: JobMetrics) -> Iterator[JobFinding]:
    gpus = list(metrics.gpus())
    idle = [f"{hostname} {id_}" for hostname, id_, use in gpus if use.mean < IDLE_GPU]
    if idle:
        verb = "was" if len(idle) == 1 else "were"
        yield JobFinding(
            "idle_gpus",
            f"{len(idle)} of {plural(len(gpus), 'GPU')} {verb} idle, busy less than "
            f"{IDLE_GPU:g} % of the time: {listed(idle)}.",
        )


def _low_cpu(job: Job, cpu: Efficiency | None) -> Iterator[JobFinding]:
    """Yield low CPU use; the processors of a job with GPUs often wait for these."""
    if cpu and cpu.share < LOW_CPU and not job.accelerators:
        yield JobFinding(
            "low_cpu",
            f"Used {_percent(cpu.share)} of its processors: {cpu.used:.1f} of "
            f"{plural(round(cpu.allocated), 'hardware thread')} on average.",
        )


def _outliers(metrics: JobMetrics) -> Iterator[JobFinding]:
    """Yield the first quantity in which a few nodes differ from the others."""
    quantities: list[tuple[str, Callable[[JobNode], float | None]]] = [
        ("number of busy hardware threads", metrics.busy),
        *((words, partial(metrics.mean, metric)) for metric, words in COMPARED),
    ]
    for words, of_node in quantities:
        values = {
            node.hostname: value
            for node in metrics.job.nodes
            if (value := of_node(node)) is not None
        }
        middle = median(values.values()) if len(values) >= MIN_NODES else 0.0
        far = {host: v for host, v in values.items() if abs(v - middle) > OUTLIER * middle}
        if middle > 0 and 0 < len(far) <= max(1, MAX_OUTLIERS * len(values)):
            host = max(far, key=lambda host: abs(far[host] - middle))
            more = f" ({plural(len(far) - 1, 'other node')} too)" if len(far) > 1 else ""
            yield JobFinding(
                "outlier",
                f"{host} differs from the other nodes{more}: its mean {words} is "
                f"{_percent(far[host] / middle)} of the median of {plural(len(values), 'node')}.",
            )
            return


def _missing(metrics: JobMetrics) -> Iterator[JobFinding]:
    nodes = metrics.job.nodes
    missing = [node.hostname for node in nodes if not metrics.has(node)]
    if missing:
        yield JobFinding(
            "no_metrics",
            f"No metrics are stored for {len(missing)} of {plural(len(nodes), 'node')}: "
            f"{listed(missing)}.",
        )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
