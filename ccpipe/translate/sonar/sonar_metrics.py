"""Which metric each field of a Sonar sample becomes; ``docs/sonar-metrics.md`` is written from it.

::

    python -m ccpipe.translate.sonar.sonar_metrics > docs/sonar-metrics.md

Names and units are those of ccpipe's own collectors wherever they measure the same, so that a
dashboard need not know who measured.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from ccpipe.formats.sonar import (
    SampleAttributes,
    SampleDisk,
    SampleGpu,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
    SampleSystem,
)
from ccpipe.formats.sonar.layout import fields
from ccpipe.formats.sonar.primitives import Record


class How(StrEnum):
    """What is done to a value, or to the sum over a job's processes."""

    LEVEL = "as it is"
    SHARE = "100 · gain / time"
    GAIN = "gain"
    RATE = "gain / time"


class Row(NamedTuple):
    """One metric."""

    name: str
    unit: str
    """Empty for a plain number or count."""
    kind: type[float]
    """``int`` or ``float``: how the value stands on the wire."""
    field: str
    """Of which field it is made."""
    how: How = How.LEVEL
    scale: float = 1
    """What the field is multiplied by: Sonar has kilobytes of 2¹⁰ bytes."""
    types: str = "node"
    """What the tag ``type`` says."""
    survives: bool = True
    """Whether ``cc_to_sonar`` makes the field of it again; only for levels."""

    @property
    def is_level(self) -> bool:
        """Whether it says how things stand, not what changed."""
        return self.how is How.LEVEL


CPU_USED = Row(
    "cpu_used", "percent", float, "cpus", How.SHARE, types="node, hwthread", survives=False
)

SYSTEM = (
    Row("cpu_load", "", float, "load1"),
    Row("load_five", "", float, "load5"),
    Row("load_fifteen", "", float, "load15"),
    Row("mem_used", "kB", int, "used_memory"),
    Row("proc_run", "", int, "runnable_entities"),
    Row("proc_total", "", int, "existing_entities"),
)
BOOT = Row("boot_time", "s", int, "boot")

GPU = (
    Row("acc_failing", "", int, "failing", types="accelerator"),
    Row("acc_fan", "percent", int, "fan", types="accelerator"),
    Row("acc_mem_used", "MByte", float, "memory", scale=1 / 1024, types="accelerator"),
    Row("acc_utilization", "percent", int, "ce_util", types="accelerator"),
    Row("acc_mem_util", "percent", int, "memory_util", types="accelerator"),
    Row("acc_temp", "degC", int, "temperature", types="accelerator"),
    Row("acc_power", "W", int, "power", types="accelerator"),
    Row("acc_power_limit", "W", int, "power_limit", types="accelerator"),
    Row("acc_clock", "MHz", int, "ce_clock", types="accelerator"),
    Row("acc_mem_clock", "MHz", int, "memory_clock", types="accelerator"),
)
PERFORMANCE_STATE = Row("acc_perf_state", "", int, "performance_state", types="accelerator")


def _disk(name: str, unit: str = "", how: How = How.GAIN) -> Row:
    return Row(name, unit, int, "stats", how, survives=False)


