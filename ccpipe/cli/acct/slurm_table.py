"""Slurm's columns in ``ccpipe acct sacct``: sacct's names where it has the column."""

from typing import TYPE_CHECKING, Any

from ccpipe.cli.acct.table import PERCENTILE, Row, TableLayout, local_time

if TYPE_CHECKING:  # it needs pyarrow
    from ccpipe.accounting.slurm import JobRun


def record(run: "JobRun") -> Row:
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
    return part / whole if part is not None and whole else None


def elapsed_text(seconds: float) -> str:
    """Format seconds as ``[DD-]HH:MM:SS``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-" * bool(days) + f"{hour:02}:{minute:02}:{second:02}"


def _number(head: str, value: Any) -> str:
    return elapsed_text(value) if PERCENTILE.sub("", head) in _TIMES else f"{value:.15g}"


_TIMES = {"ElapsedRaw", "CPUTimeRAW", "UserCPU", "SystemCPU", "TotalCPU", "GPUTime", "Wait"}
_HIDDEN = {
    "JobIDRaw", "Group", "Cluster", "QOS", "Reservation", "WCKey", "Submit", "Start", "UserCPU",
    "SystemCPU", "NNodes", "NodeList", "AllocTRES", "ConsumedEnergyRaw", "MaxRSS", "CPUTimeRAW",
}  # fmt: skip

LAYOUT = TableLayout(
    keys={
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
    },
    numbers={
        "Rows": "records",
        "Runs": "runs",
        "Jobs": "jobs",
        "Failed": "failed",
        "FailedShare": "failed_share",
        **dict.fromkeys(("ElapsedRaw", "CPUTimeRAW", "UserCPU", "SystemCPU", "TotalCPU"), ""),
        "Efficiency": "efficiency",
        **dict.fromkeys(("GPUTime", "ConsumedEnergyRaw"), ""),
        "Wait": "wait",
        "ReqMem": "mean_requested",
        "Memory": "mean_used",
        "MemoryShare": "memory_share",
    },
    measures={"wait": "Wait", "wallclock": "ElapsedRaw", "memory": "Memory"},
    hidden_sums={"Runs", "Failed", "UserCPU", "SystemCPU", "ConsumedEnergyRaw"},
    hidden=_HIDDEN,
    shares={"FailedShare", "Efficiency", "MemoryShare"},
    volumes={"ReqMem", "Memory", "MaxRSS"},
    number=_number,
    cpu="TotalCPU",
)
"""Energy is in joules; ReqMem and Memory are means of the runs whose memory was measured."""
