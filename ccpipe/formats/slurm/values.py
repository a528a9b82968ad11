"""Times, numbers, durations, volumes, resources and states as Slurm's commands print them.

Each function reads one cell, returns None for Slurm's placeholders of missing values, and raises
DataError for invalid cells. Units: seconds, bytes, joules; times are nanoseconds since the epoch.

Source: ``slurmdb_make_tres_string_from_simple``, ``gres_sock_str``, ``job_state_string``,
``node_state_string`` and ``node_state_string_compact`` of Slurm 26.05; slurm.conf(5),
*AccountingStorageTRES*; sinfo(1), *NODE STATE CODES*; ``_elapsed_time``, ``_print_small_double``,
``convert_num_unit`` and ``secs2time_str`` of Slurm's sacct, squeue and scontrol, 20.11 to 26.05.
"""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from ccpipe.errors import DataError

SECOND = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - for local times, less their offset
_CLOCK = {f"{n // 60:02}:{n % 60:02}": n * SECOND for n in range(3600)}
_MAX_TIME_DIGITS = 11
_HOUR = 14
"""Characters of ``2026-11-20T10:``."""
_LOCAL = 19
"""Characters of ``2026-11-20T10:32:28``."""
_MAX_HOURS = 10_000
"""Hours cached per reader: more than a year."""


class TimeReader:
    """Reads local times in one zone, seconds since the epoch, and times with their own offset.

    By default Slurm prints local time without a zone; ``SLURM_TIME_FORMAT=%s`` prints seconds since
    the epoch. `zone` must be the printing machine's; its offset at that time applies. An hour
    repeated when clocks are set back is read as the first of both; ``second`` returns the other.

    Raises DataError for invalid times, and for local times without a zone.
    """

    def __init__(self, zone: tzinfo | None = None) -> None:
        self.zone = zone
        self.has_repeats = False
        """Whether an ambiguous local time was read."""
        self.hours: dict[str, int] = {}
        """The starts of recently read hours, by the first characters of the times."""

    def __call__(self, cell: str) -> int | None:
        """Return nanoseconds since the epoch; None for ``Unknown``, ``None``, ``N/A`` and 0."""
        try:
            return self.hours[cell[:_HOUR]] + _CLOCK[cell[_HOUR:]]
        except KeyError:
            return self._read(cell)

    def column(self, cells: Sequence[str]) -> list[int | None]:
        hours, clock = self.hours, _CLOCK
        try:
            return [
                hours[cell[:_HOUR]] + clock[cell[_HOUR:]]
                if len(cell) == _LOCAL
                else self._read(cell)
                for cell in cells
            ]
        except KeyError:
            return [self(cell) for cell in cells]

    def second(self, cell: str) -> int | None:
        """Return the later meaning of an ambiguous local time; None if it is unambiguous."""
        if len(cell) != _HOUR + 5 or cell[_HOUR:] not in _CLOCK or self.zone is None:
            return None
        time = datetime.fromisoformat(cell)
        first, second = self._offset(time, 0), self._offset(time, 1)
        return _since_epoch(time, second) if second < first else None

    def _read(self, cell: str) -> int | None:
        if cell in ABSENT:
            return None
        if cell.isascii() and cell.isdigit() and len(cell) <= _MAX_TIME_DIGITS:
            return int(cell) * SECOND or None
        try:
            time = datetime.fromisoformat(cell)
            if time.tzinfo is not None:
                return (time - _EPOCH) // timedelta(microseconds=1) * 1000
            return self._local(cell, time)
        except (ValueError, OverflowError):
            raise DataError(
                f"not a time: {cell!r:.40} (expected e.g. 2026-11-20T10:32:28)"
            ) from None

    def _local(self, cell: str, time: datetime) -> int:
        if self.zone is None:
            raise DataError(f"local time {cell!r:.40} without a zone to read it in")
        if len(cell) != _HOUR + 5 or cell[_HOUR:] not in _CLOCK:
            raise ValueError(cell)
        offsets = {
            (self._offset(at, 0), self._offset(at, 1))
            for at in (time.replace(minute=minute, second=0) for minute in (0, 15, 30, 45))
        }
        if any(second < first for first, second in offsets):
            self.has_repeats = True
        if len(offsets) == 1:  # else the offset changes within the hour
            if len(self.hours) >= _MAX_HOURS:
                self.hours.clear()
            hour = time.replace(minute=0, second=0)
            self.hours[cell[:_HOUR]] = _since_epoch(hour, self._offset(hour, 0))
        return _since_epoch(time, self._offset(time, 0))

    def _offset(self, time: datetime, fold: int) -> timedelta:
        return time.replace(tzinfo=self.zone, fold=fold).utcoffset() or timedelta()


