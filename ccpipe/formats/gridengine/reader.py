"""The reader of all variants, which detects the variant of each line, and the search for jobs.

JSON lines are read by ``jsonl``, the colon-separated format here: one regular expression for each
number of fields. Nothing is escaped, so colons in a category add fields. The fields before and
after it are typed; if the types match in only one way, the category is the text between.
"""

import contextlib
import functools
import math
import operator
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from ccpipe.errors import DataError
from ccpipe.formats.files import ReadableStream, read_piece
from ccpipe.formats.gridengine.jsonl import parse_jsonl
from ccpipe.formats.gridengine.kernel import KERNEL
from ccpipe.formats.gridengine.record import EMPTY, Accounting, Amount, Origin, Variant, none

BLOCK = 2**20
MAX_LINE_SIZE = 16 * 2**20
"""Bytes of a line; longer ones are rejected, and not kept in memory."""


class RejectedAccountingLine(NamedTuple):
    """A line that is not a record of any known variant."""

    line: int
    """Its number in the file, from 1."""
    offset: int
    """Bytes before it in the file."""
    reason: str
    original: bytes


@dataclass(slots=True)
class ParsedChunk:
    """The records of a part of a file."""

    records: list[Accounting] = field(default_factory=list)
    rejected: list[RejectedAccountingLine] = field(default_factory=list)
    size: int = 0
    """Bytes of the part."""
    lines: int = 0
    """Lines of the part, comments and empty ones included."""


def parse(line: bytes, file: str = "", offset: int = 0, number: int = 0) -> Accounting | None:
    """Read one line without its line end; None for comments and other lines to skip.

    Those are lines of at most one character, and other types of lines of a reporting file. A
    leading byte order mark, as editors write, is ignored. File, offset and line number become the
    record's origin.

    Raises DataError, with the reason, if the line is invalid.
    """
    line = line.removeprefix(BOM_UTF8).rstrip(b"\r")
    if len(line) <= 1 or line.startswith(b"#"):
        return None
    if line.startswith(b"{"):
        return parse_jsonl(line, file, offset, number)
    try:
        return parse_classic(line.decode("utf-8", "surrogateescape"), file, offset, number)
    except DataError:
        if _OTHER_REPORT.match(line):
            return None
        raise


def parse_last(line: bytes, file: str = "", offset: int = 0, number: int = 0) -> Accounting | None:
    """Read a last line without a line end like ``parse``, and like qacct if it is truncated.

    If only ``maxvmem`` or the reservation is missing, the line is accepted with 0 for them.
    """
    try:
        return parse(line, file, offset, number)
    except DataError:
        missing = _COLONS - line.count(b":")
        if 0 <= missing <= _MAX_MISSING:
            rest = b"0" * line.endswith(b":") + b":0" * missing
            with contextlib.suppress(DataError):
                return parse(line + rest, file, offset, number)
        raise


_COLONS = 44  # in a line without colons in its category
_MAX_MISSING = 3  # fields

REPORTS = (
    "new_job", "job_log", "online_usage", "queue", "queue_consumable", "host", "host_consumable",
    "new_ar", "ar_attr", "ar_attribute", "ar_log", "ar_acct", "sharelog",
)  # fmt: skip
"""Types of lines in a reporting file other than ``acct``."""

_OTHER_REPORT = re.compile(rf"[0-9]+:(?:{'|'.join(REPORTS)}):".encode())


def read(payload: bytes, *, file: str = "", offset: int = 0, line: int = 1) -> ParsedChunk:
    """Read the lines of a payload that begins at `offset` and `line` of a file.

    The last line may lack its line end, see ``parse_last``.
    """
    reading = ParsedChunk(size=len(payload))
    lines = split_lines(payload)
    complete = payload.count(b"\n")
    for i, text in enumerate(lines):
        try:
            record = (parse if i < complete else parse_last)(text, file, offset, line + i)
        except DataError as error:
            reading.rejected.append(RejectedAccountingLine(line + i, offset, str(error), text))
        else:
            if record is not None:
                reading.records.append(record)
        offset += len(text) + 1
    reading.lines = len(lines)
    return reading


