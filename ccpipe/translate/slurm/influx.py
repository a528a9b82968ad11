"""Converts lines of Slurm's profile plug-in ``influxdb`` to metrics for ClusterCockpit's store.

Until 25.11 the plug-in writes a line for each field, ``RSS,job=58,step=0,task=0,host=c1 value=14567
1795171538``; from 26.05 on also one for each sample, ``task,host=c1,job=58,step=0,task=0
CPUTime=1.5,RSS=14567i 1795171538``. Names, tags and units are the same as from ``ccpipe step``.

Source: ``src/plugins/acct_gather_profile/influxdb`` of Slurm 22.05 and 26.05.
"""

from collections.abc import Sequence

from ccpipe.config import Site
from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.formats.slurm_metrics import METRICS, to_metrics
from ccpipe.formats.slurm_profile.names import step_name
from ccpipe.message import Message
from ccpipe.pipeline import Translator

_SERIES = {
    "task": "Tasks",
    "tasks": "Tasks",
    "energy": "Energy",
    "filesystem": "Filesystem",
    "lustre": "Filesystem",
    "network": "Network",
}
"""The series by the measurement of a grouped line, or by its tag ``task``."""

_NO_TASK = {
    field: series
    for series in ("Energy", "Filesystem", "Network")
    for field in METRICS[series]
}  # fmt: skip
"""The series of fields in lines without a task."""

_MAX_NUMBER = 2.0**63
"""Slurm's marks for numbers that were never set lie above."""


class SlurmInflux(Translator[Lines, Lines]):
    """Turns lines of Slurm's plug-in into metrics; all other records pass as they are."""

    takes = gives = Lines

    def __init__(self, *, site: Site) -> None:
        """Take the cluster of lines that do not name theirs."""
        self.cluster = site.cluster

    def feed(self, records: Lines) -> Lines:
        return to_lines(new for record in records for new in self._metrics(record))

    def _metrics(self, record: Message) -> Sequence[Message]:
        tags, value = record.tags, record.value
        node = tags.get("host") or tags.get("hostname")
        job, step = tags.get("job"), tags.get("step")
        series, field = self._field(record)
        if not (node and job and step and series) or isinstance(value, bool | str):
            return [record]
        if not abs(value) < _MAX_NUMBER or record.time is None:
            return []
        return list(
            to_metrics(
                series,
                {field: value},
                record.time,
                cluster=tags.get("cluster") or self.cluster,
                node=node,
                job=job,
                step=step_name(step),
                task=tags.get("task") if series == "Tasks" else None,
            )
        )

    @staticmethod
    def _field(record: Message) -> tuple[str | None, str]:
        """Return series and field; no series unless it is a line of the plug-in."""
        task = record.tags.get("task", "")
        is_number = task.isascii() and task.isdecimal()
        if record.field != "value":  # one line for each sample
            series = _SERIES.get(record.name)
            return (None if series == "Tasks" and not is_number else series), record.field
        if is_number:
            return ("Tasks" if record.name in METRICS["Tasks"] else None), record.name
        series = _SERIES.get(task.lower()) if task else _NO_TASK.get(record.name)
        return (None if series == "Tasks" else series), record.name
