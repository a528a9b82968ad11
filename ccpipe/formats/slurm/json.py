"""The JSON of ``sacct --json`` and of slurmrestd's ``slurmdb``: the same rows as of the text.

22.05 writes plain numbers, with null or a sentinel for unset ones; 23.02 and later write
``{"set": …, "infinite": …, "number": …}``. A state is a word or a list of words. Keys differ
between versions, so the dialect is detected for each value; a missing one is read as None.

sacct's JSON of 22.05 lacks non-zero exit codes (a job that failed with ``3:0`` reads ``0:0``;
signals are present).

Source: ``plugins/openapi/v0.0.38`` and ``plugins/data_parser/v0.0.40`` to ``v0.0.46`` of Slurm.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.slurm.records import ParsedOutput, RejectedRow, SacctRow, SlurmId
from ccpipe.formats.slurm.values import ABSENT, NO_VALUE, SECOND, UNLIMITED, wait_status

MAX_BYTES = 2**30
MAX_TIME = 10**11
"""Largest plausible time, in seconds since the epoch."""


class _Document(msgspec.Struct):
    jobs: list[msgspec.Raw] | None = None
    errors: list[msgspec.Raw] | None = None


def read_json(payload: bytes) -> ParsedOutput[SacctRow]:
    """Read a document into rows: each job, followed by its steps.

    Members without a field in ``SacctRow`` are ignored. Jobs that cannot be read are rejected;
    Slurm's own errors are among the rejected, too, if there are also jobs. Raises DataError for
    other documents, with Slurm's errors if it has any.
    """
    document = _decode(payload)
    errors = [_error(raw) for raw in document.errors or ()]
    if document.jobs is None:
        reported = "; ".join("Slurm reports: " + error for error in errors)
        raise DataError(reported or "no list 'jobs' in the document")
    reading: ParsedOutput[SacctRow] = ParsedOutput()
    reading.rejected += [RejectedRow(0, f"Slurm reports: {error}", b"") for error in errors]
    for position, raw in enumerate(document.jobs):
        try:
            reading.records += _rows(JsonObject.decode(raw))
        except DataError as error:
            reason = f"jobs[{position}]: {error}"
            reading.rejected.append(RejectedRow(position, reason, bytes(raw)))
    return reading


def _decode(payload: bytes) -> _Document:
    if len(payload) > MAX_BYTES:
        raise DataError(f"document of more than {MAX_BYTES} bytes")
    try:
        return msgspec.json.decode(payload, type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataError(f"not Slurm JSON: {error}") from None
    except RecursionError:
        raise DataError("not Slurm JSON: nested too deeply") from None


def _error(raw: msgspec.Raw) -> str:
    try:
        found = JsonObject.decode(raw)
        return found.text("error") or found.text("description") or bytes(raw).decode()[:200]
    except DataError:
        return bytes(raw[:200]).decode("utf-8", "replace")


class JsonObject:
    """An object whose members may be missing; a path of keys leads into inner objects."""

    __slots__ = ("members",)

    def __init__(self, members: dict[str, Any]) -> None:
        self.members = members

    @classmethod
    def decode(cls, raw: bytes | msgspec.Raw) -> "JsonObject":
        """Decode an object, invalid UTF-8 as U+FFFD; raises DataError for anything else."""
        try:
            members = msgspec.json.decode(raw)
        except UnicodeDecodeError:
            return cls.decode(bytes(raw).decode("utf-8", "replace").encode())
        except msgspec.MsgspecError as error:
            raise DataError(f"not JSON: {error}") from None
        except RecursionError:
            raise DataError("nested too deeply") from None
        if not isinstance(members, dict):
            raise DataError("not an object")
        return cls(members)

    def get(self, *path: str) -> Any:
        found: Any = self.members
        for key in path:
            if not isinstance(found, dict):
                return None
            found = found.get(key)
        return found

    def objects(self, *path: str) -> "Iterator[JsonObject]":
        found = self.get(*path)
        for member in found if isinstance(found, list) else ():
            if not isinstance(member, dict):
                raise DataError(f"{'.'.join(path)}: not a list of objects")
            yield JsonObject(member)

    def text(self, *path: str) -> str | None:
        found = self.get(*path)
        if isinstance(found, list) and all(isinstance(member, str) for member in found):
            found = ",".join(found)
        if not found:
            return None
        if isinstance(found, dict | list):
            raise DataError(f"{'.'.join(path)}: not a text")
        return str(found)

    def word(self, *path: str) -> str | None:
        """Return a text; None for Slurm's placeholders such as ``(null)``."""
        found = self.text(*path)
        return None if found in ABSENT else found

    def amount(self, *path: str) -> float | None:
        """Return a number in either dialect; unlimited is infinite."""
        found = self.get(*path)
        if isinstance(found, dict):
            if found.get("infinite") is True:
                return math.inf
            if found.get("set") is not True:
                return None
            found = found.get("number")
        if found is None or isinstance(found, bool):
            return None
        if not isinstance(found, int | float):
            raise DataError(f"{'.'.join(path)}: not a number")
        if found in NO_VALUE or found == _NO_VALUE:
            return None
        return math.inf if found in UNLIMITED or found == _UNLIMITED else found

    def whole(self, *path: str) -> int | None:
        """Return an integer; None also if unlimited."""
        found = self.amount(*path)
        if found is None or not math.isfinite(found):
            return None
        if found != int(found):
            raise DataError(f"{'.'.join(path)}: not a whole number")
        return int(found)

    def number(self, *path: str) -> int | None:
        return self.whole(*path) or None

    def minutes(self, *path: str) -> float | None:
        found = self.amount(*path)
        return None if found is None else found * 60

    def time(self, *path: str) -> int | None:
        found = self.whole(*path)
        if found is not None and not 0 <= found < MAX_TIME:
            raise DataError(f"{'.'.join(path)}: not a time: {found}")
        return found * SECOND if found else None

    def seconds(self, *path: str) -> float | None:
        """Return the seconds of ``{"seconds": …, "microseconds": …}``."""
        whole, rest = self.whole(*path, "seconds"), self.whole(*path, "microseconds")
        if whole is None:
            return None
        return whole + rest / 10**6 if rest else whole

    def state(self, *path: str) -> str | None:
        """Return a state in capitals, the first one of a list."""
        found = self.text(*path)
        return found.upper().partition(",")[0] if found else None

    def exit_code(self, *path: str) -> tuple[int | None, int | None]:
        """Return code and signal, from either dialect or from the raw status of wait(2)."""
        found = self.get(*path)
        if isinstance(found, dict):
            inner = JsonObject(found)
            signal = inner.whole("signal", "id")
            if signal is None:
                signal = inner.whole("signal", "signal_id")
            code = inner.whole("return_code")
            if code is None and signal is None:
                return None, None
            return code or 0, signal or 0
        status = self.whole(*path)
        return (None, None) if status is None else wait_status(status)