def _since_epoch(time: datetime, offset: timedelta) -> int:
    return (time - _NAIVE_EPOCH - offset) // timedelta(microseconds=1) * 1000


ABSENT = frozenset({
    "", "N/A", "n/a", "NA", "N/S", "n/s", "(null)", "None", "NONE", "none", "Unknown", "UNKNOWN",
    "unknown", "None assigned", "NOT_SET", "INVALID", "Partition_Limit",
})  # fmt: skip
"""Slurm's placeholders for missing values; ``INVALID`` is an implausible duration."""

INFINITE = frozenset({"UNLIMITED", "Unlimited", "unlimited", "INFINITE", "infinite"})

_DURATION = re.compile(
    r"(?:([0-9]{1,9})-)?(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{1,9})(?:\.([0-9]{1,9}))?"
)
_HOURS = {f"{hours:02}:": hours * 3600 for hours in range(24)}
_SIXTIES = {f"{n // 60:02}:{n % 60:02}": n for n in range(3600)}
_THOUSANDTHS = {f"{n:03}": n for n in range(1000)}
_EXIT = re.compile(r"([0-9]{1,10})(?::([0-9]{1,10}))?")
_BINARY: Mapping[str, int] = {suffix: 1024**power for power, suffix in enumerate("KMGTPEZ", 1)}
_DECIMAL: Mapping[str, int] = {suffix: 1000**power for power, suffix in enumerate("KMGTPEZ", 1)}
_MAX_DIGITS = 20
_NEVER_SET = str(2**64 - 2)[:18]
"""The first digits of Slurm's sentinel for an unset number, printed as a double."""


def text(cell: str) -> str | None:
    return None if cell in ABSENT else cell


def whole(cell: str) -> int | None:
    if cell in ABSENT:
        return None
    if not (cell.isascii() and cell.isdigit() and len(cell) <= _MAX_DIGITS):
        raise DataError(f"not a whole number: {cell!r:.40}")
    return int(cell)


def count(cell: str) -> int | None:
    """Read a number of nodes, CPUs or tasks: ``4``, ``1.50K``; ``2-4`` is 2."""
    if cell in ABSENT:
        return None
    minimum, dash, maximum = cell.partition("-")
    if dash and not (minimum and maximum[:1].isdigit() and volume(maximum)):
        raise DataError(f"not a number: {cell!r:.40} (expected e.g. 4, 2-4)")
    return volume(minimum)


def duration(cell: str) -> float | None:
    """Read seconds from ``[days-[hours:]]minutes:seconds[.fraction]``.

    An int without a fraction; infinite for ``UNLIMITED``; None for ``Partition_Limit``,
    ``NOT_SET`` and ``INVALID``.
    """
    try:  # MM:SS.mmm and HH:MM:SS, nearly all cells
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
    """Read bytes from ``93585K``, ``76.50M`` or ``2G``: suffixes are powers of 1024.

    Without a suffix the number is in `unit`.
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
    return volume(cell, 2**20)


def decimal(cell: str) -> int | None:
    """Read joules or hertz from ``17.80K``: suffixes are powers of 1000."""
    return volume(cell, 1, _DECIMAL)


def requested_memory(cell: str) -> tuple[int, str] | None:
    """Read ``ReqMem`` into bytes and their scope: ``job``, ``cpu`` or ``node``.

    ``600M`` is for the whole job (21.08 and later), ``300Mc`` per CPU and ``2Gn`` per node (until
    20.11). Unset numbers, which sacct of 22.05 prints for some jobs that lost nodes, give None.
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


