"""The layouts of ``ccpipe acct sacct``: columns have sacct's names, CSV and JSON plain units."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ccpipe.cli.acct.table import PERCENTILE, Row, clean, format_bytes, local_time
from ccpipe.terminal import printable

if TYPE_CHECKING:  # they need pyarrow
    from ccpipe.accounting.slurm import Run
    from ccpipe.accounting.sums import Total

KEYS = {
    "cluster": "Cluster",
    "user": "User",
    "group": "Group",
    "account": "Account",
    "partition": "Partition",
    "qos": "QOS",
    "reservation": "Reservation",
    "wckey": "WCKey",
    "nodelist": "NodeList",
    "nodes": "NNodes",
    "cpus": "AllocCPUS",
    "name": "JobName",
    "job": "JobIDRaw",
    "array": "ArrayJobID",
    "state": "State",
    "day": "Day",
    "month": "Month",
}
"""Keys to group by, and their column titles."""

NUMBERS: dict[str, Callable[["Total"], Any]] = {
    "Rows": lambda total: total.records,
    "Runs": lambda total: total.runs,
    "Jobs": lambda total: total.jobs,
    "Failed": lambda total: total.failed,
    "FailedShare": lambda total: total.failed_share,
    "ElapsedRaw": lambda total: total.sums["ElapsedRaw"],
    "CPUTimeRAW": lambda total: total.sums["CPUTimeRAW"],
    "UserCPU": lambda total: total.sums["UserCPU"],
    "SystemCPU": lambda total: total.sums["SystemCPU"],
    "TotalCPU": lambda total: total.sums["TotalCPU"],
    "Efficiency": lambda total: total.efficiency,
    "GPUTime": lambda total: total.sums["GPUTime"],
    "ConsumedEnergyRaw": lambda total: total.sums["ConsumedEnergyRaw"],
    "Wait": lambda total: total.wait,
    "ReqMem": lambda total: total.requested / total.requests if total.requests else None,
    "Memory": lambda total: total.used / total.requests if total.requests else None,
    "MemoryShare": lambda total: total.memory_share,
}
"""The numbers of a group by the titles of their columns: seconds, joules, bytes (ReqMem and Memory:
means of the runs whose memory was measured), shares of 1."""

HIDDEN_SUMS = {"Runs", "Failed", "UserCPU", "SystemCPU", "ConsumedEnergyRaw"}
HIDDEN = {
    "JobIDRaw", "Group", "Cluster", "QOS", "Reservation", "WCKey", "Submit", "Start", "UserCPU",
    "SystemCPU", "NNodes", "NodeList", "AllocTRES", "ConsumedEnergyRaw", "MaxRSS", "CPUTimeRAW",
}  # fmt: skip
"""Columns that a table omits; CSV and JSON have all."""

_SHARES = {"FailedShare", "Efficiency", "MemoryShare"}
_BYTES = {"ReqMem", "Memory", "MaxRSS"}
_TIMES = {"ElapsedRaw", "CPUTimeRAW", "UserCPU", "SystemCPU", "TotalCPU", "GPUTime", "Wait"}
_MEASURES = {"wait": "Wait", "wallclock": "ElapsedRaw", "memory": "Memory"}


def sums(totals: Iterable["Total"]) -> Iterator[Row]:
    """Yield the rows of a table of sums."""
    for total in totals:
        row: Row = {KEYS[name]: value for name, value in total.key.items()}
        row |= {title: number(total) for title, number in NUMBERS.items()}
        for measure, values in total.percentiles.items():
            row |= {f"{_MEASURES[measure]} P{share:g}": value for share, value in values.items()}
        yield row


def record(run: "Run") -> Row:
    """Return the columns of one run, without the command line, which may hold secrets."""
    job = run.job
    code, signal = job.exit_code, job.exit_signal
    return {
        "JobID": str(job.id),
        "JobIDRaw": job.id.job,
        "JobName": job.job_name,
        "Cluster": job.cluster,
        "User": job.user,
        "Group": job.group,
        "Account": job.account,
        "Partition": job.partition,
        "QOS": job.qos,
        "Reservation": job.reservation,
        "WCKey": job.wckey,
        "State": job.state,
        "ExitCode": None if code is None else f"{code}:{signal or 0}",
        "Submit": local_time(job.submit),
        "Start": local_time(job.start),
        "End": local_time(job.end),
        "Wait": run.wait,
        "ElapsedRaw": job.elapsed,
        "AllocCPUS": job.alloc_cpus,
        "NNodes": job.alloc_nodes,
        "NodeList": job.node_list,
        "AllocTRES": job.alloc_tres,
        "CPUTimeRAW": job.cpu_time,
        "UserCPU": run.user_cpu,
        "SystemCPU": run.system_cpu,
        "TotalCPU": run.total_cpu,
        "Efficiency": run.efficiency,
        "ReqMem": job.requested_memory,
        "MaxRSS": run.max_rss,
        "Memory": run.memory,
        "MemoryShare": share(run.memory, job.requested_memory),
        "ConsumedEnergyRaw": run.consumed_energy,
    }


def share(part: float | None, whole: float | None) -> float | None:
    """Return a part as a share of the whole; None where either is not known."""
    return part / whole if part is not None and whole else None


def cell(head: str, value: Any) -> str:
    """Return a cell of a table for people: times as sacct prints them, bytes with a unit."""
    if value is None:
        return "-"
    plain = PERCENTILE.sub("", head)
    if plain in _SHARES:
        return f"{100 * value:.1f}%"
    if plain in _BYTES:
        return format_bytes(value)
    if plain in _TIMES:
        return clock(value)
    return printable(clean(value)) if isinstance(value, str) else f"{value:.15g}"


def clock(seconds: float) -> str:
    """Format seconds as ``[DD-]HH:MM:SS``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-" * bool(days) + f"{hour:02}:{minute:02}:{second:02}"
