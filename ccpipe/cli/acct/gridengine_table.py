"""Grid Engine's columns in ``ccpipe acct``: qacct's names where it has the column."""

from typing import Any

from ccpipe.cli.acct.qacct import TITLES
from ccpipe.cli.acct.table import Row, TableLayout, local_time
from ccpipe.formats.gridengine import Accounting


def record(found: Accounting) -> Row:
    """Return the columns of one record, without the command line, which may hold secrets."""
    wait = None
    if found.submission_time is not None and found.start_time is not None:
        wait = max(0, found.start_time - found.submission_time) / 10**9
    slot_seconds = found.slots * found.wallclock
    usage = {
        name: value
        for container in ("rusage", "eusage")
        for name, value in found.usage.get(container, {}).items()
    }
    return {
        "JOB": found.job_number,
        "TASK": found.task_number,
        "PE TASK": found.pe_taskid,
        "OWNER": found.owner,
        "GROUP": found.group,
        "PROJECT": found.project or "NONE",
        "DEPARTMENT": found.department,
        "ACCOUNT": found.account,
        "JOB NAME": found.job_name,
        "CLUSTER QUEUE": found.qname,
        "HOST": found.hostname,
        "PE": found.granted_pe or "NONE",
        "SLOTS": found.slots,
        "AR": found.arid,
        "SUBMITTED": local_time(found.submission_time),
        "STARTED": local_time(found.start_time),
        "ENDED": local_time(found.end_time),
        "WAIT": wait,
        "WALLCLOCK": found.wallclock,
        "UTIME": usage.get("ru_utime", 0),
        "STIME": usage.get("ru_stime", 0),
        "CPU": found.cpu,
        "MEMORY": usage.get("mem", 0),
        "IO": usage.get("io", 0),
        "IOW": usage.get("iow", 0),
        "EFFICIENCY": None if found.pe_taskid or not slot_seconds else found.cpu / slot_seconds,
        "MEMORY PEAK": found.maxvmem or found.maxrss,
        "OUTCOME": str(found.outcome),
        "FAILED": found.failed,
        "EXIT": found.exit_status,
        "MEANING": found.failure,
        "CATEGORY": found.category,
        "FILE": found.origin.file,
        "LINE": found.origin.line,
    }


_HIDDEN = {"GROUP", "PROJECT", "DEPARTMENT", "ACCOUNT", "PE", "AR", "SUBMITTED", "ENDED", "UTIME",
          "STIME", "MEMORY", "IO", "IOW", "FAILED", "EXIT", "MEANING", "CATEGORY", "FILE",
          "LINE"}  # fmt: skip
_EXACT = {"UTIME", "STIME", "CPU", "MEMORY", "IO", "IOW"}
"""Columns with as many decimals as in qacct."""


def _number(head: str, value: Any) -> str:
    if head == "WALLCLOCK":
        return f"{value:.0f}"
    if isinstance(value, float):
        return f"{value:.3f}" if head in _EXACT else f"{value:.1f}"
    return str(value)


LAYOUT = TableLayout(
    keys={
        **TITLES,
        "name": "JOB NAME",
        "job": "JOB",
        "task": "TASK",
        "outcome": "OUTCOME",
        "day": "DAY",
        "month": "MONTH",
    },
    numbers={
        "RECORDS": "records",
        "RUNS": "runs",
        "JOBS": "jobs",
        "FAILED": "failed",
        "FAILED SHARE": "failed_share",
        **dict.fromkeys(("WALLCLOCK", "UTIME", "STIME", "CPU", "MEMORY", "IO", "IOW"), ""),
        "SLOT HOURS": "slot_hours",
        "EFFICIENCY": "efficiency",
        "WAIT": "wait",
        "REQUESTED": "mean_requested",
        "USED": "mean_used",
        "USED SHARE": "memory_share",
    },
    measures={"wait": "WAIT", "wallclock": "WALLCLOCK", "memory": "MEMORY PEAK"},
    hidden_sums={"RUNS", "FAILED", "SLOT HOURS", "REQUESTED", "USED"},
    hidden=_HIDDEN,
    shares={"FAILED SHARE", "EFFICIENCY", "USED SHARE"},
    volumes={"REQUESTED", "USED", "MEMORY PEAK"},
    number=_number,
    cpu="CPU",
)
"""MEMORY is in GiB·s, IO in GiB; REQUESTED and USED are means of the runs that asked for memory."""