JOB_CODES = {
    "PD": "PENDING", "R": "RUNNING", "S": "SUSPENDED", "CD": "COMPLETED", "CA": "CANCELLED",
    "F": "FAILED", "TO": "TIMEOUT", "NF": "NODE_FAIL", "PR": "PREEMPTED", "BF": "BOOT_FAIL",
    "DL": "DEADLINE", "OOM": "OUT_OF_MEMORY", "CG": "COMPLETING", "SO": "STAGE_OUT",
    "CF": "CONFIGURING", "RS": "RESIZING", "RQ": "REQUEUED", "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD", "SE": "SPECIAL_EXIT", "ST": "STOPPED", "RV": "REVOKED",
    "RD": "RESV_DEL_HOLD", "SI": "SIGNALING",
}  # fmt: skip

NODE_SUFFIXES = {
    "*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "!": "POWER_DOWN",
    "%": "POWERING_DOWN", "$": "MAINTENANCE", "@": "REBOOT_REQUESTED", "^": "REBOOT_ISSUED",
    "-": "PLANNED", "+": "COMPLETING",
}  # fmt: skip

_NODE_CODES = {
    "ALLOC": "ALLOCATED", "MIX": "MIXED", "COMP": "COMPLETING", "DRNG": "DRAINING",
    "FAILG": "FAILING", "UNK": "UNKNOWN", "FUTR": "FUTURE", "RESV": "RESERVED", "PLND": "PLANNED",
    "MAINT": "MAINTENANCE", "BLOCK": "BLOCKED", "EXT": "EXTERNAL", "POW_DN": "POWER_DOWN",
    "POW_UP": "POWER_UP", "POWRING_DN": "POWERING_DOWN", "POWERED_DN": "POWERED_DOWN",
    "INVAL": "INVALID_REG", "ERR": "ERROR", "CANC_R": "REBOOT_CANCEL",
}  # fmt: skip

_STATE = re.compile(r"([A-Z][A-Z_]*)(?: by ([0-9]{1,10}))?")
_NODE_STATE = re.compile(r"([A-Z][A-Z_]*)([*~#!%$@^+-]?)")


def job_state(cell: str) -> str | None:
    """Read a job's state, in full or as a code; ``cancelled_by`` returns who cancelled it."""
    if cell in ABSENT:
        return None
    return JOB_CODES.get(cell) or _job_state(cell)[1]


def cancelled_by(cell: str) -> int | None:
    """Return the uid of ``CANCELLED by 1000``; None without a uid."""
    if " " not in cell or cell in ABSENT:
        return None
    return int(_job_state(cell)[2])


def _job_state(cell: str) -> re.Match[str]:
    found = _STATE.fullmatch(cell)
    if found is None:
        raise DataError(f"not a job's state: {cell!r:.40} (expected e.g. CANCELLED by 1000)")
    return found


def node_states(cell: str) -> tuple[str, ...]:
    """Read a node's state, followed by its flags.

    ``down+drain``, as printed by *StateComplete* and scontrol, is split; sinfo's ``drain*`` is
    ``DRAINED`` and ``NOT_RESPONDING``.
    """
    if cell in ABSENT - {"Unknown", "UNKNOWN", "unknown"}:
        return ()
    first, *flags = cell.upper().split("+")
    if flags == [""]:  # "alloc+" is allocated and completing
        first, flags = f"{first}+", []
    found = _NODE_STATE.fullmatch(first)
    if found is None or not all(_NODE_STATE.fullmatch(flag) for flag in flags):
        raise DataError(f"not a node's state: {cell!r:.40} (expected e.g. idle, down+drain)")
    state, suffix = found.groups()
    if suffix:
        flags.append(NODE_SUFFIXES[suffix])
    if state == "DRAIN" and not (len(flags) - bool(suffix)):
        state = "DRAINED"
    return (_NODE_CODES.get(state, state), *flags)