def split_lines(payload: bytes) -> list[bytes]:
    """Split at LF only, removing line ends."""
    lines = payload.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def read_stream(stream: ReadableStream, *, file: str = "") -> Iterator[ParsedChunk]:
    """Read a whole file, in blocks of whole lines, in bounded memory.

    Raises DataError, after all readable blocks, if the rest of the file cannot be read.
    """
    offset, line = 0, 1
    for block in blocks(functools.partial(read_piece, stream)):
        reading = read(block, file=file, offset=offset, line=line)
        offset += reading.size
        line += reading.lines
        yield reading


def blocks(read: Callable[[int], bytes], size: int = BLOCK) -> Iterator[bytes]:
    """Yield a file's bytes in blocks that end with a line, except the last.

    A line longer than ``MAX_LINE_SIZE`` is split into pieces, none of which parses as a record.

    Raises DataError from `read`, after everything before the damage.
    """
    held = b""
    damage = None
    while True:
        try:
            chunk = read(size)
        except DataError as error:
            chunk, damage = b"", error
        if not chunk:
            break
        end = chunk.rfind(b"\n") + 1
        if not end and len(held) + len(chunk) <= MAX_LINE_SIZE:
            held += chunk
        else:
            end = end or len(chunk)
            yield b"".join((held, memoryview(chunk)[:end]))
            held = chunk[end:]
    if held:
        yield held
    if damage:
        raise damage


_NUMBERED = re.compile(
    rb'(?:\{"job_number":(?P<json>0|[1-9][0-9]{0,14}),)'
    rb"|(?!\{\"job_number\":)(?![^:]*:acct:)(?:[^:]*:){5}(?P<classic>0|[1-9][0-9]{0,14}):"
)
"""A line that begins with a job number in its usual place and spelling."""


def lines_of_jobs(payload: bytes, jobs: Collection[int]) -> tuple[list[int], list[int], int]:
    """Find the lines that may be records of these jobs, without reading whole lines.

    >>> lines_of_jobs(b"a.q:n1:g:anna:sim:17:x\\na.q:n1:g:anna:sim:18:x\\n", [18])
    ([23], [2], 2)

    Excludes only lines that clearly have another job number, so comments and damaged lines are
    included.

    Returns the offsets of these lines, their numbers from 1, and the number of all lines.
    """
    if KERNEL is not None:
        found: tuple[list[int], list[int], int] = KERNEL.search(payload, jobs)
        return found
    return search_in_python(payload, jobs)


def search_in_python(payload: bytes, jobs: Collection[int]) -> tuple[list[int], list[int], int]:
    """Search line by line; the reference implementation for the compiled kernel."""
    starts, numbers = [], []
    offset = number = 0
    for number, line in enumerate(split_lines(payload), 1):
        found = _NUMBERED.match(line) if offset + len(line) < len(payload) else None
        if found is None or int(found[1] or found[2]) in jobs:
            starts.append(offset)
            numbers.append(number)
        offset += len(line) + 1
    return starts, numbers, number


RUSAGE = (
    "ru_wallclock", "ru_utime", "ru_stime", "ru_maxrss", "ru_ixrss", "ru_ismrss", "ru_idrss",
    "ru_isrss", "ru_minflt", "ru_majflt", "ru_nswap", "ru_inblock", "ru_oublock", "ru_msgsnd",
    "ru_msgrcv", "ru_nsignals", "ru_nvcsw", "ru_nivcsw",
)  # fmt: skip
"""The names of getrusage(2), in the order of both formats."""

TEXTS = frozenset({
    "qname", "hostname", "group", "owner", "job_name", "account", "project", "department",
    "granted_pe", "category", "pe_taskid", "job_class", "qdel_info", "submit_host", "cwd",
    "submit_cmd", "bound_cores",
})  # fmt: skip
WHOLE = (
    "job_number", "priority", "submission_time", "start_time", "end_time", "failed",
    "exit_status", "slots", "task_number", "arid", "ar_submission_time",
)  # fmt: skip
"""Integer fields; the others are amounts."""
SIGNED = frozenset({"priority", "exit_status", "slots"})
"""Integer fields that may be negative."""
TIMES = ("submission_time", "start_time", "end_time", "ar_submission_time")
EUSAGE = ("cpu", "mem", "io", "iow", "maxvmem")
UNIVA_EUSAGE = ("maxrss", "maxpss", "wallclock", "ioops")

