"""Kinds of simulated jobs, and the values of metrics on nodes that run them.

A node's values follow one activity, a number from 0 to 1 that changes with time: each metric has a
value without and one with full activity. So power and temperature follow the load, and a job's
floating-point rate and memory bandwidth lie where its kind belongs in a roofline.
"""

from typing import NamedTuple

from ccpipe.node.sampling.collector import Metric

NODE_MEMORY = 263_000_000  # kB
JOB_MEMORY = 255_000_000
"""Memory limit of a job on each node, in kB."""
GPU_MEMORY = 81_559  # MByte

Limits = tuple[float, float]
"""A metric's value without activity, and with full activity."""


class JobKind(NamedTuple):
    """What limits a job, and what it uses of each of its nodes."""

    name: str
    weight: float
    """How frequent it is."""
    programs: tuple[str, ...]
    cpu: Limits
    """Used share of the time of the hardware threads."""
    flops: Limits = (0.0, 1e7)
    """Floating-point operations per second."""
    bandwidth: Limits = (20.0, 200.0)
    """Memory bandwidth in MByte/s."""
    memory: Limits = (0.012, 0.03)
    """Used share of the memory."""
    ipc: Limits = (0.1, 0.4)
    gpu: Limits = (0.0, 0.2)
    """Percent of the time of each GPU."""
    gpu_memory: Limits = (0.005, 0.006)
    network: Limits = (1e3, 1e5)
    """Bytes per second and interface."""
    files: Limits = (0.0, 1e4)
    """Bytes per second, read and written."""
    waits: float = 0.5
    """Percent of the time that tasks wait for memory."""


IDLE = JobKind("idle", 0, (), cpu=(0.0, 0.02))
COMPUTE = JobKind(
    "compute", 30, ("gromacs", "lmp", "namd3"), cpu=(0.92, 1.0), flops=(1.2e12, 1.9e12),
    bandwidth=(4e4, 8e4), memory=(0.12, 0.2), ipc=(2.0, 2.8), network=(1e8, 6e8),
    files=(1e5, 2e7),
)  # fmt: skip
MEMORY = JobKind(
    "memory", 24, ("openfoam", "icon", "vasp_std"), cpu=(0.88, 0.98), flops=(8e10, 1.6e11),
    bandwidth=(2.6e5, 3.5e5), memory=(0.45, 0.6), ipc=(0.5, 0.8), network=(5e8, 2e9),
    files=(1e6, 2e8),
)  # fmt: skip
BALANCED = JobKind(
    "balanced", 14, ("cp2k.psmp", "pw.x"), cpu=(0.8, 0.97), flops=(3.5e11, 6.5e11),
    bandwidth=(1.4e5, 2.2e5), memory=(0.3, 0.45), ipc=(1.2, 1.7), network=(2e8, 9e8),
    files=(1e6, 4e7),
)  # fmt: skip
FILES = JobKind(
    "files", 6, ("python3",), cpu=(0.25, 0.6), flops=(1e9, 2e10), bandwidth=(1e4, 5e4),
    memory=(0.2, 0.35), ipc=(0.7, 1.2), network=(1e8, 4e8), files=(2e8, 2e9),
)  # fmt: skip
SERIAL = JobKind(
    "serial", 4, ("Rscript",), cpu=(0.014, 0.018), flops=(2e9, 8e9), bandwidth=(1e3, 4e3),
    memory=(0.04, 0.06), ipc=(1.3, 1.9),
)  # fmt: skip
FULL_MEMORY = JobKind(
    "full memory", 4, ("orca",), cpu=(0.6, 0.9), flops=(1e11, 2e11), bandwidth=(1.5e5, 2.5e5),
    memory=(0.955, 0.98), ipc=(0.6, 1.0), files=(1e7, 3e8), waits=40.0,
)  # fmt: skip
GPU = JobKind(
    "gpu", 22, ("train",), cpu=(0.12, 0.3), flops=(1e10, 5e10), bandwidth=(1e4, 4e4),
    memory=(0.2, 0.3), ipc=(1.0, 1.4), gpu=(82.0, 99.0), gpu_memory=(0.75, 0.92),
    network=(2e8, 1.5e9), files=(1e7, 4e8),
)  # fmt: skip
IDLE_GPU = COMPUTE._replace(name="idle gpu", weight=4, programs=("amber",))
"""A job that has GPUs and does not use them."""
SLOW_NODE = JobKind(
    "slow node", 0, (), cpu=(0.2, 0.28), flops=(5e9, 2e10), bandwidth=(5e3, 1e4),
    memory=(0.1, 0.15), ipc=(0.2, 0.4), network=(1e7, 6e7),
)  # fmt: skip
"""Not a job's kind: a node of a job that is out of line with the others."""

CPU_KINDS = (COMPUTE, MEMORY, BALANCED, FILES, SERIAL, FULL_MEMORY)
GPU_KINDS = (GPU, IDLE_GPU)


