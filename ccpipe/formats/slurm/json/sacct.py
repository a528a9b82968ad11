"""The JSON of ``sacct --json`` and of slurmrestd's ``slurmdb``: the same rows as the text's.

What sacct's JSON of 22.05 loses is lost here, too: exit codes that are not 0 (a job that failed
with ``3:0`` reads ``0:0``; signals survive).
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.slurm.job_id import SlurmId
from ccpipe.formats.slurm.json.document import JsonObject, read_lists
from ccpipe.formats.slurm.reading import ParsedOutput
from ccpipe.formats.slurm.sacct_row import SacctRow


def read_json(payload: bytes) -> ParsedOutput[SacctRow]:
    """Read a document into the row of each job, followed by those of its steps.

    Raises
    ------
    DataError
        if the bytes are no such document; it says what Slurm reports instead, if it does.

    """
    return read_lists(payload, {"jobs": _rows})


def _rows(job: JsonObject) -> list[SacctRow]:
    if job.get("time") is None and job.get("job_state") is not None:
        raise DataError("a job of squeue or scontrol, not of sacct")
    row = _job(job)
    steps = [_step(step, row) for step in job.objects("steps")]
    if steps and not row.total_cpu:
        row = _with_cpu_times(row, steps)
    return [row, *steps]


def _with_cpu_times(job: SacctRow, steps: list[SacctRow]) -> SacctRow:
    """Sum the CPU times of a job's steps, as sacct's text does; in JSON of 22.05 its own are 0."""
    return msgspec.structs.replace(
        job,
        system_cpu=_sum(step.system_cpu for step in steps),
        user_cpu=_sum(step.user_cpu for step in steps),
        total_cpu=_sum(step.total_cpu for step in steps),
    )


def _sum(times: Iterable[float | None]) -> float:
    """Sum times, each of whole microseconds."""
    return round(math.fsum(time or 0 for time in times), 6)


def _job(job: JsonObject) -> SacctRow:
    exit_code, exit_signal = job.exit_code("exit_code")
    derived_code, derived_signal = job.exit_code("derived_exit_code")
    requested, allocated = _amounts(job, "requested"), _amounts(job, "allocated")
    return SacctRow(
        _id(job),
        job_name=job.text("name"),
        user=job.text("user") or job.text("association", "user"),
        account=job.text("account"),
        state=next(iter(job.states("state", "current")), None),
        submit=job.time("time", "submission"),
        start=job.time("time", "start"),
        end=job.time("time", "end"),
        time_limit=job.minutes("time", "limit"),
        partition=job.text("partition"),
        reservation=_reservation(job),
        node_list=job.word("nodes"),
        priority=job.whole("priority"),
        req_cpus=job.whole("required", "CPUs"),
        req_mem=requested.get("mem"),
        req_mem_of="job" if "mem" in requested else None,
        req_nodes=requested.get("node"),
        suspended=job.whole("time", "suspended"),
        exit_code=exit_code,
        exit_signal=exit_signal,
        alloc_tres=_text(allocated),
        elapsed=job.whole("time", "elapsed"),
        system_cpu=job.seconds("time", "system"),
        user_cpu=job.seconds("time", "user"),
        cluster=job.text("cluster"),
        group=job.text("group"),
        qos=job.text("qos"),
        wckey=job.text("wckey", "wckey"),
        reason=job.word("state", "reason"),
        derived_exit_code=derived_code,
        derived_exit_signal=derived_signal,
        flags=job.text("flags"),
        restarts=job.whole("restart_cnt"),
        eligible=job.time("time", "eligible"),
        planned=job.whole("time", "planned"),
        alloc_cpus=allocated.get("cpu"),
        cpu_time=_cpu_time(job, allocated),
        alloc_nodes=job.whole("allocation_nodes"),
        constraints=job.text("constraints"),
        licenses=job.text("licenses"),
        req_tres=_text(requested),
        total_cpu=job.seconds("time", "total"),
        consumed_energy=allocated.get("energy"),
        comment=job.text("comment", "job"),
        admin_comment=job.text("comment", "administrator"),
        system_comment=job.text("comment", "system"),
        submit_line=job.text("submit_line"),
        work_dir=job.text("working_directory"),
        container=job.text("container"),
        failed_node=job.text("failed_node"),
    )


def _reservation(job: JsonObject) -> str | None:
    """Return the reservation's name; 22.05 writes where in memory it is."""
    name = job.get("reservation", "name")
    return name if isinstance(name, str) and name else None


def _cpu_time(record: JsonObject, allocated: dict[str, int]) -> int | None:
    """Multiply CPUs and time, as sacct's text does."""
    elapsed, cpus = record.whole("time", "elapsed"), allocated.get("cpu")
    return None if elapsed is None or cpus is None else elapsed * cpus


def _id(job: JsonObject) -> SlurmId:
    number = job.number("job_id")
    if number is None:
        raise DataError("no job_id")
    array, het = job.number("array", "job_id"), job.number("het", "job_id")
    return SlurmId(
        number,
        array_job=array,
        array_task=job.whole("array", "task_id") if array else None,
        pending_tasks=(job.text("array", "task") or "").strip("[]"),
        het_job=het,
        het_offset=job.whole("het", "job_offset") if het else None,
    )


