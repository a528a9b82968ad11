"""Writers of both formats, whose output reads as the same record.

The classic format lacks fractions of a second, the command line, ``deleted_by`` and custom usage;
JSON lines are complete.
"""

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TypeVar

from ccpipe.errors import EncodeError
from ccpipe.formats.gridengine.reader import FIELDS, RUSAGE, TEXTS, TIMES
from ccpipe.formats.gridengine.record import Accounting, Amount, Variant

HEADER = b"# Version: 8.1.9\n# \n# DO NOT MODIFY THIS FILE MANUALLY!\n# \n"

_FLOATS = frozenset({
    "ru_utime", "ru_stime", "ru_maxrss", "ru_inblock", "cpu", "mem", "io", "iow", "maxvmem",
})  # fmt: skip


def encode_classic(record: Accounting) -> bytes:
    """Write one line of 45 fields, like Son of Grid Engine and OCS; also for the reporting file.

    Raises EncodeError if a text contains a colon, a line end or half of a surrogate pair: the
    format has no escapes.
    """
    fields = [_classic_field(record, name) for name in FIELDS[Variant.CLASSIC_45]]
    if record.reported is not None:
        fields[:0] = [str(record.reported // 10**9), "acct"]
    try:
        return (":".join(fields) + "\n").encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        raise EncodeError(f"job {record.job_number}: no UTF-8 for {character!a}") from None


def _classic_field(record: Accounting, name: str) -> str:
    if name in TEXTS:
        text = getattr(record, name)
        text = "NONE" if text is None or (name == "category" and not text) else text
        if "\n" in text or (":" in text and name != "category"):
            raise EncodeError(
                f"job {record.job_number}: {name} has a colon or line end: {text!r:.80}"
            )
        return str(text)
    if name in _FLOATS:
        return f"{record.amount('rusage' if name in RUSAGE else 'eusage', name):.6f}"
    if name in RUSAGE:
        return str(int(record.amount("rusage", name)))
    value = getattr(record, name)
    return str((value or 0) // 10**9 if name in TIMES else value)


def encode_jsonl(record: Accounting) -> bytes:
    """Write one line byte for byte like OCS 9.2: keys, their order, numbers and escapes."""
    members = [f'"{key}":{text}' for key, text in _members(record).items() if text is not None]
    return ("{" + ",".join(members) + "}\n").encode("utf-8", "surrogateescape")


def _members(record: Accounting) -> dict[str, str | None]:
    """Return the keys in order with their values as JSON; None is omitted."""
    reserved = record.arid != 0
    return {
        "time": _time(record.reported) if record.reported is not None else None,
        "type": '"acct"' if record.reported is not None else None,
        "job_number": str(record.job_number),
        "task_number": str(record.task_number),
        "start_time": _time(record.start_time),
        "end_time": _time(record.end_time),
        "owner": _text(record.owner),
        "group": _text(record.group),
        "account": _text(record.account),
        "qname": _text(record.qname),
        "hostname": _text(record.hostname),
        "project": _optional(record.project),
        "department": _text(record.department),
        "granted_pe": _optional(record.granted_pe),
        "slots": str(record.slots),
        "arid": str(record.arid) if reserved else None,
        "job_name": _text(record.job_name),
        "priority": str(record.priority),
        "submission_time": _time(record.submission_time),
        "submit_cmd_line": _optional(record.submit_cmd_line),
        "ar_submission_time": _time(record.ar_submission_time)
        if reserved or record.ar_submission_time
        else None,
        "pe_taskid": _text(record.pe_taskid or "NONE"),
        "category": _text(record.category or "-"),
        "failed": str(record.failed),
        "exit_status": str(record.exit_status),
        "deleted_by": _optional(record.deleted_by),
        **{_text(key)[1:-1]: json.dumps(value) for key, value in record.extra.items()},
        "usage": _containers(record.usage),
    }


def _containers(usage: Mapping[str, Mapping[str, Amount]]) -> str:
    return _object(usage, lambda name, each: _object(each, lambda key, v: _amount(name, key, v)))


_T = TypeVar("_T")


def _object(members: Mapping[str, _T], write: Callable[[str, _T], str]) -> str:
    return "{" + ",".join(f"{_text(key)}:{write(key, v)}" for key, v in members.items()) + "}"


def _amount(container: str, name: str, value: Amount) -> str:
    """Write a value: ``rusage`` has integers except for its two times, other containers doubles.

    An integer that is not exact as a double stays an integer in any container.
    """
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int) and int(float(value)) != value:
        return str(value)
    is_integer = value == int(value) and abs(value) < 2**63 - 1
    if container == "rusage" and name not in {"ru_utime", "ru_stime"} and is_integer:
        return str(int(value))
    return double(value)


def double(value: float) -> str:
    """Write a number like RapidJSON: the fewest digits that read as the same double.

    >>> double(0.000075), double(4e-7), double(1e21), double(12)
    ('0.000075', '4e-7', '1e21', '12.0')
    """
    if not value:
        return "0.0"
    sign, digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)  # position of the decimal point in the digits
    if len(text) <= point <= _PLAIN_DIGITS:
        text = text.ljust(point, "0") + ".0"
    elif 0 < point <= _PLAIN_DIGITS:
        text = f"{text[:point]}.{text[point:]}"
    elif _PLAIN_ZEROS < point <= 0:
        text = f"0.{'0' * -point}{text}"
    else:
        text = f"{text[0]}{'.' * (len(text) > 1)}{text[1:]}e{point - 1}"
    return "-" * sign + text


_PLAIN_DIGITS, _PLAIN_ZEROS = 21, -6


def _time(nanoseconds: int | None) -> str:
    return str((nanoseconds or 0) // 1000)


def _optional(text: str | None) -> str | None:
    return None if text is None else _text(text)


def _text(text: str) -> str:
    return f'"{_SPECIAL.sub(_escape, text)}"'


_SPECIAL = re.compile('["\\\\\x00-\x1f\ud800-\udc7f\udd00-\udfff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def _escape(found: re.Match[str]) -> str:
    return _SHORT.get(found[0], f"\\u{ord(found[0]):04X}")