def limits(metric: Metric, kind: JobKind) -> Limits | None:
    """Return a metric's limits on a node, or socket, GPU or device, that runs a kind of job.

    Of percentages and loads, the limits are those of one hardware thread. None for a metric that
    does not depend on the kind of a job.
    """
    low, high = kind.cpu
    if metric.name in _CPU_TIMES:
        share = _CPU_TIMES[metric.name]
        return share * low, share * high
    if metric.name in _PER_FULL_SCALE:
        scale, limits_ = _PER_FULL_SCALE[metric.name], getattr(kind, _FIELDS[metric.name])
        return scale * limits_[0], scale * limits_[1]
    return _derived(metric.name, kind)


_CPU_TIMES = {
    "cpu_used": 100.0, "cpu_user": 97.0, "cpu_system": 3.0, "job_user_cpu": 97.0,
    "job_sys_cpu": 3.0, "cpu_load": 1.0, "load_five": 1.0, "load_fifteen": 1.0, "proc_run": 1.0,
    "procs_running": 1.0,
}  # fmt: skip
"""Values of a hardware thread that is busy all the time."""

_FIELDS = {
    "flops_any": "flops", "flops_dp": "flops", "flops_sp": "flops", "mem_bw": "bandwidth",
    "ipc": "ipc", "mem_used": "memory", "mem_active": "memory", "mem_anon_pages": "memory",
    "mem_mapped": "memory", "job_mem_used": "memory", "nv_util": "gpu", "nv_mem_util": "gpu",
    "nv_sm_util": "gpu", "nv_fb_mem_used": "gpu_memory", "net_bytes_in_bw": "network",
    "net_bytes_out_bw": "network", "ib_recv_bw": "network", "ib_xmit_bw": "network",
    "ib_total_bw": "network", "lustre_read_bw": "files", "lustre_write_bw": "files",
    "job_read_bytes": "files", "job_write_bytes": "files",
}  # fmt: skip
_PER_FULL_SCALE = {
    **dict.fromkeys(_FIELDS, 1.0),
    "flops_dp": 0.9, "flops_sp": 0.2, "mem_used": NODE_MEMORY, "mem_active": 0.7 * NODE_MEMORY,
    "mem_anon_pages": 0.8 * NODE_MEMORY, "mem_mapped": 0.05 * NODE_MEMORY,
    "job_mem_used": 1000 * JOB_MEMORY, "nv_mem_util": 0.6, "nv_fb_mem_used": GPU_MEMORY,
    "ib_total_bw": 2.0, "lustre_write_bw": 0.4, "job_write_bytes": 0.4,
}  # fmt: skip
"""Factors of the fields of a kind."""

_CACHED = 6_000_000  # kB of page cache
_HEAT = 0.45  # degrees per percent of a GPU's time


def _derived(name: str, kind: JobKind) -> Limits | None:
    """Return the limits of a metric that several fields of a kind determine."""
    low, high = kind.cpu
    used = [share * NODE_MEMORY for share in kind.memory]
    traffic = [each / 3.5e5 for each in kind.bandwidth]
    power = [70 + 150 * cpu + 60 * cpu * min(1, kind.ipc[1] / 2) for cpu in kind.cpu]
    found: dict[str, Limits] = {
        "cpu_idle": (99.7 - 99.6 * low, 99.7 - 99.6 * high),
        "mem_free": tuple(max(NODE_MEMORY - each - _CACHED, 5e5) for each in used),  # type: ignore[dict-item]
        "mem_available": tuple(NODE_MEMORY - each for each in used),  # type: ignore[dict-item]
        "job_max_mem_used": (1000 * JOB_MEMORY * kind.memory[1],) * 2,
        "psi_memory_some": (0.5 * kind.waits, kind.waits),
        "psi_memory_full": (0.2 * kind.waits, 0.5 * kind.waits),
        "job_psi_memory_some": (0.5 * kind.waits, kind.waits),
        "job_psi_memory_full": (0.2 * kind.waits, 0.5 * kind.waits),
        "cpu_power": (power[0], power[1]),
        "core_power": (0.8 * power[0], 0.8 * power[1]),
        "mem_power": (8 + 22 * traffic[0], 8 + 22 * traffic[1]),
        "platform_power": (2.3 * power[0] + 90, 2.3 * power[1] + 90),
        "temperature": (30 + 0.16 * power[0], 30 + 0.16 * power[1]),
        "nv_power_usage": (62 + 3.2 * kind.gpu[0], 62 + 3.2 * kind.gpu[1]),
        "nv_average_power": (62 + 3.2 * kind.gpu[0], 62 + 3.2 * kind.gpu[1]),
        "nv_temp": (31 + _HEAT * kind.gpu[0], 31 + _HEAT * kind.gpu[1]),
    }
    return found.get(name)