DISK = (  # in the order of /proc/diskstats, as the collector `disk` has them
    _disk("io_reads"),
    _disk("io_reads_merged"),
    _disk("io_read_sectors", "512 bytes"),
    _disk("io_read_ms", "ms"),
    _disk("io_writes"),
    _disk("io_writes_merged"),
    _disk("io_writes_sectors", "512 bytes"),
    _disk("io_writes_ms", "ms"),
    _disk("io_ioops", how=How.LEVEL),
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
"""The one of them that is a level."""

JOB_FLOATS = (
    Row("job_cpu_used", "percent", float, "cpu_time", How.SHARE, survives=False),
    Row("job_read_bw", "bytes/s", float, "data_read", How.RATE, 1024, survives=False),
    Row("job_write_bw", "bytes/s", float, "data_written", How.RATE, 1024, survives=False),
)
JOB_INTS = (
    Row("job_mem_used", "bytes", int, "resident_memory", scale=1024),
    Row("job_mem_virtual", "bytes", int, "virtual_memory", scale=1024),
    Row("job_processes", "", int, "rolledup"),
    Row("job_threads", "", int, "num_threads"),
)
JOB_GPU = (
    Row("job_acc_utilization", "percent", float, "gpu_util", types="accelerator"),
    Row("job_acc_mem_used", "MByte", float, "gpu_memory", scale=1 / 1024, types="accelerator"),
    Row("job_acc_mem_util", "percent", float, "gpu_memory_util", types="accelerator"),
)

SECTIONS: tuple[tuple[str, type[Record], tuple[Row, ...], str], ...] = (
    (
        "Node",
        SampleSystem,
        (CPU_USED, *SYSTEM, BOOT),
        "100 percent is one hardware thread. `boot_time` is in seconds since 1970.",
    ),
    (
        "Accelerators",
        SampleGpu,
        (*GPU, PERFORMANCE_STATE),
        "`type-id` is the card's UUID. `acc_perf_state` is left out where it is unset or infinite.",
    ),
    (
        "Disks",
        SampleDisk,
        DISK,
        "They carry `stype=device`, and `stype-id` is the device. Gains are since the last sample.",
    ),
    (
        "Jobs",
        SampleProcess,
        (*JOB_FLOATS, *JOB_INTS),
        (
            "Sums over the job's processes on the node. They carry `stype=job`; `stype-id` is the "
            "job's number, `<job>.<epoch>` for one that is no batch job; `user` is its user. "
            "`job_processes` counts all processes that were rolled up, `job_threads` their main "
            "threads too. Of a process that is seen for the first time, or whose `cpu_time` went "
            "down, `cpu_avg` counts. Where `cpus` is known, a job uses no more than all of them."
        ),
    ),
    (
        "Jobs on accelerators",
        SampleProcessGpu,
        JOB_GPU,
        "As for jobs, with the card's UUID as `type-id`.",
    ),
)

_HEAD = """\
# Sonar's samples as metrics

What the translators `sonar_to_cc` and `cc_to_sonar` make of each other's data. This page is
written from their table
(`python -m ccpipe.translate.sonar.sonar_metrics > docs/sonar-metrics.md`) and a test keeps it true.

Every metric carries the tags `cluster`, `hostname` and `type`, and the sample's time. A gain is
what a counter grew by since the node's last sample. There is none for the first sample, after
another boot, where a counter went down, and for a sample that comes late. A name that no tag can
carry (it holds a line end, say) is percent-encoded.
"""

_EVENTS = """\
## Everything else

| Sonar | ClusterCockpit |
|---|---|
| sysinfo | event `topology`, function `sysinfo`; and the answer to a control request `topology` |
| job | events `job`, functions `start_job` and `stop_job`, as cc-backend takes them, each once |
| cluster | events `nodestate`, function `nodestate`, of at most 1000 nodes each |
| errors of a sample | log of the component `sonar`, level `warn` |
| an envelope of errors | log of the component `sonar`, level `error` |
| any envelope, whole | event `sonar`; its function is `sample`, `sysinfo`, `job`, `cluster` or \
`error` |

The event `sonar` holds the envelope as the specification writes it, so nothing is lost: from it
`cc_to_sonar` makes the very same envelope, and leaves out what else tells of that node and
moment. With `envelopes = false` it is not sent, and the rest of this page holds.

## What survives without the event

Metrics are whole again as a sample, of which these fields are there:
"""

_REST = """
Integers survive up to 2⁵³. Times survive to the second, and are written in UTC. A job has one
process, which stands for all of them as a rolled-up process does: its `rolledup` is the number of
the others, and its `cpu_util` is `job_cpu_used`. Cards are counted in the order in which they
come. A sample without any metric is lost. These fields do not survive:
"""

_TAIL = """
Of a job the fields survive that cc-backend knows: `job_id`, `job_name`, `job_state` (RUNNING at
its start, then the final one), `user_name`, `account`, `partition`, `nodes`, `start_time`,
`end_time`, `submit_time`, `time_limit`, `array_job_id`, `requested_memory_per_node` (in whole
MByte), `requested_cpus` and `requested_node_count`; and with them, in its metadata,
`array_task_id`, `het_job_id`, `het_job_offset`, `reservation`, `distribution` and
`allocated_resources`. Steps and jobs that never started do not survive. Of a cluster the states of
its nodes survive, of a node's description what `topology` holds: all but `topo_svg`, `topo_text`
and `distances`. Of `meta` nothing survives.
"""


def page() -> str:
    """Return ``docs/sonar-metrics.md``."""
    parts = [_HEAD]
    for title, record, rows, text in SECTIONS:
        parts.append(f"## {title}\n\n{text}\n\n" + "\n".join(_table(record, rows)) + "\n")
    lists = (_list(_survivors()), _list(_lost()))
    return "\n".join([*parts, _EVENTS]) + lists[0] + "\n" + _REST + lists[1] + "\n" + _TAIL


def _table(record: type[Record], rows: tuple[Row, ...]) -> Iterator[str]:
    yield "| metric | unit | value | type | made of | how |\n|---|---|---|---|---|---|"
    for row in rows:
        scale = {1: "", 1024: ", times 1024", 1 / 1024: ", through 1024"}[row.scale]
        of = f"`{record.__name__}.{row.field}`"
        how = f"{row.how}{scale}"
        yield f"| `{row.name}` | {row.unit} | {row.kind.__name__} | {row.types} | {of} | {how} |"


_TYPES: tuple[type[Record], ...] = (
    SampleAttributes,
    SampleSystem,
    SampleGpu,
    SampleDisk,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
)
_BY_TAGS = {
    "SampleAttributes": {"time", "cluster", "node", "system", "jobs", "errors"},
    "SampleSystem": {"gpus"},
    "SampleGpu": {"uuid"},
    "SampleJob": {"job", "user", "epoch", "processes"},
    "SampleProcess": {"gpus", "cpu_util"},
    "SampleProcessGpu": {"uuid"},
}
"""What survives in tags, in times, in log lines, and by being what holds the others."""


def _survivors() -> dict[str, list[str]]:
    kept = {cls.__name__: set(_BY_TAGS.get(cls.__name__, ())) for cls in _TYPES}
    for _, record, rows, _ in SECTIONS:
        kept[record.__name__] |= {row.field for row in rows if row.survives}
    return {c.__name__: [name for name in fields(c) if name in kept[c.__name__]] for c in _TYPES}


def _lost() -> dict[str, list[str]]:
    kept = _survivors()
    return {
        c.__name__: [name for name in fields(c) if name not in kept[c.__name__]] for c in _TYPES
    }


def _list(names: dict[str, list[str]]) -> str:
    return "".join(
        f"\n- `{cls}`: " + ", ".join(f"`{name}`" for name in members)
        for cls, members in names.items()
        if members
    )


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - the page is what this prints
