"""``Accounting``: an accounting record in fixed units, whichever program wrote it.

A job's category has its resource requests, in the syntax of ``qsub``:

>>> parse_category("-q all.q -l h_rt=3600,h_vmem=2G,gpu=1 -pe mpi 4").h_vmem
2147483648

Sources of the codes ``failed``: ``execution_states`` of the Open Cluster Scheduler, sge_status(5).
"""

import enum
import functools
import math
import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

EMPTY = frozenset({"", "-", "NONE", "none"})

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
          "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}  # fmt: skip
_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([kKmMgGtT]?)")
_TIME = re.compile(r"(?:(?:([0-9]*):)?([0-9]*):)?([0-9]+(?:\.[0-9]*)?)")
_GPU = ("gpu", "gpus", "ngpus", "gpu_count", "gpucount", "cuda")


class Requests(msgspec.Struct, frozen=True):
    """The hard resource requests (``-l``) of a category, by scope; values are as written."""

    resources: dict[str, str] = {}
    """Requests of the whole job."""
    master: dict[str, str] = {}
    slave: dict[str, str] = {}

    @property
    def h_rt(self) -> float | None:
        """The limit on wall-clock time in seconds, ``h_rt`` or else ``s_rt``."""
        return _first(self.resources, ("h_rt", "s_rt"), seconds)

    @property
    def h_vmem(self) -> int | None:
        """The limit on memory in bytes, at most sites per slot."""
        return _first(self.resources, ("h_vmem", "s_vmem", "mem_free", "h_rss"), size)

    @property
    def gpu(self) -> int | None:
        """Accelerators, per slot or per job depending on the site; None without a request."""
        return _first({**self.slave, **self.master, **self.resources}, _GPU, size)


@functools.lru_cache(maxsize=4096)  # a site has few categories, each with many records
def parse_category(text: str) -> Requests:
    """Read the resources of a category; never fails, ignores everything else."""
    if text in EMPTY:
        return Requests()
    words = iter(text.split())
    scope, is_soft = "global", False
    found: dict[str, dict[str, str]] = {"global": {}, "master": {}, "slave": {}}
    for word in words:
        if word in {"-hard", "-soft"}:
            is_soft = word == "-soft"
        elif word == "-scope":
            scope, is_soft = next(words, ""), False
        elif word == "-l" and (pairs := _pairs(next(words, ""))) and not is_soft:
            found.setdefault(scope, {}).update(pairs)
    return Requests(found["global"], found["master"], found["slave"])


def _pairs(text: str) -> dict[str, str]:
    """Read ``a=1,b``; a resource without a value is TRUE, as in qsub."""
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return {name: value if equals else "TRUE" for name, equals, value in pairs}


def size(text: str) -> int | None:
    """Read an amount such as ``2G`` (2³⁰) or ``2g`` (10⁹) (sge_types(1), *memory_specifier*)."""
    found = _MEMORY.fullmatch(text)
    number = float(found[1]) * _UNITS[found[2]] if found else math.inf
    return int(number) if math.isfinite(number) else None


def seconds(text: str) -> float | None:
    """Read a time: seconds, or ``hours:minutes:seconds`` (sge_types(1), *time_specifier*)."""
    found = _TIME.fullmatch(text)
    if not found:
        return None
    number = float(found[1] or 0) * 3600 + float(found[2] or 0) * 60 + float(found[3])
    return number if math.isfinite(number) else None


_T = TypeVar("_T")


def _first(
    resources: dict[str, str], names: tuple[str, ...], read: Callable[[str], _T | None]
) -> _T | None:
    values = (read(resources[name]) for name in names if name in resources)
    return next((value for value in values if value is not None), None)


Amount = Annotated[int, msgspec.Meta(gt=-(2**63), lt=2**63 - 1)] | float | str
"""A usage value as written; only custom containers contain texts."""


NO_FAILURE = 0
NODE_LOST = frozenset({19, 21, 22})
MIGRATING, RESCHEDULING, APPLICATION_ERROR = 24, 25, 30
LIMIT = 37
START_FAILED = frozenset({*range(1, 12), *range(26, 30), *range(31, 37), 38})
THROUGH_SIGNAL = frozenset({17, 100})

