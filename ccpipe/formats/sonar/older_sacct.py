"""Jobs as Sonar up to 0.13 wrote them: sacct's columns as strings, with sacct's names.

A column that can be parsed moves to the field of today; one that cannot stays as an unknown
field, so that nothing is lost.
"""

import math
import re
from collections.abc import Callable
from typing import Any

from ccpipe.errors import DataError
from ccpipe.formats.nodelist import split
from ccpipe.formats.sonar.types.primitives import INFINITE, UINT64_MAX, UNSET, ExtendedUint
from ccpipe.formats.sonar.types.timestamp import is_readable


def modern_job(job: dict[str, Any], *, minute: int) -> None:
    """Change one job in place; `minute` is how many units of ``time_limit`` a minute has."""
    _read_number(job)
    for old, (new, read) in _COLUMNS.items():
        if isinstance(job.get(old), str) and new not in job:
            _move(job, old, job, new, read)
    if isinstance(job.get("TimelimitRaw"), str) and "time_limit" not in job:
        _move(job, "TimelimitRaw", job, "time_limit", lambda text: _limit(text, minute))
    sacct: dict[str, Any] = {}
    for name, read in _SACCT.items():
        if isinstance(job.get(name), str):
            _move(job, name, sacct, name, read)
    if sacct:
        job.setdefault("sacct", sacct)


def _read_number(job: dict[str, Any]) -> None:
    shown, raw = job.get("JobID"), job.get("JobIDRaw")
    if not isinstance(shown, str) or not isinstance(raw, str) or "job_id" in job:
        return
    from ccpipe.formats.slurm.records import SlurmId  # its package reads all of Slurm's formats

    try:
        number = SlurmId.read(shown, raw)
    except DataError:
        return
    del job["JobID"], job["JobIDRaw"]
    job.update(
        job_id=number.job,
        job_step=number.step,
        array_job_id=number.array_job or 0,
        array_task_id=number.array_task or 0,
        het_job_id=number.het_job or 0,
        het_job_offset=number.het_offset or 0,
    )


def _move(
    source: dict[str, Any], old: str, target: dict[str, Any], new: str, read: "_Reader"
) -> None:
    try:
        target[new] = read(source[old])
    except ValueError:
        return
    del source[old]


_Reader = Callable[[str], Any]


def _number(text: str) -> int:
    if text and not re.fullmatch("[0-9]{1,20}", text):
        raise ValueError(text)
    return _in_64_bits(int(text or 0))


def _in_64_bits(number: int) -> int:
    if number > UINT64_MAX:
        raise ValueError(number)
    return number


def _kilobytes(text: str) -> int:
    """Read a volume such as ``1.5G``; sacct counts bytes where there is no suffix."""
    if not text:
        return 0
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([KMGTP]?)", text)
    if found is None:
        raise ValueError(text)
    power = "KMGTP".index(found[2]) if found[2] else -1
    return _in_64_bits(math.ceil(float(found[1]) * 1024.0**power))


def _seconds(text: str) -> int:
    """Read a duration ``[days-[hours:]]minutes:seconds[.fraction]``, truncated to seconds."""
    if not text:
        return 0
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(piece or 0) for piece in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


_DURATION = re.compile(
    r"(?:([0-9]{1,9})-)?(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{1,9})(?:\.[0-9]+)?"
)


def _time(text: str) -> str:
    if text in ("", "Unknown", "None"):
        return ""
    if not is_readable(text):
        raise ValueError(text)
    return text


def _limit(text: str, minute: int) -> int:
    if text == "UNLIMITED":
        return INFINITE.wire
    if text in ("", "Partition_Limit"):
        return UNSET.wire
    return ExtendedUint(_number(text) * minute).wire


def _priority(text: str) -> int:
    return ExtendedUint(_number(text)).wire if text else UNSET.wire


def _code(text: str) -> int:
    code, _, signal = text.partition(":")
    if signal not in ("", "0"):
        raise ValueError(text)
    return _number(code)


def _state(text: str) -> str:
    return text.partition(" ")[0]  # of "CANCELLED by 1000" the rest is discarded


def _nodes(text: str) -> list[str]:
    try:
        return split(text) if text else []
    except DataError as error:
        raise ValueError(text) from error


_COLUMNS: dict[str, tuple[str, _Reader]] = {
    "JobName": ("job_name", str),
    "State": ("job_state", _state),
    "User": ("user_name", str),
    "Account": ("account", str),
    "Submit": ("submit_time", _time),
    "Partition": ("partition", str),
    "Reservation": ("reservation", str),
    "NodeList": ("nodes", _nodes),
    "Priority": ("priority", _priority),
    "Layout": ("distribution", str),
    "ReqCPUS": ("requested_cpus", _number),
    "ReqMem": ("requested_memory_per_node", _kilobytes),
    "ReqNodes": ("requested_node_count", _number),
    "Start": ("start_time", _time),
    "Suspended": ("suspend_time", _seconds),
    "End": ("end_time", _time),
    "ExitCode": ("exit_code", _code),
}

_SACCT: dict[str, _Reader] = {
    "MinCPU": _seconds,
    "AllocTRES": str,
    "AveCPU": _seconds,
    "AveDiskRead": _kilobytes,
    "AveDiskWrite": _kilobytes,
    "AveRSS": _kilobytes,
    "AveVMSize": _kilobytes,
    "ElapsedRaw": _number,
    "SystemCPU": _seconds,
    "UserCPU": _seconds,
    "MaxRSS": _kilobytes,
    "MaxVMSize": _kilobytes,
}
