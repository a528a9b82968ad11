"""Searches for jobs: filters, order and page, and their SQL, in which all values are parameters."""

from collections.abc import Callable
from typing import Any

import msgspec

from ccpipe.errors import UsageError, suggestion

KEY_METRICS = (
    "cpu_load", "flops_any", "mem_bw", "ipc", "mem_used", "nv_util", "nv_fb_mem_used",
    "rocm_gfx_util", "ib_total_bw", "lustre_read_bw", "lustre_write_bw",
)  # fmt: skip
"""Metrics whose mean and maximum over a job can be searched for."""
METRIC_COLUMNS = tuple(f"{kind}_{metric}" for metric in KEY_METRICS for kind in ("mean", "max"))
MAX_LIMIT = 1000
MAX_VALUES = 100
MAX_WORDS = 10

COLUMNS = {
    **{name: name for name in ("cluster", "job", "submit", "start", "stop")},
    **{name: name for name in ("user", "project", "partition")},
    **{name: name for name in ("name", "state", "nodes", "first_node", "hwthreads", "gpus")},
    "walltime": "walltime",
    "duration": "CASE WHEN start > 0 THEN (CASE stop WHEN 0 THEN :now ELSE stop END) - start END",
    "reason": "reason",
    "tasks": "tasks",
    **{name: name for name in ("energy", "cpu", "memory", "gpu", "findings")},
    **dict(zip(METRIC_COLUMNS, METRIC_COLUMNS, strict=True)),
}  # fmt: skip
"""What is known of each job, and its SQL. Times and durations are seconds, energy joules; cpu,
memory and gpu are the share used of what was allocated; metrics are as stored. A pending job has
the start 0, the nodes that it requests, and `reason`, why it waits; of an array, `tasks` wait."""
BY_STOP = "CASE stop WHEN 0 THEN 9223372036854775807 ELSE stop END"
"""Jobs that run, and those that wait, are the latest to stop."""
TEXTS = (
    "cluster", "user", "project", "partition", "name", "state", "first_node", "findings", "reason",
)  # fmt: skip
NULLABLE = (
    "submit", "hwthreads", "gpus", "walltime", "duration", "tasks", "energy", "cpu", "memory",
    "gpu", *METRIC_COLUMNS,
)  # fmt: skip
NUMBERS = tuple(name for name in COLUMNS if name not in TEXTS)


class JobSearch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which jobs to find. Lists match any of their values, and all if they are empty."""

    cluster: list[str] = []
    job: list[int] = []
    user: list[str] = []
    project: list[str] = []
    partition: list[str] = []
    state: list[str] = []
    node: list[str] = []
    """Names of nodes; jobs that ran on any of them."""
    name: str = ""
    """Part of a name; upper and lower case of a to z are the same."""
    words: list[str] = []
    """Each is part of the number, user, project, partition, name, state or reason, or the name of
    a node; upper and lower case as for `name`."""
    is_running: bool | None = None
    """Whether jobs run, or have ended; those that wait have the state ``pending``."""
    since: float | None = None
    """Jobs that ran at or after this time, in seconds since the epoch, or that wait."""
    until: float | None = None
    """Jobs that started at or before this time."""
    ranges: dict[str, tuple[float | None, float | None]] = {}
    """Smallest and largest value of a column of numbers; jobs without a value do not match."""
    sort: str = "start"
    descending: bool = True
    offset: int = 0
    limit: int = 100


def conditions(search: JobSearch) -> tuple[str, dict[str, Any]]:
    """Return the condition in SQL, and its parameters; raises UsageError."""
    _check(search)
    found = ["1"]
    parameters: dict[str, Any] = {"limit": search.limit, "offset": search.offset}

    def add(condition: str, **values: Any) -> None:
        found.append(condition)
        parameters.update(values)

    for name in ("cluster", "job", "user", "project", "partition", "state"):
        if values := getattr(search, name):
            add(f"{name} IN {_VALUES}(:{name}))", **{name: _json(values)})
    if search.node:
        add(f"id IN ({_ON_NODE} IN {_VALUES}(:node)))", node=_json(search.node))
    if search.name:
        add(_LIKE.format("name", "name"), name=_contains(search.name))
    for place, word in enumerate(search.words):
        text = _LIKE.format("words", f"word{place}")
        values = {f"word{place}": _contains(word), f"host{place}": word}
        add(f"({text} OR id IN ({_ON_NODE} = :host{place}))", **values)
    _add_times(search, add)
    for place, (name, (low, high)) in enumerate(search.ranges.items()):
        for key, sign, bound in ((f"low{place}", ">=", low), (f"high{place}", "<=", high)):
            if bound is not None:
                add(f"{COLUMNS[name]} {sign} :{key}", **{key: bound})
    return " AND ".join(found), parameters


def _add_times(search: JobSearch, add: Callable[..., None]) -> None:
    if search.is_running is not None:
        add("stop = 0 AND start > 0" if search.is_running else "stop > 0")
    if search.since is not None:
        add("(stop = 0 OR stop >= :since)", since=search.since)
    if search.until is not None:
        add("start BETWEEN 1 AND :until", until=search.until)


def ordering(search: JobSearch) -> str:
    """Return the order in SQL: unknown values last; by stop, jobs that run are the latest."""
    name = search.sort
    direction = "DESC" if search.descending else "ASC"
    expression = BY_STOP if name == "stop" else COLUMNS[name]
    known = f"{expression} IS NULL, " if name in NULLABLE else ""
    tie = "" if name == "start" else f", start {direction}"
    return f"{known}{expression} {direction}{tie}, id {direction}"


def _check(search: JobSearch) -> None:
    """Raise UsageError for columns that do not exist, and for too large a search."""
    for name in search.ranges:
        if name not in NUMBERS:
            raise UsageError(f"ranges: no column {name!r:.60}; {suggestion(name, NUMBERS)}")
    if search.sort not in COLUMNS:
        raise UsageError(f"sort: no column {search.sort!r:.60}; {suggestion(search.sort, COLUMNS)}")
    if not 0 <= search.limit <= MAX_LIMIT:
        raise UsageError(f"limit: {search.limit} is not between 0 and {MAX_LIMIT}")
    if not 0 <= search.offset < 2**63:
        raise UsageError(f"offset: {search.offset} is not between 0 and 2^63 - 1")
    lists: list[list[Any]] = [
        search.cluster,
        search.job,
        search.user,
        search.project,
        search.partition,
    ]
    lists += [search.state, search.node]
    if max(map(len, lists)) > MAX_VALUES or len(search.words) > MAX_WORDS:
        raise UsageError(f"at most {MAX_VALUES} values of a filter, and {MAX_WORDS} words")
    texts = [each for values in lists for each in values if isinstance(each, str)]
    if any(not _is_utf8(text) for text in (*texts, *search.words, search.name)):
        raise UsageError("a text of the search is not UTF-8")
    if any(not -(2**63) <= number < 2**63 for number in search.job):
        raise UsageError("job: not a 64-bit number")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _contains(text: str) -> str:
    """Return a pattern of LIKE for texts that contain another one."""
    for character in "\\%_":
        text = text.replace(character, f"\\{character}")
    return f"%{text}%"


def _json(values: list[Any]) -> str:
    return msgspec.json.encode(values).decode()


_VALUES = "(SELECT value FROM json_each"
_ON_NODE = "SELECT job_nodes.job FROM job_nodes JOIN hosts ON hosts.id = host WHERE hostname"
_LIKE = "{} LIKE :{} ESCAPE '\\'"