_NO_VALUE, _UNLIMITED = -2, -1
"""Sentinels of signed numbers in 22.05."""


def _rows(job: JsonObject) -> list[SacctRow]:
    if job.get("time") is None and job.get("job_state") is not None:
        raise DataError("a job of squeue or scontrol, not of sacct")
    row = _job(job)
    steps = [_step(step, row) for step in job.objects("steps")]
    if steps and not row.total_cpu:
        row = _with_cpu_times(row, steps)
    return [row, *steps]


def _with_cpu_times(job: SacctRow, steps: list[SacctRow]) -> SacctRow:
    """Sum the CPU times of a job's steps, like sacct's text; in JSON of 22.05 the job's are 0."""
    return msgspec.structs.replace(
        job,
        system_cpu=_sum(step.system_cpu for step in steps),
        user_cpu=_sum(step.user_cpu for step in steps),
        total_cpu=_sum(step.total_cpu for step in steps),
    )


def _sum(times: Iterable[float | None]) -> float:
    return round(math.fsum(time or 0 for time in times), 6)


def _job(job: JsonObject) -> SacctRow:
    exit_code, exit_signal = job.exit_code("exit_code")
    requested, allocated = _amounts(job, "requested"), _amounts(job, "allocated")
    return SacctRow(
        _id(job),
        job_name=job.text("name"),
        user=job.text("user") or job.text("association", "user"),
        account=job.text("account"),
        state=job.state("state", "current"),
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
        alloc_cpus=allocated.get("cpu"),
        cpu_time=_cpu_time(job, allocated),
        alloc_nodes=job.whole("allocation_nodes"),
        req_tres=_text(requested),
        total_cpu=job.seconds("time", "total"),
        consumed_energy=allocated.get("energy"),
    )


def _reservation(job: JsonObject) -> str | None:
    """Return the reservation's name; 22.05 writes its memory address instead."""
    name = job.get("reservation", "name")
    return name if isinstance(name, str) and name else None


def _cpu_time(record: JsonObject, allocated: dict[str, int]) -> int | None:
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
    mean, peak = _amounts(step, "requested", "average"), _amounts(step, "requested", "max")
    written = _amounts(step, "consumed", "average")
    return SacctRow(
        _step_id(step, job.id),
        job_name=step.text("step", "name"),
        account=job.account,
        state=step.state("state"),
        submit=step.time("time", "start"),
        start=step.time("time", "start"),
        end=step.time("time", "end"),
        time_limit=step.minutes("time", "limit"),
        node_list=step.word("nodes", "range"),
        layout=step.word("task", "distribution"),
        suspended=step.whole("time", "suspended"),
        exit_code=exit_code,
        exit_signal=exit_signal,
        min_cpu=_cpu_seconds(_amounts(step, "requested", "min")),
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
        consumed_energy=step.whole("statistics", "energy", "consumed"),
        tres_usage_in_ave=_text(mean, is_usage=True),
        tres_usage_in_tot=_text(_amounts(step, "requested", "total"), is_usage=True),
        tres_usage_out_ave=_text(written, is_usage=True),
    )


def _step_id(step: JsonObject, job: SlurmId) -> SlurmId:
    """Read ``0``, ``"batch"`` or ``"18.batch"``; the number of `job` is used."""
    found = step.get("step", "id")
    name = str(found).rpartition(".")[2] if isinstance(found, int | str) else ""
    if not (name.isascii() and name.replace("+", "").isalnum()):
        raise DataError("a step without an id")
    component = step.whole("step", "het", "component")
    step_name = name if component is None else f"{name}+{component}"
    return msgspec.structs.replace(job, step=step_name, pending_tasks="")


def _name(entry: JsonObject) -> str:
    kind, name = entry.text("type") or "", entry.text("name")
    return f"{kind}/{name}" if name else kind


def _amounts(record: JsonObject, *path: str) -> dict[str, int]:
    """Return amounts by name: memory in bytes, CPU time used in milliseconds."""
    found = {}
    for entry in record.objects("tres", *path):
        amount, name = entry.whole("count"), _name(entry)
        if amount is not None:
            in_megabytes = name == "mem" and len(path) == 1  # allocated or requested
            found[name] = amount * 2**20 if in_megabytes else amount
    return found


def _text(amounts: dict[str, int], *, is_usage: bool = False) -> str | None:
    """Format amounts as sacct does, for ``tres`` to read."""
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
