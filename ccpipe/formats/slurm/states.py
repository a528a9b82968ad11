"""States of jobs and nodes: one spelling, in capitals, whatever command printed them.

>>> job_state("CANCELLED by 1000"), job_state("CG")
('CANCELLED', 'COMPLETING')
>>> node_states("down+drain+not_responding"), node_states("drng*")
(('DOWN', 'DRAIN', 'NOT_RESPONDING'), ('DRAINING', 'NOT_RESPONDING'))

Source: ``job_state_string``, ``node_state_string`` and ``node_state_string_compact`` of Slurm
26.05; sinfo(1), *NODE STATE CODES*.
"""

import re

from ccpipe.errors import DataError
from ccpipe.formats.slurm.values import ABSENT

JOB_CODES = {
    "PD": "PENDING", "R": "RUNNING", "S": "SUSPENDED", "CD": "COMPLETED", "CA": "CANCELLED",
    "F": "FAILED", "TO": "TIMEOUT", "NF": "NODE_FAIL", "PR": "PREEMPTED", "BF": "BOOT_FAIL",
    "DL": "DEADLINE", "OOM": "OUT_OF_MEMORY", "CG": "COMPLETING", "SO": "STAGE_OUT",
    "CF": "CONFIGURING", "RS": "RESIZING", "RQ": "REQUEUED", "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD", "SE": "SPECIAL_EXIT", "ST": "STOPPED", "RV": "REVOKED",
    "RD": "RESV_DEL_HOLD", "SI": "SIGNALING",
}  # fmt: skip
"""What ``squeue -o %t`` prints, and what it means."""

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
"""What ``sinfo -o %t`` prints instead of the whole word."""

_STATE = re.compile(r"([A-Z][A-Z_]*)(?: by ([0-9]{1,10}))?")
_NODE_STATE = re.compile(r"([A-Z][A-Z_]*)([*~#!%$@^+-]?)")


def job_state(cell: str) -> str | None:
    """Read a job's state, whole or as a code; who cancelled it is another question."""
    if cell in ABSENT:
        return None
    return JOB_CODES.get(cell) or _job_state(cell)[1]


def cancelled_by(cell: str) -> int | None:
    """Return the uid of ``CANCELLED by 1000``; None if nobody is named."""
    if " " not in cell or cell in ABSENT:
        return None
    return int(_job_state(cell)[2])


def _job_state(cell: str) -> re.Match[str]:
    found = _STATE.fullmatch(cell)
    if found is None:
        raise DataError(f"not a job's state: {cell!r:.40} (expected e.g. CANCELLED by 1000)")
    return found


def node_states(cell: str) -> tuple[str, ...]:
    """Read a node's state and its flags, the state first.

    ``down+drain``, as *StateComplete* and scontrol print it, is split; ``drain*``, as sinfo prints
    it, is ``DRAINED`` and ``NOT_RESPONDING``.
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