MEANINGS = {
    0: "no failure",
    1: "assumedly before job",
    2: "executing shepherd",
    3: "before writing config",
    4: "before writing pid",
    5: "reading config file",
    6: "setting processor set",
    7: "before prolog",
    8: "in prolog",
    9: "before pestart",
    10: "in pestart",
    11: "before job",
    12: "before pestop",
    13: "in pestop",
    14: "before epilog",
    15: "in epilog",
    16: "releasing processor set",
    17: "through signal",
    18: "shepherd returned error",
    19: "before writing exit_status",
    20: "found unexpected error file",
    21: "in recognizing job",
    22: "removed manually",
    23: "PTF cannot get pids",
    24: "migrating",
    25: "rescheduling",
    26: "opening input/output file",
    27: "searching requested shell",
    28: "changing into working directory",
    29: "AFS setup",
    30: "rescheduling on application error",
    31: "accessing sgepasswd file",
    32: "entry is missing in password file",
    33: "wrong password",
    34: "communicating with Grid Engine Helper Service",
    35: "before job in Grid Engine Helper Service",
    36: "checking configured daemons",
    37: "qmaster enforced h_rt, h_cpu, or h_vmem limit",
    38: "adding supplementary group",
    100: "assumedly after job",
}
"""The texts of the codes; 31 to 35 occur on Windows hosts."""

GRACE = 60.0
"""Seconds before its limit from which a run ended by a daemon counts as a timeout."""


