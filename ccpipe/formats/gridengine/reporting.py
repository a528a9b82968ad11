"""The reporting file's ``job_log`` lines: what happened to a job, and when.

Only here are starts. Source: the Grid Engine reporting manual page; what real lines look like
(missing ``delivered``, empty projects, colons in messages) is told in docs/gridengine.md.
"""

import re
from collections.abc import Iterator

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.gridengine.classic import none
from ccpipe.formats.gridengine.reader import Rejected, split_lines

STARTED = frozenset({"sent", "delivered"})
"""Events that say that a job or task was handed to a host. ``delivered`` is often missing."""
ENDED = frozenset({"finished", "deleted"})


class JobLog(msgspec.Struct, frozen=True, kw_only=True):
    """One line: something happened to a job, an array task or a PE task."""

    time: int
    """When it happened, in nanoseconds since the epoch."""
    event: str
    """``pending``, ``sent``, ``delivered``, ``finished``, ``deleted``, ``error``, …"""
    job_number: int
    task_number: int
    """-1 where the whole job is meant; 0 where it is no array."""
    pe_taskid: str | None
    state: str
    user: str
    """Who did it: a user, ``master``, ``scheduler``, ``execution daemon``."""
    host: str
    """Where that is noted: of a start it is qmaster's, not where the job runs."""
    submission_time: int
    job_name: str
    owner: str
    group: str
    project: str | None
    department: str
    account: str
    message: str

    @property
    def is_start(self) -> bool:
        """Whether a job or an array task starts with it."""
        return self.event in STARTED and self.task_number >= 0 and self.pe_taskid is None


_LINE = re.compile(
    r"[0-9]+:job_log:([0-9]{1,10}):([^:]*):([0-9]{1,10}):(-?[0-9]{1,10}):([^:]*):([^:]*):([^:]*)"
    r":([^:]*):[0-9]+:-?[0-9]+:([0-9]{1,10}):([^:]*):([^:]*):([^:]*):([^:]*):([^:]*):([^:]*):(.*)",
    re.DOTALL,
)
_IS_JOB_LOG = re.compile(rb"[0-9]+:job_log:")


def parse_job_log(line: bytes) -> JobLog | None:
    """Read one line without its end; None where it tells something else.

    Raises
    ------
    DataError
        where it is a ``job_log`` line and does not hold what one has.

    """
    if not _IS_JOB_LOG.match(line):
        return None
    found = _LINE.fullmatch(line.rstrip(b"\r").decode("utf-8", "surrogateescape"))
    if found is None:
        raise DataError("a job_log line whose fields are not those of one")
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


def read_job_log(payload: bytes) -> tuple[list[JobLog], list[Rejected]]:
    """Read the ``job_log`` lines of a payload; all others are passed over."""
    logs: list[JobLog] = []
    rejected: list[Rejected] = []
    offset = 0
    for number, line in enumerate(split_lines(payload), 1):
        try:
            log = parse_job_log(line)
        except DataError as error:
            rejected.append(Rejected(number, offset, str(error), line))
        else:
            if log is not None:
                logs.append(log)
        offset += len(line) + 1
    return logs, rejected


def starts(logs: list[JobLog]) -> Iterator[JobLog]:
    """Yield the first sign of each run's start; a run that follows an end is another."""
    running: set[tuple[int, int]] = set()
    for log in logs:
        key = log.job_number, log.task_number
        if log.is_start and key not in running:
            running.add(key)
            yield log
        elif log.pe_taskid is None and log.event not in STARTED:
            running.discard(key)
