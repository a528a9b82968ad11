"""The reporting file's ``job_log`` lines: events of jobs, including starts.

Source: the Grid Engine reporting manual page; docs/gridengine/jobs.md describes the
deviations of real files (missing ``delivered``, empty projects, colons in messages).
"""

import re

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.gridengine.reader import RejectedAccountingLine, split_lines
from ccpipe.formats.gridengine.record import NOWHERE, Origin, none

STARTED = frozenset({"sent", "delivered"})
"""Events of a job or task being sent to a host. ``delivered`` is often missing."""
DELETED = "deleted"


class JobLog(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a job, array task or PE task."""

    time: int
    """Nanoseconds since the epoch."""
    event: str
    """``pending``, ``sent``, ``delivered``, ``finished``, ``deleted``, ``error``, …"""
    job_number: int
    task_number: int
    """-1 for the whole job; 0 if it is not an array."""
    pe_taskid: str | None
    state: str
    user: str
    """Who caused it: a user, ``master``, ``scheduler``, ``execution daemon``."""
    host: str
    """The host that logged the event; for a start the qmaster's, not the job's."""
    submission_time: int
    job_name: str
    owner: str
    group: str
    project: str | None
    department: str
    account: str
    message: str
    origin: Origin = NOWHERE

    @property
    def is_start(self) -> bool:
        return self.event in STARTED and self.task_number >= 0 and self.pe_taskid is None


_LINE = re.compile(
    r"[0-9]+:job_log:([0-9]{1,10}):([^:]*):([0-9]{1,10}):(-?[0-9]{1,10}):([^:]*):([^:]*):([^:]*)"
    r":([^:]*):[0-9]+:-?[0-9]+:([0-9]{1,10}):([^:]*):([^:]*):([^:]*):([^:]*):([^:]*):([^:]*):(.*)",
    re.DOTALL,
)
_IS_JOB_LOG = re.compile(rb"[0-9]+:job_log:")


def parse_job_log(line: bytes) -> JobLog | None:
    """Read one line without its line end; None for a line of another type.

    Raises DataError if it is a ``job_log`` line with wrong fields.
    """
    if not _IS_JOB_LOG.match(line):
        return None
    found = _LINE.fullmatch(line.rstrip(b"\r").decode("utf-8", "surrogateescape"))
    if found is None:
        raise DataError("invalid fields in a job_log line")
    (time, event, job, task, pe_task, state, user, host, submitted, name, *who, message) = (
        found.groups()
    )
    owner, group, project, department, account = who
    return JobLog(
        time=int(time) * 10**9,
        event=event,
        job_number=int(job),
        task_number=int(task),
        pe_taskid=none(pe_task) or None,
        state=state,
        user=user,
        host=host,
        submission_time=int(submitted) * 10**9,
        job_name=name,
        owner=owner,
        group=group,
        project=none(project) or None,
        department=department,
        account=account,
        message=message,
    )


def read_job_log(
    payload: bytes, *, file: str, offset: int, line: int
) -> tuple[list[JobLog], list[RejectedAccountingLine]]:
    """Read the starts and deletions in a payload; accounting records are better for other events.

    The payload begins at `offset` and `line` of a file.
    """
    found: list[JobLog] = []
    rejected: list[RejectedAccountingLine] = []
    for number, text in enumerate(split_lines(payload), line):
        try:
            log = parse_job_log(text)
        except DataError as error:
            rejected.append(RejectedAccountingLine(number, offset, str(error), text))
        else:
            if log is not None and (log.is_start or log.event == DELETED):
                found.append(msgspec.structs.replace(log, origin=Origin(file, offset, number)))
        offset += len(text) + 1
    return found, rejected
