"""Hosts and what of them is in use: ``qhost -j -q -xml``."""

from xml.etree import ElementTree as ET

import msgspec

from ccpipe.formats.gridengine.status import parse_xml

UNREACHABLE, DISABLED = frozenset("u"), frozenset("dD")
"""Letters of a queue's state, as qstat(1) has them."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """An execution host."""

    name: str
    processors: int | None
    """None if the host does not report."""
    slots_used: int | None
    """By the queues where they are listed (``-q``), else by the jobs (``-j``), else None."""
    jobs_running: int | None
    """Jobs and array tasks with at least one slot here; None where no jobs are listed."""
    is_reachable: bool
    is_disabled: bool
    """Whether every queue that is listed is disabled: no job will start here."""


def read_hosts(payload: bytes, *, lists_jobs: bool = False) -> list[Host]:
    """Read the hosts that qhost lists; none from what qstat writes.

    `lists_jobs` is whether it was asked for jobs, even if it lists none.

    Raises
    ------
    DataError
        if it is not XML.

    """
    tree = parse_xml(payload)
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
    """Add up; None where one is not known, or there are none."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _slots(roles: list[str]) -> int:
    """Count a job's slots: a share for each; beside SLAVE shares that of the MASTER has none."""
    return roles.count("SLAVE") or len(roles)


def _values(parent: ET.Element, tag: str) -> dict[str, str]:
    return {each.get("name", ""): each.text or "" for each in parent.findall(tag)}


def _whole(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) < _MAX_DIGITS
    return int(text) if is_number else None


_MAX_DIGITS = 10
