"""What runs now: ``qstat -xml``, ``qstat -g t -xml`` and ``qhost -j -xml``.

For cells that write no ``job_log``, and for the hosts of parallel jobs, which nothing else tells
while they run.
"""

from datetime import UTC, datetime, tzinfo
from xml.etree import ElementTree as ET

import msgspec

from ccpipe.errors import DataError


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A job, or with ``-g t`` its share of one host."""

    job_number: int
    task_number: int = 0
    """0 if it is no array, or where several tasks wait: see `tasks`."""
    tasks: str = ""
    """Tasks as they are listed: ``3`` or ``3-5:1``."""
    name: str = ""
    owner: str = ""
    state: str = ""
    """``r``, ``qw``, ``Eqw``, ``dr``, …"""
    is_running: bool = False
    start_time: int | None = None
    """Nanoseconds since the epoch."""
    submission_time: int | None = None
    queue: str = ""
    hostname: str = ""
    role: str = ""
    """``MASTER`` or ``SLAVE``; empty without ``-g t``."""
    slots: int = 1


def read_shares(payload: bytes, *, zone: tzinfo | None = None) -> list[Share]:
    """Read ``qstat -xml``, with or without ``-g t``, or the jobs of ``qhost -j -xml``.

    The times of qstat have no zone: they are of `zone`, else of this machine's. qhost lists a
    share for each slot; slots are not said, so each counts one.

    Raises
    ------
    DataError
        if it is not what either of them writes; it says where.

    """
    tree = parse_xml(payload)
    if tree.tag == "job_info":
        return _of_qstat(tree, zone)
    if tree.tag == "qhost":
        return _of_qhost(tree)
    raise DataError(f"the root is <{tree.tag:.40}>, neither <job_info> nor <qhost>")


def _of_qstat(tree: ET.Element, zone: tzinfo | None) -> list[Share]:
    shares = []
    for job in tree.iter("job_list"):
        queue, _, host = job.findtext("queue_name", "").partition("@")
        tasks = job.findtext("tasks") or ""
        shares.append(
            Share(
                job_number=_number(job, "JB_job_number"),
                task_number=int(tasks) if tasks.isdecimal() else 0,
                tasks=tasks,
                name=job.findtext("JB_name") or "",
                owner=job.findtext("JB_owner") or "",
                state=job.findtext("state") or "",
                is_running=job.get("state") == "running",
                start_time=_moment(job.findtext("JAT_start_time"), zone),
                submission_time=_moment(job.findtext("JB_submission_time"), zone),
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
            known = {value.get("name"): value.text or "" for value in job.iter("jobvalue")}
            queue, _, at = known.get("qinstance_name", "").partition("@")
            start = known.get("start_time", "")
            task = known.get("taskid", "")
            shares.append(
                Share(
                    job_number=_digits(job.get("name", ""), "job"),
                    task_number=int(task) if task.isdecimal() else 0,
                    tasks=task,
                    name=known.get("job_name", ""),
                    owner=known.get("job_owner", ""),
                    state=known.get("job_state", ""),
                    is_running=True,
                    start_time=_digits(start, "start_time") * 10**9 if start else None,
                    queue=queue,
                    hostname=at or host.get("name", ""),
                    role=known.get("pe_master", ""),
                )
            )
    return shares


def parse_xml(payload: bytes) -> ET.Element:
    """Parse what a command wrote; raises DataError if it is not XML."""
    if b"<!DOCTYPE" in payload or b"<!ENTITY" in payload:
        raise DataError("a document type has no place in what Grid Engine writes")
    try:
        return ET.fromstring(payload)  # noqa: S314 - without entities there is nothing to attack
    except (ET.ParseError, ValueError, LookupError) as error:
        raise DataError(f"not XML: {error}") from None


def _number(job: ET.Element, name: str) -> int:
    return _digits(job.findtext(name) or "", name)


def _digits(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST):
        raise DataError(f"{name} is {text!r:.40}: not a number")
    return int(text)


_LONGEST = 10  # digits of a job number or of a time in seconds


def _moment(text: str | None, zone: tzinfo | None) -> int | None:
    if not text:
        return None
    try:
        timestamp = datetime.fromisoformat(text)
        timestamp = timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=zone)
        return round((timestamp.astimezone(UTC) - _EPOCH).total_seconds()) * 10**9
    except (ValueError, OverflowError):
        raise DataError(f"{text!r:.40} is no time") from None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