_43 = (
    "qname", "hostname", "group", "owner", "job_name", "job_number", "account", "priority",
    "submission_time", "start_time", "end_time", "failed", "exit_status", *RUSAGE, "project",
    "department", "granted_pe", "slots", "task_number", "cpu", "mem", "io", "category", "iow",
    "pe_taskid", "maxvmem",
)  # fmt: skip
_45 = (*_43, "arid", "ar_submission_time")
_52 = (
    *_45, "job_class", "qdel_info", "maxrss", "maxpss", "submit_host", "cwd", "submit_cmd",
)  # fmt: skip
FIELDS = {
    Variant.CLASSIC_45: _45,
    Variant.CLASSIC_43: _43,
    Variant.UNIVA_55: (*_52, "wallclock", "ioops", "bound_cores"),
    Variant.UNIVA_54: (*_52, "wallclock", "ioops"),
    Variant.UNIVA_52: _52,
}
"""The fields of each variant in order, the most common variant first."""

_NUMBER = r"[ \t]*[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[ \t]*"
PE_TASK = re.compile(r"(?:NONE|none|[0-9]+\.(?=[^:]*[A-Za-z_])[^:]+)?")
"""``1.node07``, or nothing."""
_REPORTED = re.compile(r"([0-9]{1,19}):acct:(.*)", re.DOTALL)
_SECOND_RECORD = re.compile(r"(?::-?[0-9.]+){8}")
"""This many successive numbers mean a truncated line followed by another, not a category."""


def _pattern(field: str) -> str:
    if field == "category":
        return "(.*)"
    if field == "pe_taskid":
        return f"({PE_TASK.pattern})"
    return "([^:]*)" if field in TEXTS else f"({_NUMBER})"


@functools.cache
def _line_of(variant: Variant) -> re.Pattern[str]:
    """Return the pattern of a line; compiled on first use, as it is slow."""
    return re.compile(":".join(map(_pattern, FIELDS[variant])), re.DOTALL)


def parse_classic(line: str, file: str = "", offset: int = 0, number: int = 0) -> Accounting:
    """Read one line, without its end, of an accounting file or an ``acct`` line of reporting.

    The other arguments are as in ``parse``.

    Raises DataError naming the invalid field.
    """
    reported = None
    match = _match(line)
    if match is None and (prefixed := _REPORTED.fullmatch(line)):
        reported, line = _time(int(prefixed[1])), prefixed[2]
        match = _match(line)
    if match is None:
        raise DataError(_mismatch(line))
    variant, found = match
    return _record(variant, found.groups(), Origin(file, offset, number, variant), reported)


_NUMBERS = {
    variant: tuple(name for name in fields if name not in TEXTS)
    for variant, fields in FIELDS.items()
}
_PICK = {
    variant: operator.itemgetter(*(fields.index(name) for name in _NUMBERS[variant]))
    for variant, fields in FIELDS.items()
}


def _match(line: str) -> tuple[Variant, re.Match[str]] | None:
    for variant in FIELDS:
        if found := _line_of(variant).fullmatch(line):
            return variant, found
    return None


