"""JSON lines of every release of OCS 9 so far.

Lines with only known keys, nearly all, are decoded into a Struct; others are decoded more slowly,
preserving unknown keys and bytes that are not UTF-8.
"""

import json
import math
from typing import Annotated, Any, Literal, NoReturn

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.gridengine.record import EMPTY, Accounting, Amount, Origin, Variant, none

_MICROSECONDS = 2**63 // 1000
_Time = Annotated[int, msgspec.Meta(ge=0, lt=_MICROSECONDS)]
_Whole = Annotated[int, msgspec.Meta(ge=-(2**53), lt=2**53)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class Line(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The keys in the writer's order; keys with a null text are omitted."""

    time: _Time | None = None
    type: Literal["acct"] = "acct"
    job_number: _Number
    task_number: _Number = 0
    start_time: _Time
    end_time: _Time
    owner: str = ""
    group: str = ""
    account: str = ""
    qname: str = ""
    hostname: str = ""
    project: str | None = None
    department: str = ""
    granted_pe: str | None = None
    slots: _Whole = 0
    arid: _Number = 0
    job_name: str = ""
    priority: _Whole = 0
    submission_time: _Time = 0
    submit_cmd_line: str | None = None
    ar_submission_time: _Time = 0
    pe_taskid: str | None = None
    category: str = ""
    failed: _Number
    exit_status: _Whole
    deleted_by: str | None = None
    usage: dict[str, dict[str, Amount]] = {}


KEYS = {field.encode_name: field.required for field in msgspec.structs.fields(Line)}
"""The keys in order, and whether they are required."""
_LINE = msgspec.json.Decoder(Line)


def parse_jsonl(line: bytes, file: str = "", offset: int = 0, number: int = 0) -> Accounting | None:
    """Read one line of ``accounting.jsonl``, or an ``acct`` line of ``reporting.jsonl``.

    None for other types of lines. The other arguments are as in ``reader.parse``.

    Raises DataError naming the invalid key.
    """
    found: Line | None
    extra: dict[str, Any] = {}
    try:
        found = _LINE.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found, extra = _parse_unusual(line)
    if found is None:
        return None
    usage, variant = found.usage, Variant.JSONL
    if "eusage" not in usage and "usage" in usage:
        usage = {"eusage" if name == "usage" else name: usage[name] for name in usage}
        variant = Variant.JSONL_90
    return Accounting(
        job_number=found.job_number,
        task_number=found.task_number,
        owner=found.owner,
        group=found.group,
        account=found.account,
        qname=found.qname,
        hostname=found.hostname,
        project=found.project and none(found.project),
        department=found.department,
        granted_pe=found.granted_pe and none(found.granted_pe),
        slots=found.slots,
        arid=found.arid,
        job_name=found.job_name,
        priority=found.priority,
        submission_time=found.submission_time * 1000 or None,
        start_time=found.start_time * 1000 or None,
        end_time=found.end_time * 1000 or None,
        ar_submission_time=found.ar_submission_time * 1000 or None,
        submit_cmd_line=found.submit_cmd_line,
        pe_taskid=none(found.pe_taskid) or None,
        category="" if found.category in EMPTY else found.category,
        failed=found.failed,
        exit_status=found.exit_status,
        deleted_by=found.deleted_by or None,
        usage=usage,
        extra=extra,
        reported=found.time * 1000 if found.time else None,
        origin=Origin(file, offset, number, variant),
    )


def _parse_unusual(line: bytes) -> tuple[Line | None, dict[str, Any]]:
    """Read a line with unknown keys or bytes that are not UTF-8; None for another type of line."""
    text = line.decode("utf-8", "surrogateescape")
    try:
        tree = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        if not isinstance(tree, dict):
            raise DataError("not a JSON object")
        if "time" in tree and tree.get("type", "acct") != "acct":
            return None, {}
        extra = {key: tree.pop(key) for key in list(tree) if key not in KEYS}
        found = msgspec.convert(tree, Line)
    except msgspec.ValidationError as error:
        raise DataError(_reason(str(error))) from None
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg}, at byte {_byte(text, error.pos)}") from None
    except (RecursionError, ValueError) as error:
        raise DataError(f"not a JSON record: {error}") from None
    return found, extra


def _refuse(constant: str) -> NoReturn:
    raise DataError(f"{constant} is not a JSON number")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise DataError(f"{text:.40} is beyond the range of a double")
    return number


def _byte(text: str, position: int) -> int:
    return len(text[:position].encode("utf-8", "surrogateescape"))


def _reason(text: str) -> str:
    reason, _, path = text.partition(" - at `$.")
    return f"{path.rstrip('`')}: {reason}" if path else reason
