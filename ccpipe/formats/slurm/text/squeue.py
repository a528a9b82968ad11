"""The text of ``squeue``: jobs, one in a line, with a delimiter between their fields.

``squeue -a -h -o`` with ``%`` codes and bars between, or ``-O`` with ``:|`` after each name; the
line of names or `columns` says which they are. Squeue's own table, cut off and aligned by blanks,
loses names and is not read.

>>> payload = b"JOBID|ST|TIME_LIMIT|NAME\\n36_[0-9%2]|PD|1-02:04:00|a|b\\n"
>>> job = read(payload).records[0]
>>> job.id.array_job, job.id.pending_tasks, job.state, job.time_limit, job.name
(36, '0-9%2', 'PENDING', 93840, 'a|b')

Source: squeue(1); ``src/squeue/print.c`` of Slurm 22.05 to 26.05.
"""

from collections.abc import Sequence
from datetime import tzinfo

from ccpipe.formats.slurm.job_id import SlurmId
from ccpipe.formats.slurm.reading import ParsedOutput
from ccpipe.formats.slurm.records import LiveJob
from ccpipe.formats.slurm.states import job_state
from ccpipe.formats.slurm.text.columns import TableReader
from ccpipe.formats.slurm.text.field import FieldSpec
from ccpipe.formats.slurm.timestamp import TimeReader
from ccpipe.formats.slurm.values import count, duration, free_text, megabytes, signed, text, whole

FREE = ("container", "extra", "stdin", "nodelist(reason)")
"""Columns of free text that are not read."""


def _priority(*cells: str) -> int | None:
    """Read the whole number among the columns of this name; another may hold a fraction of 1."""
    return next((whole(cell) for cell in cells if "." not in cell), None)


def _name_and_number(first: str, second: str) -> tuple[str, str]:
    """Sort the cells of two columns with the same name: that of the number comes last."""
    return (second, first) if first.isdigit() else (first, second)


def _group(first: str, second: str) -> str | None:
    return text(_name_and_number(first, second)[0])


def _gid(first: str, second: str) -> int | None:
    return whole(_name_and_number(first, second)[1])


def _allocated(resources: str, nodes: str) -> str | None:
    """Read ``tres-alloc``, which holds what was requested until the job has nodes."""
    return text(resources) if text(nodes) else None


def _requested(resources: str, nodes: str) -> str | None:
    return None if text(nodes) else text(resources)


def fields(time: TimeReader) -> list[FieldSpec]:
    """Return the ways from squeue's columns to the fields of ``LiveJob``."""
    return [
        FieldSpec("id", ("jobid", "jobid#2"), SlurmId.read, varies=True, is_required=True),
        FieldSpec("id", ("jobid",), SlurmId.read, varies=True, is_required=True),
        FieldSpec("priority", ("priority", "priority#2"), _priority),
        FieldSpec("priority", ("priority",), _priority),
        FieldSpec("group", ("group", "group#2"), _group),
        FieldSpec("group", ("group",), text),
        FieldSpec("gid", ("group", "group#2"), _gid),
        FieldSpec("state", ("state",), job_state),
        FieldSpec("state", ("st",), job_state),
        FieldSpec("alloc_tres", ("tres_alloc", "nodelist"), _allocated),
        FieldSpec("alloc_tres", ("tres_alloc",), text),
        FieldSpec("req_tres", ("tres_alloc", "nodelist"), _requested),
        FieldSpec("nice", ("nice",), signed),
        FieldSpec("min_memory", ("min_memory",), megabytes),
        *(
            FieldSpec(name, (column,), time, varies=True, read_column=time.column)
            for name, column in _TIMES.items()
        ),
        *(FieldSpec(name, (column,), duration) for name, column in _DURATIONS.items()),
        *(FieldSpec(name, (column,), count) for name, column in _COUNTS.items()),
        *(FieldSpec(name, (column,), text) for name, column in _WORDS.items()),
        FieldSpec("name", ("name",), is_free=True),
        *(
            FieldSpec(name, (column,), free_text, varies=True, is_free=True)
            for name, column in _TEXTS.items()
        ),
    ]


_TIMES = {
    "submit": "submit_time", "eligible": "eligible_time", "start": "start_time",
    "end": "end_time",
}  # fmt: skip
_DURATIONS = {"run_time": "time", "time_limit": "time_limit"}
_COUNTS = {
    "nodes": "nodes", "cpus": "cpus", "tasks": "tasks", "cpus_per_task": "cpus_per_task",
    "uid": "uid", "restarts": "restart_count",
}  # fmt: skip
_WORDS = {
    "user": "user", "account": "account", "partition": "partition", "qos": "qos",
    "reservation": "reservation", "wckey": "wckey", "cluster": "cluster", "node_list": "nodelist",
    "batch_host": "exec_host", "req_node_list": "req_nodes", "exc_node_list": "exc_nodes",
    "tres_per_job": "tres_per_job", "tres_per_node": "tres_per_node",
    "tres_per_task": "tres_per_task", "dependency": "dependency",
    "oversubscribe": "over_subscribe", "licenses": "licenses", "reason": "reason",
}  # fmt: skip
_TEXTS = {
    "comment": "comment", "admin_comment": "admin_comment",
    "system_comment": "system_comment", "command": "command", "work_dir": "work_dir",
    "std_out": "stdout", "std_err": "stderr", "features": "features",
}  # fmt: skip


class SqueueReader(TableReader[LiveJob]):
    """Reads the jobs of squeue as its bytes come, in bounded memory."""

    def __init__(
        self,
        *,
        columns: Sequence[str] | None = None,
        delimiter: str | None = None,
        zone: tzinfo | None = None,
    ) -> None:
        """Read jobs; the options are those of ``SacctReader``."""
        super().__init__(
            LiveJob,
            fields(TimeReader(zone)),
            free=FREE,
            fits={"jobid": SlurmId.read, "jobid#2": SlurmId.read},
            columns=columns,
            delimiter=delimiter,
        )


def read(
    payload: bytes,
    *,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    zone: tzinfo | None = None,
) -> ParsedOutput[LiveJob]:
    """Read a whole output; the options are those of ``SqueueReader``.

    Raises
    ------
    DataError
        if the first line does not name the columns.

    """
    return SqueueReader(columns=columns, delimiter=delimiter, zone=zone).read(payload)
