"""How a run ended: the manual's texts for ``failed``, and a few classes.

Source: ``execution_states`` of the Open Cluster Scheduler, and sge_status(5).
"""

import enum

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
"""The codes' texts; 31 to 35 are those of Windows hosts."""

USAGE_VALID = frozenset({0, 12, 13, 14, 15, 16, 17, 24, 25, 30, 37, 100})
"""Codes with which the record has the usage of the job (sge_status(5))."""

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
    """It reached its time limit, or one that the master enforces."""
    CANCELLED = "cancelled"
    """A user deleted it; known only if the record has ``deleted_by``."""
    REQUEUED = "requeued"
    """It will run again: migrated, rescheduled, or exit 99."""
    NODE_FAIL = "node_fail"
    """Its node or the daemon there was lost."""
    START_FAILED = "start_failed"
    """It never ran: prolog, PE start, shell, working directory and the like."""


def meaning(failed: int) -> str:
    """Return the manual's text for a code ``failed``."""
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

    The first rule that fits wins. A forced ``qdel`` writes 0 and 0, which is success unless the
    record says who deleted it.
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

    After 24 and 25 it is queued again; after 30 (exit 100) it waits in error state; without a
    start it is queued again, too.
    """
    if failed in {MIGRATING, RESCHEDULING, APPLICATION_ERROR}:
        return False
    return failed == NO_FAILURE or started


def _is_signal(exit_status: int) -> bool:
    return 128 < exit_status <= 192  # noqa: PLR2004 - 128 + signal, as in shells