def _record(
    variant: Variant, texts: tuple[str, ...], origin: Origin, reported: int | None
) -> Accounting:
    row = dict(zip(FIELDS[variant], texts, strict=True))
    if ":" in row["category"] and _SECOND_RECORD.search(row["category"]):
        raise DataError("two records in one line: the first is truncated")
    numbers = dict(zip(_NUMBERS[variant], map(float, _PICK[variant](texts)), strict=True))
    if not math.isfinite(sum(map(abs, numbers.values()))):
        _refuse_size(numbers, row)
    whole = {name: int(numbers[name]) for name in WHOLE if name in numbers}
    if any(not _fits(name, numbers[name]) for name in whole):
        _refuse_fraction(numbers, row)
    rusage: dict[str, Amount] = {name: numbers[name] for name in RUSAGE}
    eusage: dict[str, Amount] = {name: numbers[name] for name in EUSAGE}
    extra: dict[str, str] = {}
    if "submit_cmd" in row:  # Univa; in milliseconds
        rusage["ru_wallclock"] = numbers["ru_wallclock"] / 1000
        eusage |= {name: numbers[name] for name in UNIVA_EUSAGE if name in numbers}
        extra = {name: row[name] for name in ("job_class", "submit_host", "bound_cores")
                 if name in row}  # fmt: skip
        extra["cwd"] = _with_colons(row["cwd"])
    return Accounting(
        job_number=whole["job_number"],
        task_number=whole["task_number"],
        owner=row["owner"],
        group=row["group"],
        account=row["account"],
        qname=row["qname"],
        hostname=row["hostname"],
        project=none(row["project"]),
        department=row["department"],
        granted_pe=none(row["granted_pe"]),
        slots=whole["slots"],
        arid=whole.get("arid", 0),
        job_name=row["job_name"],
        priority=whole["priority"],
        submission_time=_time(whole["submission_time"]),
        start_time=_time(whole["start_time"]),
        end_time=_time(whole["end_time"]),
        ar_submission_time=_time(whole.get("ar_submission_time", 0)),
        failed=whole["failed"],
        exit_status=whole["exit_status"],
        pe_taskid=none(row["pe_taskid"]) or None,
        category="" if row["category"] in EMPTY else row["category"],
        submit_cmd_line=_with_colons(row["submit_cmd"]) if "submit_cmd" in row else None,
        deleted_by=none(row.get("qdel_info", "")) or None,
        usage={"rusage": rusage, "eusage": eusage},
        extra=extra,
        reported=reported,
        origin=origin,
    )


_MAX_WHOLE = 2**53
"""Bound of integers: doubles are exact up to here."""


def _refuse_size(numbers: dict[str, float], row: dict[str, str]) -> None:
    for name, number in numbers.items():
        if not math.isfinite(number):
            raise DataError(f"{name} is {row[name]!r:.40}: beyond the range of a double")


def _refuse_fraction(numbers: dict[str, float], row: dict[str, str]) -> NoReturn:
    name = next(name for name in WHOLE if name in numbers and not _fits(name, numbers[name]))
    raise DataError(f"{name} is {row[name]!r:.40}: not a whole number in its range")


def _fits(name: str, number: float) -> bool:
    return number.is_integer() and (0 if name not in SIGNED else -_MAX_WHOLE) <= number < _MAX_WHOLE


def _time(stamp: int) -> int | None:
    """Convert a time, whose unit follows from its magnitude, to nanoseconds; None for 0."""
    unit = next(unit for minimum, unit in _UNITS if stamp >= minimum or not minimum)
    if not 0 <= stamp * unit < 2**63:
        raise DataError(f"{stamp} is not a time between the years 1970 and 2262")
    return stamp * unit or None


_UNITS = ((10**14, 10**3), (10**11, 10**6), (0, 10**9))
"""Smallest time of each unit, and the unit in nanoseconds."""


def _with_colons(text: str) -> str:
    """Restore colons, replaced by Univa in paths and commands by an invalid UTF-8 byte."""
    return text.replace("\udcad", ":").replace("\udcff", ":")


def _mismatch(line: str) -> str:
    texts = line.split(":")
    minimum = len(_43)
    if len(texts) < minimum:
        return f"expected at least {minimum} fields, got {len(texts)}"
    front = list(zip(_43, texts, strict=False))[: _43.index("category")]
    for number, (name, text) in enumerate(front, 1):
        if name not in TEXTS and not re.fullmatch(_NUMBER, text):
            return f"field {number}, {name}, is {text!r:.40}: not a number"
    return f"{len(texts)} fields whose types match no known variant"