MAX_INDICES = 100_000

NO_VALUE = {2**32 - 2, 2**64 - 2}
UNLIMITED = {2**32 - 1, 2**64 - 1}

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_PARENTHESIS = re.compile(r"(.*?)\(([^()]*)\)", re.DOTALL)


class Gres(msgspec.Struct, frozen=True, gc=False):
    """One kind of generic resource, such as GPUs of a type."""

    name: str
    type: str | None
    count: int
    indices: tuple[int, ...]
    """Indices of the node's devices; empty if Slurm does not print them."""


def tres(text: str | None) -> dict[str, float]:
    """Read ``name=amount`` pairs: bytes, joules, counts; CPU time of usage columns in seconds.

    The names are Slurm's. A typed resource also occurs without its type (``gres/gpu``): do not add
    both. Unset amounts are omitted.
    """
    if text is None or text in ABSENT:
        return {}
    amounts = {}
    for pair in text.split(","):
        name, sign, cell = pair.partition("=")
        if not (name and sign):
            raise DataError(f"not a list of resources: {text!r:.60} (expected e.g. cpu=4,mem=2G)")
        if (amount := _amount(name, cell)) is not None:
            amounts[name] = amount
    return amounts


def _amount(name: str, cell: str) -> float | None:
    try:
        amount = duration(cell) if ":" in cell else volume(cell)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None
    return None if amount in NO_VALUE or amount in UNLIMITED else amount


def gpu_count(text: str | None) -> int:
    amounts = tres(text)
    typed = sum(amount for name, amount in amounts.items() if name.startswith("gres/gpu:"))
    return int(amounts.get("gres/gpu", typed))


def gres(text: str | None) -> list[Gres]:
    """Read ``gpu:a100:2(IDX:0-1),mps:100``, with or without the prefix ``gres:`` or ``gres/``."""
    if text is None or text in ABSENT:
        return []
    return [_gres(element) for element in _split(text)]


def _split(text: str) -> list[str]:
    elements, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        elif character == "," and depth == 0:
            elements.append(text[start:position])
            start = position + 1
    return [*elements, text[start:]]


def _gres(element: str) -> Gres:
    plain, inside = element, ""
    if found := _PARENTHESIS.fullmatch(element):
        plain, inside = found.groups()
    parts = plain.removeprefix("gres:").removeprefix("gres/").replace("=", ":").split(":")
    name = parts.pop(0)
    amount = 1
    if parts and parts[-1][:1].isdigit():
        amount = volume(parts.pop()) or 0
    if not name or len(parts) > 1:
        raise DataError(f"not a generic resource: {element!r:.60} (expected e.g. gpu:a100:2)")
    indices = index_list(inside.removeprefix("IDX:")) if inside.startswith("IDX:") else ()
    return Gres(name, parts[0] if parts else None, amount, indices)


def index_list(text: str | None) -> tuple[int, ...]:
    """Read the numbers of ``0-3,8``, at most ``MAX_INDICES``; empty for placeholders."""
    if text is None or text in ABSENT:
        return ()
    spans = [_range(element) for element in text.split(",")]
    if sum(map(len, spans)) > MAX_INDICES:
        raise DataError(f"{text!r:.60}: more than {MAX_INDICES} numbers")
    return tuple(itertools.chain.from_iterable(spans))


def _range(element: str) -> range:
    """Read ``3``, ``5-6`` or ``0-14:2``; raises DataError."""
    found = _RANGE.fullmatch(element)
    first, last, step = map(int, found.groups(0)) if found else (0, 0, 0)
    if found is None or (found[2] and last < first) or (found[3] and not step):
        raise DataError(f"not a range of numbers: {element!r:.40} (expected e.g. 3, 0-9, 0-14:2)")
    return range(first, (last if found[2] else first) + 1, step or 1)
