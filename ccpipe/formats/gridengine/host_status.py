"""Hosts and what of them is in use: ``qhost -j -q -xml``."""

from xml.etree import ElementTree as ET

import msgspec

from ccpipe.formats.gridengine.status import parse_xml

UNREACHABLE, DISABLED = frozenset("u"), frozenset("dD")
"""Letters of a queue's state, as qstat(1) has them."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """An execution host."""

    name: str
    processors: int
    """0 if the host does not report."""
    slots_used: int
    """By the queues where they are listed (``-q``), else by the jobs."""
    jobs_running: int
    """Jobs and array tasks with at least one slot here."""
    is_reachable: bool
    is_disabled: bool
    """Whether every queue that is listed is disabled: no job will start here."""


def read_hosts(payload: bytes) -> list[Host]:
    """Read the hosts that qhost lists; none from what qstat writes.

    Raises
    ------
    DataError
        if it is not XML.

    """
    tree = parse_xml(payload)
    if tree.tag != "qhost":
        return []
    return [_host(host) for host in tree.iter("host") if host.get("name") != "global"]


def _host(host: ET.Element) -> Host:
    values = _values(host, "hostvalue")
    queues = [_values(queue, "queuevalue") for queue in host.iter("queue")]
    states = [set(queue.get("state_string", "")) for queue in queues]
    shares: dict[tuple[str, str], list[str]] = {}
    for job in host.iter("job"):
        known = _values(job, "jobvalue")
        key = job.get("name", ""), known.get("taskid", "")
        shares.setdefault(key, []).append(known.get("pe_master", ""))
    by_jobs = sum(_slots(roles) for roles in shares.values())
    return Host(
        name=host.get("name", ""),
        processors=_whole(values.get("num_proc", "")),
        slots_used=sum(_whole(queue.get("slots_used", "")) for queue in queues) or by_jobs,
        jobs_running=sum(_slots(roles) > 0 for roles in shares.values()),
        is_reachable=values.get("load_avg", "-") != "-"
        and not any(state & UNREACHABLE for state in states),
        is_disabled=bool(states) and all(state & DISABLED for state in states),
    )


def _slots(roles: list[str]) -> int:
    """Count a job's slots: a share for each; beside SLAVE shares that of the MASTER has none."""
    return roles.count("SLAVE") or len(roles)


def _values(parent: ET.Element, tag: str) -> dict[str, str]:
    return {each.get("name", ""): each.text or "" for each in parent.findall(tag)}


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _MAX_DIGITS else 0


_MAX_DIGITS = 10