def _step(step: JsonObject, job: SacctRow) -> SacctRow:
    exit_code, exit_signal = step.exit_code("exit_code")
    allocated = _amounts(step, "allocated")
    usage = {column: _amounts(step, *path) for column, path in _USAGE.items()}
    texts: dict[str, Any] = {
        column: _text(amounts, is_usage=True) for column, amounts in usage.items()
    }
    mean, peak = usage["tres_usage_in_ave"], usage["tres_usage_in_max"]
    written, peak_written = usage["tres_usage_out_ave"], usage["tres_usage_out_max"]
    where = next((entry for entry in _entries(step, *_PEAKS) if _name(entry) == "mem"), _NOTHING)
    return SacctRow(
        _step_id(step, job.id),
        job_name=step.text("step", "name"),
        account=job.account,
        state=next(iter(step.states("state")), None),
        submit=step.time("time", "start"),
        start=step.time("time", "start"),
        end=step.time("time", "end"),
        time_limit=step.minutes("time", "limit"),
        node_list=step.word("nodes", "range"),
        layout=step.word("task", "distribution"),
        suspended=step.whole("time", "suspended"),
        exit_code=exit_code,
        exit_signal=exit_signal,
        min_cpu=_cpu_seconds(usage["tres_usage_in_min"]),
        alloc_tres=_text(allocated),
        ave_cpu=_cpu_seconds(mean),
        ave_disk_read=mean.get("fs/disk"),
        ave_disk_write=written.get("fs/disk"),
        ave_rss=mean.get("mem"),
        ave_vm_size=mean.get("vmem"),
        elapsed=step.whole("time", "elapsed"),
        system_cpu=step.seconds("time", "system"),
        user_cpu=step.seconds("time", "user"),
        max_rss=peak.get("mem"),
        max_vm_size=peak.get("vmem"),
        cluster=job.cluster,
        alloc_cpus=allocated.get("cpu"),
        cpu_time=_cpu_time(step, allocated),
        alloc_nodes=step.whole("nodes", "count"),
        ntasks=step.whole("tasks", "count"),
        total_cpu=step.seconds("time", "total"),
        ave_pages=mean.get("pages"),
        max_pages=peak.get("pages"),
        max_rss_node=where.word("node"),
        max_rss_task=where.whole("task"),
        max_disk_read=peak.get("fs/disk"),
        max_disk_write=peak_written.get("fs/disk"),
        consumed_energy=step.whole("statistics", "energy", "consumed"),
        submit_line=step.text("submit_line"),
        **texts,
    )


def _step_id(step: JsonObject, job: SlurmId) -> SlurmId:
    """Read ``0``, ``"batch"`` or ``"18.batch"``; the job's own number is known."""
    found = step.get("step", "id")
    name = str(found).rpartition(".")[2] if isinstance(found, int | str) else ""
    if not (name.isascii() and name.replace("+", "").isalnum()):
        raise DataError("a step without an id")
    component = step.whole("step", "het", "component")
    step_name = name if component is None else f"{name}+{component}"
    return msgspec.structs.replace(job, step=step_name, pending_tasks="")


_USAGE = {
    f"tres_usage_{way}_{what}": (name, key)
    for way, name in (("in", "requested"), ("out", "consumed"))
    for what, key in (("ave", "average"), ("max", "max"), ("min", "min"), ("tot", "total"))
}
"""Where in a step each of sacct's columns is."""
_PEAKS = ("requested", "max")
_NOTHING = JsonObject({})


def _entries(record: JsonObject, *path: str) -> Iterator[JsonObject]:
    return record.objects("tres", *path)


def _name(entry: JsonObject) -> str:
    kind, name = entry.text("type") or "", entry.text("name")
    return f"{kind}/{name}" if name else kind


def _amounts(record: JsonObject, *path: str) -> dict[str, int]:
    """Return amounts by name, memory in bytes; CPU time of usage is in milliseconds."""
    found = {}
    for entry in _entries(record, *path):
        amount, name = entry.whole("count"), _name(entry)
        if amount is not None:
            in_megabytes = name == "mem" and len(path) == 1  # allocated or requested
            found[name] = amount * 2**20 if in_megabytes else amount
    return found


def _text(amounts: dict[str, int], *, is_usage: bool = False) -> str | None:
    """Write amounts as sacct does, so that ``tres`` reads them."""
    pairs = []
    for name, amount in amounts.items():
        if name == "cpu" and is_usage:
            minutes, rest = divmod(amount, 60_000)
            pairs.append(f"cpu={minutes:02}:{rest // 1000:02}.{rest % 1000:03}")
        elif name == "mem" and not is_usage:
            pairs.append(f"mem={amount // 2**20}M")
        else:
            pairs.append(f"{name}={amount}")
    return ",".join(pairs) or None


def _cpu_seconds(amounts: dict[str, int]) -> float | None:
    milliseconds = amounts.get("cpu")
    return None if milliseconds is None else milliseconds / 1000
