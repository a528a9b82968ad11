"""The text of ``squeue``: jobs, one in a line, with a delimiter between their fields.

``squeue -a -h -o`` with ``%`` codes and bars between, or ``-O`` with ``:|`` after each name; the
line of names or `columns` says which they are. Squeue's own table, cut off and aligned by blanks,
loses names and is not read.

Source: squeue(1); ``src/squeue/print.c`` of Slurm 22.05 to 26.05.
"""

from collections.abc import Sequence
from datetime import tzinfo

from ccpipe.formats.slurm.records import LiveJob, SlurmId
from ccpipe.formats.slurm.text.columns import FieldSpec, TableReader
from ccpipe.formats.slurm.values import TimeReader, count, duration, job_state, text, whole

FREE = (
    "container", "extra", "stdin", "stdout", "stderr", "nodelist(reason)", "comment",
    "admin_comment", "system_comment", "command", "work_dir", "features",
)  # fmt: skip


def _priority(*cells: str) -> int | None:
    """Read the whole number among the columns of this name; another may hold a fraction of 1."""
    return next((whole(cell) for cell in cells if "." not in cell), None)


def fields(time: TimeReader) -> list[FieldSpec]:
    return [
        FieldSpec("id", ("jobid", "jobid#2"), SlurmId.read, varies=True, is_required=True),
        FieldSpec("id", ("jobid",), SlurmId.read, varies=True, is_required=True),
        FieldSpec("priority", ("priority", "priority#2"), _priority),
        FieldSpec("priority", ("priority",), _priority),
        FieldSpec("state", ("state",), job_state),
        FieldSpec("state", ("st",), job_state),
        FieldSpec("time_limit", ("time_limit",), duration),
        *(
            FieldSpec(name, (f"{name}_time",), time, varies=True, read_column=time.column)
            for name in ("submit", "start", "end")
        ),
        *(FieldSpec(name, (name,), count) for name in ("nodes", "cpus", "uid")),
        *(FieldSpec(name, (name,), text) for name in _WORDS),
        FieldSpec("node_list", ("nodelist",), text),
        FieldSpec("oversubscribe", ("over_subscribe",), text),
        FieldSpec("name", ("name",), is_free=True),
    ]


_WORDS = ("user", "account", "partition", "reservation")


class SqueueReader(TableReader[LiveJob]):
    """Reads the jobs of squeue as its bytes come, in bounded memory."""

    def __init__(
        self,
        *,
        columns: Sequence[str] | None = None,
        delimiter: str | None = None,
        zone: tzinfo | None = None,
    ) -> None:
        super().__init__(
            LiveJob,
            fields(TimeReader(zone)),
            free=FREE,
            fits={"jobid": SlurmId.read, "jobid#2": SlurmId.read},
            columns=columns,
            delimiter=delimiter,
        )
