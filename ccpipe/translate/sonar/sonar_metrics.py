"""The metric that each field of a Sonar sample becomes.

``docs/sonar/metrics.md`` is written from this table (``scripts/sonar_pages.py``).

Names and units are the same as of ccpipe's own collectors wherever they measure the same, so that
a dashboard works with either.
"""

from enum import StrEnum
from typing import NamedTuple

from ccpipe.config import Duration

MAX_FUTURE = Duration(600)
"""Default maximum by which a sample's time may be ahead of this machine's clock where counters or
integrals continue from it."""


class Formula(StrEnum):
    """Computation of a metric from a value, or from the sum over a job's processes."""

    LEVEL = "as it is"
    SHARE = "100 · gain / time"
    GAIN = "gain"
    RATE = "gain / time"


class SonarMetric(NamedTuple):
    """One metric."""

    name: str
    unit: str
    """Empty for a plain number or count."""
    kind: type[float]
    """``int`` or ``float``: the type on the wire."""
    field: str
    """The field that it is made of."""
    how: Formula = Formula.LEVEL
    scale: float = 1
    """Factor to the field: Sonar's kilobytes have 2¹⁰ bytes."""
    types: str = "node"
    """Value of the tag ``type``."""
    zero: bool = True
    """Whether 0 is a value: Sonar writes nothing else where it does not know one, so where none is
    0 in practice it is left out."""
    survives: bool = True
    """Whether ``cc_to_sonar`` restores the field from it; only for levels."""


CPU_USED = SonarMetric(
    "cpu_used", "percent", float, "cpus", Formula.SHARE, types="node, hwthread", survives=False
)

SYSTEM = (
    SonarMetric("cpu_load", "", float, "load1"),
    SonarMetric("load_five", "", float, "load5"),
    SonarMetric("load_fifteen", "", float, "load15"),
    SonarMetric("mem_used", "kB", int, "used_memory", zero=False),
    SonarMetric("proc_run", "", int, "runnable_entities", zero=False),
    SonarMetric("proc_total", "", int, "existing_entities", zero=False),
)
BOOT = SonarMetric("boot_time", "s", int, "boot")

GPU = (
    SonarMetric("acc_failing", "", int, "failing", types="accelerator"),
    SonarMetric("acc_fan", "percent", int, "fan", types="accelerator", zero=False),
    SonarMetric("acc_mem_used", "MByte", float, "memory", scale=1 / 1024, types="accelerator"),
    SonarMetric("acc_utilization", "percent", int, "ce_util", types="accelerator"),
    SonarMetric("acc_mem_util", "percent", int, "memory_util", types="accelerator"),
    SonarMetric("acc_temp", "degC", int, "temperature", types="accelerator", zero=False),
    SonarMetric("acc_power", "W", int, "power", types="accelerator", zero=False),
    SonarMetric("acc_power_limit", "W", int, "power_limit", types="accelerator", zero=False),
    SonarMetric("acc_clock", "MHz", int, "ce_clock", types="accelerator", zero=False),
    SonarMetric("acc_mem_clock", "MHz", int, "memory_clock", types="accelerator", zero=False),
)
PERFORMANCE_STATE = SonarMetric("acc_perf_state", "", int, "performance_state", types="accelerator")


def _disk(name: str, unit: str = "", how: Formula = Formula.GAIN) -> SonarMetric:
    return SonarMetric(name, unit, int, "stats", how, survives=False)


DISK = (  # in the order of /proc/diskstats, as the collector `disk` has them
    _disk("io_reads"),
    _disk("io_reads_merged"),
    _disk("io_read_sectors", "512 bytes"),
    _disk("io_read_ms", "ms"),
    _disk("io_writes"),
    _disk("io_writes_merged"),
    _disk("io_writes_sectors", "512 bytes"),
    _disk("io_writes_ms", "ms"),
    _disk("io_ioops", how=Formula.LEVEL),
    _disk("io_ioops_ms", "ms"),
    _disk("io_ioops_weighted_ms", "ms"),
    _disk("io_discards"),
    _disk("io_discards_merged"),
    _disk("io_discards_sectors", "512 bytes"),
    _disk("io_discards_ms", "ms"),
    _disk("io_flushes"),
    _disk("io_flushes_ms", "ms"),
)
IN_PROGRESS = 8
"""Index of the only level among them."""

JOB_FLOATS = (
    SonarMetric("job_cpu_used", "percent", float, "cpu_time", Formula.SHARE, survives=False),
    SonarMetric("job_read_bw", "bytes/s", float, "data_read", Formula.RATE, 1024, survives=False),
    SonarMetric(
        "job_write_bw", "bytes/s", float, "data_written", Formula.RATE, 1024, survives=False
    ),
)
JOB_INTS = (
    SonarMetric("job_mem_used", "bytes", int, "resident_memory", scale=1024),
    SonarMetric("job_mem_virtual", "bytes", int, "virtual_memory", scale=1024),
    SonarMetric("job_processes", "", int, "rolledup"),
    SonarMetric("job_threads", "", int, "num_threads"),
)
JOB_GPU = (
    SonarMetric("job_acc_utilization", "percent", float, "gpu_util", types="accelerator"),
    SonarMetric(
        "job_acc_mem_used", "MByte", float, "gpu_memory", scale=1 / 1024, types="accelerator"
    ),
    SonarMetric("job_acc_mem_util", "percent", float, "gpu_memory_util", types="accelerator"),
)
