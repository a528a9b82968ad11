"""The exact layouts of qacct(1) of Son of Grid Engine 8.1.9."""

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ccpipe.formats.gridengine import Accounting, meaning
from ccpipe.formats.gridengine.reader import RUSAGE

if TYPE_CHECKING:  # it needs pyarrow
    from ccpipe.accounting.sums import GroupTotal

TITLES = {
    "node": "HOST", "queue": "CLUSTER QUEUE", "group": "GROUP", "user": "OWNER",
    "project": "PROJECT", "department": "DEPARTMENT", "pe": "PE", "slots": "SLOTS", "ar": "AR",
    "account": "ACCOUNT",
}  # fmt: skip
"""Keys that qacct can group by, in its order, and its column titles."""

_SUMS = (
    ("WALLCLOCK", "13.0f"), ("UTIME", "13.3f"), ("STIME", "13.3f"), ("CPU", "13.3f"),
    ("MEMORY", "18.3f"), ("IO", "18.3f"), ("IOW", "18.3f"),
)  # fmt: skip

_MEANINGS = {
    2: "on executing shepherd",
    5: "on reading config file",
    23: "invalid execution state",
    30: "application error returned",
    32: "entry is missing in sgepasswd file",
}
"""Texts of 8.1.9 that differ from OCS."""

SEPARATOR = "=" * 62

_SIZES = ("ru_maxrss", "ru_ixrss", "ru_ismrss", "ru_idrss", "ru_isrss")
_SIGNALLED = 128


def sums(
    totals: Sequence["GroupTotal"], by: Sequence[str], given: Mapping[str, str | int]
) -> Iterator[str]:
    """Yield the lines of the table: `by` are groups; `given` are columns of one value.

    Where the sums of real qacct have no wallclock time, it prints no rows at all; here they are
    printed.
    """
    names = [name for name in TITLES if name in by or name in given]
    widths = {name: _width(name, totals, by, given) for name in names}
    # The title of the column AR is as wide as SLOTS, whatever its values.
    slots = widths.get("slots", _width("slots", totals, by, given))
    heads = "".join(f"{TITLES[n]:<{slots if n == 'ar' else widths[n]}}" for n in names)
    heads += " ".join(f"{title:>{form.partition('.')[0]}}" for title, form in _SUMS)
    if not names:
        yield "Total System Usage"
    yield heads
    yield "=" * len(heads)
    for total in totals:
        cells = (
            f"{_cell(given[name] if name in given else total.key[name]):<{widths[name]}}"
            for name in names
        )
        numbers = " ".join(f"{total.sums[title]:{form}}" for title, form in _SUMS)
        yield "".join(cells) + numbers


def _cell(value: str | int) -> str:
    return f"{value:5d}" if isinstance(value, int) else value


def _width(
    name: str, totals: Sequence["GroupTotal"], by: Sequence[str], given: Mapping[str, str | int]
) -> int:
    if name in {"slots", "ar"}:
        rows = [total.key.get(name, 0) for total in totals] if by else []
        return max([5, *(len(_cell(value)) + 1 for value in rows)])
    # A long account touches what follows it: the rows do not count for its width.
    counted = [] if name == "account" else totals
    texts = [str(total.key[name]) for total in counted if name in total.key]
    return max(map(len, [TITLES[name], str(given.get(name, "")), *texts])) + 1


def block(record: Accounting) -> Iterator[str]:
    yield SEPARATOR
    for label, text in _labelled(record):
        yield f"{label:<13}{text}"


def _labelled(record: Accounting) -> Iterator[tuple[str, str]]:
    for label, text in (
        ("qname", record.qname),
        ("hostname", record.hostname),
        ("group", record.group),
        ("owner", record.owner),
        ("project", record.project or "NONE"),
        ("department", record.department),
        ("jobname", record.job_name),
        ("jobnumber", str(record.job_number)),
    ):
        yield label, f"{text:<20}"
    yield "taskid", f"{record.task_number:<20}" if record.task_number else "undefined"
    yield "account", f"{record.account:<20}"
    yield "priority", f"{record.priority:<20}"
    yield "qsub_time", _time(record.submission_time or 0)
    yield "start_time", _time(record.start_time) if record.start_time else "-/-"
    yield "end_time", _time(record.end_time) if record.end_time else "-/-"
    yield "granted_pe", f"{record.granted_pe or 'NONE':<20}"
    yield "slots", f"{record.slots:<20}"
    failed = record.failed
    words = f": {_MEANINGS.get(failed) or meaning(failed)}" if failed else " "
    yield "failed", f"{failed:<3} {words}"
    yield "exit_status", f"{record.exit_status:<20}{_signal(record.exit_status)}"
    yield from _usage(record)
    yield "arid", f"{record.arid:<20}" if record.arid else "undefined"
    reserved = record.ar_submission_time
    yield "ar_sub_time", _time(reserved) if reserved else "undefined"
    yield "category", record.category or "NONE"


def _usage(record: Accounting) -> Iterator[tuple[str, str]]:
    for name in RUSAGE:
        value = record.amount("rusage", name)
        if name == "ru_wallclock":
            yield name, f"{value:.0f}s"
        elif name in {"ru_utime", "ru_stime"}:
            yield name, f"{value:.3f}s"
        elif name in _SIZES:  # ru_maxrss is KiB; qacct takes it for bytes
            yield name, f"{_size(int(value))}B"
        else:
            yield name, f"{int(value):<20}"
    yield "cpu", f"{record.cpu:.3f}s"
    yield "mem", f"{_size(record.amount('eusage', 'mem') * 2**30)}Bs"
    yield "io", f"{_size(record.amount('eusage', 'io') * 2**30)}B"
    yield "iow", f"{record.amount('eusage', 'iow'):.3f}s"
    yield "maxvmem", f"{_size(record.maxvmem)}B"


def _size(number: float) -> str:
    for unit in ("", "K", "M", "G"):
        if number < 1024:  # noqa: PLR2004 - the next unit
            return f"{number:.3f}{unit}"
        number /= 1024
    return f"{number:.3f}T"


def _time(nanoseconds: int) -> str:
    return time.ctime(nanoseconds // 10**9)


def _signal(exit_status: int) -> str:
    number = exit_status - _SIGNALLED
    if number <= 0:
        return ""
    known = signal.strsignal(number) if number < signal.NSIG else None
    return f" ({known or f'Unknown signal {number}'})"
