"""Numbers, durations, volumes and exit codes as Slurm's commands print them.

Each function reads one cell and returns None where Slurm prints that there is nothing; for what it
cannot be it raises DataError. Units are always the same: seconds, bytes, joules.

>>> duration("1-02:03:04"), duration("00:14.493"), duration("UNLIMITED"), duration("")
(93784, 14.493, inf, None)
>>> volume("76.50M"), volume("90693888"), volume("600", unit=2**20)
(80216064, 90693888, 629145600)

Source: ``_elapsed_time``, ``_print_small_double``, ``convert_num_unit`` and ``secs2time_str`` of
Slurm's sacct, squeue and scontrol, 20.11 to 26.05.
"""

import math
import re
from collections.abc import Mapping

from ccpipe.errors import DataError

ABSENT = frozenset({
    "", "N/A", "n/a", "NA", "N/S", "n/s", "(null)", "None", "NONE", "none", "Unknown", "UNKNOWN",
    "unknown", "None assigned", "NOT_SET", "INVALID", "Partition_Limit",
})  # fmt: skip
"""How Slurm prints that there is no value; a duration that makes no sense is ``INVALID``."""

INFINITE = frozenset({"UNLIMITED", "Unlimited", "unlimited", "INFINITE", "infinite"})

_DURATION = re.compile(
    r"(?:([0-9]{1,9})-)?(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{1,9})(?:\.([0-9]{1,9}))?"
)
_HOURS = {f"{hours:02}:": hours * 3600 for hours in range(24)}
_SIXTIES = {f"{n // 60:02}:{n % 60:02}": n for n in range(3600)}
_THOUSANDTHS = {f"{n:03}": n for n in range(1000)}
_EXIT = re.compile(r"([0-9]{1,10})(?::([0-9]{1,10}))?")
_BINARY: Mapping[str, int] = {letter: 1024**power for power, letter in enumerate("KMGTPEZ", 1)}
_DECIMAL: Mapping[str, int] = {letter: 1000**power for power, letter in enumerate("KMGTPEZ", 1)}
_MAX_DIGITS = 20
_NEVER_SET = str(2**64 - 2)[:18]
"""How a double shows Slurm's mark for a number that was never set, and what is near to it."""


def text(cell: str) -> str | None:
    """Read a text that may be missing."""
    return None if cell in ABSENT else cell


def whole(cell: str) -> int | None:
    """Read a whole number without suffix, such as ``ElapsedRaw``."""
    if cell in ABSENT:
        return None
    if not (cell.isascii() and cell.isdigit() and len(cell) <= _MAX_DIGITS):
        raise DataError(f"not a whole number: {cell!r:.40}")
    return int(cell)


def count(cell: str) -> int | None:
    """Read a number of nodes, CPUs or tasks: ``4``, ``1.50K``; of ``2-4`` the first."""
    if cell in ABSENT:
        return None
    minimum, dash, maximum = cell.partition("-")
    if dash and not (minimum and maximum[:1].isdigit() and volume(maximum)):
        raise DataError(f"not a number: {cell!r:.40} (expected e.g. 4, 2-4)")
    return volume(minimum)


def duration(cell: str) -> float | None:
    """Read seconds from ``[days-[hours:]]minutes:seconds[.fraction]``.

    Without a fraction they are an int; ``UNLIMITED`` is infinite; ``Partition_Limit``, ``NOT_SET``
    and ``INVALID`` are None.
    """
    try:  # MM:SS.mmm and HH:MM:SS, which nearly all are
        if cell[5:6] == ".":
            return (_SIXTIES[cell[:5]] * 1000 + _THOUSANDTHS[cell[6:]]) / 1000
        return _HOURS[cell[:3]] + _SIXTIES[cell[3:]]
    except KeyError:
        return _long_duration(cell)


def _long_duration(cell: str) -> float | None:
    found = _DURATION.fullmatch(cell)
    if found is None:
        if cell in ABSENT:
            return None
        if cell in INFINITE:
            return math.inf
        raise DataError(f"not a duration: {cell!r:.40} (expected e.g. 1-02:03:04, 02:03.456)")
    days, hours, minutes, seconds = map(int, found.groups(0)[:4])
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return total if found[5] is None else float(f"{total}.{found[5]}")


def minutes(cell: str) -> float | None:
    """Read seconds from a number of minutes, as ``TimelimitRaw`` is printed."""
    if cell in INFINITE:
        return math.inf
    number = whole(cell)
    return None if number is None else number * 60


def volume(cell: str, unit: int = 1, factors: Mapping[str, int] = _BINARY) -> int | None:
    """Read bytes from ``93585K``, ``76.50M`` or ``2G``: each letter is a factor of 1024.

    Without a letter the number counts in `unit`.
    """
    factor = factors.get(cell[-1:])
    digits = cell if factor is None else cell[:-1]
    if digits.isdigit() and digits.isascii() and len(digits) <= _MAX_DIGITS:
        return int(digits) * (factor or unit)
    whole, _, decimals = digits.partition(".")
    if not (whole.isdigit() and decimals.isdigit() and cell.isascii() and len(cell) <= _MAX_DIGITS):
        if cell in ABSENT:
            return None
        raise DataError(f"not an amount: {cell!r:.40} (expected e.g. 93585K, 76.50M)")
    scale: int = 10 ** len(decimals)
    return round(int(whole + decimals) * (factor or unit) / scale)


def megabytes(cell: str) -> int | None:
    """Read bytes from a number of MiB, unless it carries another letter."""
    return volume(cell, 2**20)


def decimal(cell: str) -> int | None:
    """Read joules or hertz from ``17.80K``: each letter is a factor of 1000."""
    return volume(cell, 1, _DECIMAL)


def requested_memory(cell: str) -> tuple[int, str] | None:
    """Read ``ReqMem`` into bytes and what they are of: ``job``, ``cpu`` or ``node``.

    ``600M`` is of the whole job (21.08 and later), ``300Mc`` of each CPU and ``2Gn`` of each node
    (until 20.11). A number that was never set, which sacct of 22.05 prints of some jobs that lost
    their node, is None.
    """
    if cell.startswith(_NEVER_SET):
        return None
    of = {"c": "cpu", "n": "node"}.get(cell[-1:], "job")
    amount = megabytes(cell if of == "job" else cell[:-1])
    return None if amount is None else (amount, of)


def exit_code(cell: str) -> tuple[int, int] | None:
    """Read ``code:signal`` such as ``3:0``, ``0:11`` or ``0:125`` (out of memory)."""
    if cell in ABSENT:
        return None
    found = _EXIT.fullmatch(cell)
    if found is None:
        raise DataError(f"not an exit code: {cell!r:.40} (expected e.g. 3:0, 0:11)")
    return int(found[1]), int(found[2] or 0)


def wait_status(status: int) -> tuple[int, int]:
    """Split the status of wait(2) into code and signal: 768 is 3:0, 11 is 0:11, 253 is 0:125."""
    return status >> 8 & 0xFF, status & 0x7F