class Outcome(enum.StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    """It started and returned 0."""
    FAILED = "failed"
    """It returned another status, or PE stop or epilog failed."""
    KILLED = "killed"
    """A signal ended it: a crash, a memory limit, or ``qdel`` before OCS 9.1.2."""
    TIMEOUT = "timeout"
    """It reached its time limit, or a limit enforced by the master."""
    CANCELLED = "cancelled"
    """A user deleted it; known only if the record has ``deleted_by``."""
    REQUEUED = "requeued"
    """It will run again: migrated, rescheduled, or exit 99."""
    NODE_FAIL = "node_fail"
    """Its node or the daemon there was lost."""
    START_FAILED = "start_failed"
    """It never ran: failure of prolog, PE start, shell, working directory etc."""


def meaning(failed: int) -> str:
    return MEANINGS.get(failed, "invalid execution state")


def classify(  # noqa: PLR0911 - a list of rules, one return each
    *,
    failed: int,
    exit_status: int,
    started: bool,
    deleted_by: str = "",
    wallclock: float = 0,
    limit: float | None = None,
) -> Outcome:
    """Return the class of a run; `limit` is the requested ``h_rt`` in seconds.

    The first matching rule applies. A forced ``qdel`` writes 0 and 0, which is success unless the
    record has ``deleted_by``.
    """
    daemon = deleted_by.partition("@")[0] in {"execd", "qmaster"}
    if failed == LIMIT:
        return Outcome.TIMEOUT
    if deleted_by and not daemon:
        return Outcome.CANCELLED
    if failed in NODE_LOST or (failed == RESCHEDULING and daemon):
        return Outcome.NODE_FAIL
    if failed in {MIGRATING, RESCHEDULING}:
        return Outcome.REQUEUED
    if daemon and limit is not None and wallclock >= limit - GRACE:
        return Outcome.TIMEOUT
    if failed in START_FAILED or (failed == NO_FAILURE and not started):
        return Outcome.START_FAILED
    if failed in THROUGH_SIGNAL or _is_signal(exit_status):
        return Outcome.KILLED
    return Outcome.COMPLETED if failed == exit_status == 0 else Outcome.FAILED


def is_last_record(failed: int, *, started: bool) -> bool:
    """Return whether the job ends with such a record.

    After 24 and 25, and without a start, it is queued again; after 30 (exit 100) it stays in error
    state.
    """
    if failed in {MIGRATING, RESCHEDULING, APPLICATION_ERROR}:
        return False
    return failed == NO_FAILURE or started


def _is_signal(exit_status: int) -> bool:
    return 128 < exit_status <= 192  # noqa: PLR2004 - 128 + signal, as in shells


class Variant(enum.StrEnum):
    """The format of a record; see docs/gridengine/jobs.md."""

    CLASSIC_43 = "classic-43"
    """Colons, SGE 5.3 to 6.1."""
    CLASSIC_45 = "classic-45"
    """Colons, SGE 6.2, Son of Grid Engine, OCS with ``old_accounting``."""
    UNIVA_52 = "univa-52"
    """Colons and milliseconds, Univa 8.2."""
    UNIVA_54 = "univa-54"
    """Univa 8.3 and 8.4."""
    UNIVA_55 = "univa-55"
    """Univa 8.5 and 8.6."""
    JSONL_90 = "jsonl-9.0"
    """JSON lines of OCS 9.0.0 to 9.0.5, whose second container is ``usage.usage``."""
    JSONL = "jsonl"
    """JSON lines of OCS from 9.0.6 on."""


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where a record was read. File and offset identify it, unlike its contents."""

    file: str = ""
    """The file's id, given by the caller: a path, or a hash that survives rotation."""
    offset: int = 0
    """Bytes before the record's line."""
    line: int = 0
    """The line's number in the file, from 1."""
    variant: Variant = Variant.CLASSIC_45


NOWHERE = Origin()
NO_DATA = 2.0**64
"""Written by OCS before 9.1.4 for an unknown ``maxrss`` (systemd's sentinel)."""


class Accounting(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run of a job, array task or PE task.

    Times are nanoseconds since the epoch. A time of 0, ``NONE`` and a missing key
    give None. The names are the manual's.
    """

    job_number: int
    task_number: int = 0
    """0 if the job is not an array."""
    owner: str = ""
    group: str = ""
    account: str = ""
    qname: str = ""
    hostname: str = ""
    project: str | None = None
    department: str = ""
    granted_pe: str | None = None
    slots: int = 0
    """Slots of the whole job, even in the record of a PE task."""
    arid: int = 0
    job_name: str = ""
    priority: int = 0
    """The nice value of the queue, not the priority of ``qsub -p``."""
    submission_time: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    ar_submission_time: int | None = None
    submit_cmd_line: str | None = None
    pe_taskid: str | None = None
    """A task of a tightly integrated parallel job, such as ``1.node07``."""
    category: str = ""
    failed: int = 0
    exit_status: int = 0
    """128 + signal if a signal ended it; -1 in intermediate records of the reporting file."""
    deleted_by: str | None = None
    """``user@host``, ``execd@host`` or ``qmaster@host``."""
    usage: dict[str, dict[str, Amount]] = {}
    """``rusage``, ``eusage`` and custom containers, whole, in the writer's units.

    Seconds, but ``ru_maxrss`` in KiB, ``maxvmem``, ``maxrss`` and ``maxpss`` in bytes, ``mem`` in
    GiB·s and ``io`` in GiB. (Univa's ``ru_wallclock`` is converted to seconds.)
    """
    extra: dict[str, Any] = {}
    """The rest of the line: unknown JSON keys, Univa's additional fields."""
    reported: int | None = None
    """Time of the line in the reporting file; None in an accounting file."""
    origin: Origin = NOWHERE

    def amount(self, container: str, name: str) -> float:
        """Return a usage value; 0 if it is missing or a text."""
        value = self.usage.get(container, {}).get(name, 0)
        return value if isinstance(value, int | float) else 0

    @property
    def wallclock(self) -> float:
        """Seconds from start to end, ``ru_wallclock``, as summed by qacct."""
        return self.amount("rusage", "ru_wallclock")

    @property
    def cpu(self) -> float:
        return self.amount("eusage", "cpu")

    @property
    def maxrss(self) -> float:
        """Peak resident memory in bytes: ``maxrss``, or ``ru_maxrss`` if that is unknown."""
        measured = self.amount("eusage", "maxrss")
        if 0 < measured < NO_DATA:
            return measured
        return 1024 * self.amount("rusage", "ru_maxrss")

    @property
    def maxvmem(self) -> float:
        """Peak virtual memory in bytes; 0 if it was not measured."""
        return self.amount("eusage", "maxvmem")

    @property
    def requests(self) -> Requests:
        return parse_category(self.category)

    @property
    def outcome(self) -> Outcome:
        return classify(
            failed=self.failed,
            exit_status=self.exit_status,
            started=self.start_time is not None,
            deleted_by=self.deleted_by or "",
            wallclock=self.wallclock,
            limit=self.requests.h_rt,
        )

    @property
    def failure(self) -> str:
        return meaning(self.failed)

    @property
    def is_final(self) -> bool:
        """Whether the job ends with this record."""
        return is_last_record(self.failed, started=self.start_time is not None)

    @property
    def is_intermediate(self) -> bool:
        """Whether the job still runs: usage since midnight, from the reporting file."""
        return self.exit_status == -1


def none(text: str | None) -> str | None:
    return None if text in {"NONE", "none"} else text


def clean(text: str) -> str:
    """Replace bytes that are not UTF-8 with U+FFFD, as JSON requires."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


_SURROGATE = re.compile("[\ud800-\udfff]")
