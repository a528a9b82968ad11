"""Jobs and hosts: ``qstat -xml``, ``qstat -g t -xml`` and ``qhost -j -q -xml``.

For cells without ``job_log``, and for the hosts of running parallel jobs, which have no other
source.
"""

from datetime import UTC, datetime, tzinfo
from xml.etree import ElementTree as ET

import msgspec

from ccpipe.errors import DataError


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A running job, or with ``-g t`` its share on one host."""

    job_number: int
    task_number: int = 0
    """0 if it is not an array."""
    name: str = ""
    owner: str = ""
    start_time: int | None = None
    """Nanoseconds since the epoch."""
    queue: str = ""
    hostname: str = ""
    role: str = ""
    """``MASTER`` or ``SLAVE``; empty without ``-g t``."""
    slots: int = 1


def read_shares(tree: ET.Element, *, zone: tzinfo | None = None) -> list[Share]:
    """Read running jobs from ``qstat -xml``, with or without ``-g t``, or ``qhost -j -xml``.

    qstat's times are in `zone`, by default this machine's. qhost lists a share without slots for
    each slot, so each counts as one.

    Raises DataError, with the place, if it is the output of neither.
    """
    if tree.tag == "job_info":
        return _of_qstat(tree, zone)
    if tree.tag == "qhost":
        return _of_qhost(tree)
    raise DataError(f"the root is <{tree.tag:.40}>, neither <job_info> nor <qhost>")


class PendingTasks(msgspec.Struct, frozen=True, kw_only=True):
    """A pending job, or some tasks of an array that are pending in the same state."""

    job_number: int
    name: str = ""
    owner: str = ""
    state: str = ""
    """Letters as in qstat(1): ``qw``, ``hqw``, ``Eqw``."""
    submission_time: int | None = None
    """Nanoseconds since the epoch."""
    slots: int = 1
    tasks: str = ""
    """Such as ``3-9:2``; empty if it is not an array."""


def read_pending(tree: ET.Element, *, zone: tzinfo | None = None) -> list[PendingTasks] | None:
    """Read pending jobs from ``qstat -xml``; None of qhost, which does not list them.

    Times are in `zone`, by default this machine's.
    """
    if tree.tag != "job_info":
        return None
    return [
        PendingTasks(
            job_number=_number(job, "JB_job_number"),
            name=job.findtext("JB_name") or "",
            owner=job.findtext("JB_owner") or "",
            state=job.findtext("state") or "",
            submission_time=_timestamp(job.findtext("JB_submission_time"), zone),
            slots=_number(job, "slots"),
            tasks=job.findtext("tasks") or "",
        )
        for job in tree.iter("job_list")
        if job.get("state") == "pending"
    ]


def _of_qstat(tree: ET.Element, zone: tzinfo | None) -> list[Share]:
    shares = []
    for job in tree.iter("job_list"):
        if job.get("state") != "running":
            continue
        queue, _, host = job.findtext("queue_name", "").partition("@")
        tasks = job.findtext("tasks") or ""
        shares.append(
            Share(
                job_number=_number(job, "JB_job_number"),
                task_number=int(tasks) if tasks.isdecimal() else 0,
                name=job.findtext("JB_name") or "",
                owner=job.findtext("JB_owner") or "",
                start_time=_timestamp(job.findtext("JAT_start_time"), zone),
                queue=queue,
                hostname=host,
                role=job.findtext("master") or "",
                slots=_number(job, "slots"),
            )
        )
    return shares


def _of_qhost(tree: ET.Element) -> list[Share]:
    shares = []
    for host in tree.iter("host"):
        for job in host.iter("job"):
            known = _values(job, "jobvalue")
            queue, _, at = known.get("qinstance_name", "").partition("@")
            start = known.get("start_time", "")
            task = known.get("taskid", "")
            shares.append(
                Share(
                    job_number=_digits(job.get("name", ""), "job"),
                    task_number=int(task) if task.isdecimal() else 0,
                    name=known.get("job_name", ""),
                    owner=known.get("job_owner", ""),
                    start_time=_digits(start, "start_time") * 10**9 if start else None,
                    queue=queue,
                    hostname=at or host.get("name", ""),
                    role=known.get("pe_master", ""),
                )
            )
    return shares


def parse_xml(payload: bytes) -> ET.Element:
    """Parse the output of a command for the readers; raises DataError if it is not XML."""
    if b"<!DOCTYPE" in payload or b"<!ENTITY" in payload:
        raise DataError("document type declaration in the output of Grid Engine")
    try:
        return ET.fromstring(payload)  # noqa: S314 - without entities there is nothing to attack
    except (ET.ParseError, ValueError, LookupError) as error:
        raise DataError(f"not XML: {error}") from None


def _number(job: ET.Element, name: str) -> int:
    return _digits(job.findtext(name) or "", name)


def _digits(text: str, name: str) -> int:
    number = _whole(text)
    if number is None:
        raise DataError(f"{name} is {text!r:.40}: not a number")
    return number


def _timestamp(text: str | None, zone: tzinfo | None) -> int | None:
    if not text:
        return None
    try:
        timestamp = datetime.fromisoformat(text)
        timestamp = timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=zone)
        return round((timestamp.astimezone(UTC) - _EPOCH).total_seconds()) * 10**9
    except (ValueError, OverflowError):
        raise DataError(f"not a time: {text!r:.40}") from None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


UNREACHABLE, DISABLED = frozenset("u"), frozenset("dD")
"""State codes of a queue, see qstat(1)."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """An execution host."""

    name: str
    processors: int | None
    slots_used: int | None
    """From the queues if listed (``-q``), else from the jobs (``-j``), else None."""
    jobs_running: int | None
    """Jobs and array tasks with at least one slot here; None if jobs are not listed."""
    is_reachable: bool
    is_disabled: bool
    """Whether every listed queue is disabled, so that no job will start here."""


def read_hosts(tree: ET.Element, *, lists_jobs: bool = False) -> list[Host]:
    """Read the hosts listed by qhost; empty for the output of qstat.

    `lists_jobs` is whether jobs were requested, even if none is listed.
    """
    if tree.tag != "qhost":
        return []
    lists_jobs = lists_jobs or next(tree.iter("job"), None) is not None
    return [_host(host, lists_jobs) for host in tree.iter("host") if host.get("name") != "global"]


def _host(host: ET.Element, lists_jobs: bool) -> Host:
    values = _values(host, "hostvalue")
    queues = [_values(queue, "queuevalue") for queue in host.iter("queue")]
    states = [set(queue.get("state_string", "")) for queue in queues]
    shares: dict[tuple[str, str], list[str]] = {}
    for job in host.iter("job"):
        known = _values(job, "jobvalue")
        key = job.get("name", ""), known.get("taskid", "")
        shares.setdefault(key, []).append(known.get("pe_master", ""))
    by_jobs = sum(_slots(roles) for roles in shares.values()) if lists_jobs else None
    by_queues = _sum([_whole(queue.get("slots_used", "")) for queue in queues])
    used = by_jobs if not by_queues and by_jobs is not None else by_queues
    jobs = sum(_slots(roles) > 0 for roles in shares.values())
    return Host(
        name=host.get("name", ""),
        processors=_whole(values.get("num_proc", "")),
        slots_used=used,
        jobs_running=jobs if lists_jobs or used == 0 else None,
        is_reachable=values.get("load_avg", "-") != "-"
        and not any(state & UNREACHABLE for state in states),
        is_disabled=bool(states) and all(state & DISABLED for state in states),
    )


def _sum(counts: list[int | None]) -> int | None:
    """Add up; None if one is unknown, or the list is empty."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _slots(roles: list[str]) -> int:
    """Count a job's slots: one per share, except a MASTER share next to SLAVE shares."""
    return roles.count("SLAVE") or len(roles)


def _values(parent: ET.Element, tag: str) -> dict[str, str]:
    return {each.get("name", ""): each.text or "" for each in parent.findall(tag)}


def _whole(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    return int(text) if is_number else None


_MAX_DIGITS = 10  # in a job number or a time in seconds
