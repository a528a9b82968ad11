"""Grid Engine's records as the scheduler-independent columns that ``measures`` and ``sums`` use."""

from typing import Any

from ccpipe.accounting.measures import OUTCOME, SchedulerColumns, each
from ccpipe.errors import MissingExtra
from ccpipe.formats.gridengine import parse_category
from ccpipe.formats.gridengine.record import GRACE, NO_DATA, Outcome, classify, is_last_record

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

SUMS = {
    "WALLCLOCK": "ru_wallclock",
    "UTIME": "ru_utime",
    "STIME": "ru_stime",
    "CPU": "cpu",
    "MEMORY": "mem",
    "IO": "io",
    "IOW": "iow",
}
"""What qacct sums: its column, and the field of the record. Seconds, GiB·s and GiB."""

KEYS = {
    "host": "hostname",
    "queue": "qname",
    "group": "group",
    "owner": "owner",
    "project": "project",
    "department": "department",
    "pe": "granted_pe",
    "slots": "slots",
    "ar": "arid",
    "account": "account",
    "name": "job_name",
    "job": "job_number",
    "task": "task_number",
    "outcome": OUTCOME,
    "day": "end_time",
    "month": "end_time",
}
"""Keys to group by, in qacct's order, and the field; day and month are those of the end."""

FIELDS = (
    "slots", "failed", "exit_status", "submission_time", "start_time", "pe_taskid", "category",
    "deleted_by", "maxvmem", "maxrss", "ru_maxrss", "ru_wallclock",
)  # fmt: skip
"""The columns of records that ``job_columns`` needs."""

_ZERO, _KIB, _NO_DATA = (pa.scalar(n, pa.float64()) for n in (0.0, 1024.0, NO_DATA))
_GRACE = pa.scalar(GRACE, pa.float64())
_INTERMEDIATE, _FALSE = pa.scalar(-1, pa.int64()), pa.scalar(False, pa.bool_())
# Arrow infers the type of a Python number anew in each call, and tries to import dateutil for it.


def job_columns(table: pa.Table) -> dict[str, Any]:
    is_master = pc.is_null(table["pe_taskid"])
    wallclock = pc.fill_null(table["ru_wallclock"], _ZERO)
    return {
        "is_master": is_master,
        "is_run": pc.and_(is_master, pc.not_equal(table["exit_status"], _INTERMEDIATE)),
        "slots": table["slots"],
        "submission_time": table["submission_time"],
        "start_time": table["start_time"],
        "wallclock": wallclock,
        "memory": _memory(table),
        "requested_memory": pc.multiply(
            each([table["category"]], _requested_memory, pa.float64()),
            pc.cast(table["slots"], pa.float64()),
        ),
        **_outcomes(table, wallclock),
    }


def _memory(table: pa.Table) -> Any:
    """Return peak memory in bytes: virtual, or resident where that was not measured."""
    vmem, rss, kib = (pc.fill_null(table[n], _ZERO) for n in ("maxvmem", "maxrss", "ru_maxrss"))
    is_known = pc.and_(pc.greater(rss, _ZERO), pc.less(rss, _NO_DATA))
    rss = pc.if_else(is_known, rss, pc.multiply(kib, _KIB))
    return pc.if_else(pc.greater(vmem, _ZERO), vmem, rss)


def _requested_memory(category: str) -> float | None:
    requested = parse_category(category).h_vmem
    return None if requested is None else float(requested)


def _outcomes(table: pa.Table, wallclock: Any) -> dict[str, Any]:
    """Return the outcome, and whether the job ends with the record."""
    status = [table["failed"], table["exit_status"], pc.is_valid(table["start_time"])]

    def outcome(
        failed: int, exit_status: int, started: bool, who: str | None = None, is_late: bool = False
    ) -> str:
        return classify(
            failed=failed,
            exit_status=exit_status,
            started=started,
            deleted_by=who or "",
            limit=0.0 if is_late else None,
        )

    def ends_job(failed: int, exit_status: int, started: bool) -> bool:
        return exit_status != -1 and is_last_record(failed, started=started)

    deleter = table["deleted_by"]
    if deleter.null_count == table.num_rows:  # so are all classic records
        outcomes = each(status, outcome, pa.string())
    else:
        limit = each([table["category"]], lambda text: parse_category(text).h_rt, pa.float64())
        late = pc.greater_equal(wallclock, pc.subtract(limit, _GRACE))
        outcomes = each([*status, deleter, pc.fill_null(late, _FALSE)], outcome, pa.string())
    return {"outcome": outcomes, "ends_job": each(status, ends_job, pa.bool_())}


GRID_ENGINE = SchedulerColumns(
    keys=KEYS,
    sums=SUMS,
    cpu="CPU",
    fields=FIELDS,
    job_columns=job_columns,
    good=frozenset({Outcome.COMPLETED, Outcome.REQUEUED}),
)
