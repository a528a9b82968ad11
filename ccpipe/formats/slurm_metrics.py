"""Samples of profiles as line protocol metrics, and back: mapping of metrics and fields."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.message import Kind, Message, metric

_MEBIBYTE = 2**20

METRICS: dict[str, dict[str, tuple[str, float]]] = {
    "Tasks": {
        "CPUFrequency": ("task_cpu_freq", 1),
        "CPUTime": ("task_cpu_time", 1),
        "CPUUtilization": ("task_cpu_util", 1),
        "RSS": ("task_mem_rss", 1024),
        "VMSize": ("task_mem_virtual", 1024),
        "Pages": ("task_major_faults", 1),
        "ReadMB": ("task_read_bytes", _MEBIBYTE),
        "WriteMB": ("task_write_bytes", _MEBIBYTE),
        "GPUMemMB": ("task_gpu_mem", _MEBIBYTE),
        "GPUUtilization": ("task_gpu_util", 1),
    },
    "Energy": {"Power": ("node_power", 1)},
    "Filesystem": {
        "Reads": ("lustre_read_requests_diff", 1),
        "ReadMB": ("lustre_read_bytes_diff", _MEBIBYTE),
        "Writes": ("lustre_write_requests_diff", 1),
        "WriteMB": ("lustre_write_bytes_diff", _MEBIBYTE),
    },
    "Network": {
        "PacketsIn": ("net_pkts_in_diff", 1),
        "PacketsOut": ("net_pkts_out_diff", 1),
        "InMB": ("net_bytes_in_diff", _MEBIBYTE),
        "OutMB": ("net_bytes_out_diff", _MEBIBYTE),
    },
}
"""By series and field: the metric, and the factor to its unit.

Sizes are in bytes, power is in W, frequency in kHz, time in s, utilization in percent of one
hardware thread or GPU. ``_diff``, reads and writes count from the previous sample.
"""

FIELDS = {
    metric: (series, field, factor)
    for series, fields in METRICS.items()
    for field, (metric, factor) in fields.items()
}
"""By metric: the series, the field and the factor from its unit to the metric's."""

_WORD = re.compile(r"[^A-Za-z0-9]+")


def to_metrics(
    series: str,
    values: Mapping[str, float | None],
    time: int,
    *,
    cluster: str,
    node: str,
    job: str | None,
    step: str,
    task: str | None = None,
) -> Iterator[Message]:
    """Yield a sample as metrics, at `time` in nanoseconds, omitting missing values.

    ClusterCockpit's store selects by ``type`` and ``stype`` with their ids and ignores other tags,
    so each task has its own ``stype``; ``jobid`` and so on are for stores that select by any tag.
    A field that no Slurm plug-in writes becomes, for example, ``energy_gpu0power``.
    """
    tags = {"cluster": cluster, "hostname": node, "type": "node", "stepid": step}
    if job is not None:
        tags["jobid"] = job
    if task is not None:
        number = ".".join(filter(None, (job, step, task)))
        tags |= {"stype": "task", "stype-id": number, "taskid": task}
    known = METRICS.get(series, {})
    for field, value in values.items():
        if value is not None:
            other = _WORD.sub("_", f"{series}_{field}").lower()
            name, factor = known.get(field, (other, 1))
            yield metric(name, value * factor, time=time, tags=tags)


class Value(NamedTuple):
    """One field of a sample, read back from a metric."""

    job: str
    step: str
    node: str
    series: str
    task: int | None
    field: str
    value: float
    time: int
    """Nanoseconds since the epoch."""


def from_metric(message: Message) -> Value:
    """Return the field of a sample that a metric was made from: the reverse of ``to_metrics``.

    Raises DataError if the metric is not from a step, or its tags or time are incomplete.
    """
    tags, known = message.tags, FIELDS.get(message.name)
    if message.kind is not Kind.METRIC or known is None:
        raise DataError(f"{message.name}: not a metric of a profile")
    for tag in ("jobid", "stepid", "hostname"):
        if not tags.get(tag):
            raise DataError(f"{message.name}: missing tag {tag}")
    series, field, factor = known
    task = tags.get("taskid", "")
    if (series == "Tasks") != (task.isascii() and task.isdecimal()):
        raise DataError(f"{message.name}: invalid tag taskid: {task!r:.40}")
    value = message.value
    if isinstance(value, bool | str) or not 0 <= value < math.inf:
        raise DataError(f"{message.name}: {value!r:.40} is not a number of at least 0")
    if message.time is None or message.time < 0:
        raise DataError(f"{message.name}: missing time")
    number = int(task) if task else None
    names = (tags["jobid"], tags["stepid"], tags["hostname"])
    return Value(*names, series, number, field, value / factor, message.time)
