"""Events of jobs, of the queue and of states of nodes as one readable line."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.clustercockpit import NodeReasons, NodeStates
from ccpipe.formats.nodelist import compress
from ccpipe.jobs import RUNNING, Job, RunKey, function_of, read_event
from ccpipe.jobs.pending import PENDING_EVENT, PendingJob, read_pending_event
from ccpipe.message import Kind, Message
from ccpipe.terminal import format_elapsed, plural

SECOND = 10**9
MAX_NUMBERS = 8
"""Maximum number of pending jobs of a reason that are named."""
MAX_STARTS = 10_000
"""Maximum number of jobs whose owner and nodes are kept for the text of their stop."""

ENDINGS = {
    "": "ended",
    "boot_fail": "failed, as a node did not boot",
    "deadline": "reached its deadline",
    "node_fail": "failed with a node",
    "out_of_memory": "ran out of memory",
    "timeout": "reached its time limit",
}
"""What is written for a state in which a job ended; other states are participles."""
_GOOD = ("", "completed")
_USUAL = ("allocated", "idle", "mixed")


class EventText(NamedTuple):
    """An event in words, and its colour."""

    text: str
    colour: str = ""


class EventTexts:
    """Describes events; a stop has the owner and the nodes of its start, if that was seen."""

    def __init__(self) -> None:
        self._starts: dict[RunKey, str] = {}

    def describe(self, message: Message) -> EventText | None:
        """Return the text of an event; None if it is not about jobs or states of nodes."""
        if message.kind is not Kind.EVENT:
            return None
        try:
            if describe := _OTHERS.get(message.name):
                return describe(message)
            function, job = function_of(message), read_event(message)
        except (DataError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        if function == "start_job":
            return EventText(f"job {job.id} started: {self._start(job)}")
        return self._stop(job)

    def _start(self, job: Job) -> str:
        parts = [
            job.user,
            node_text([node.hostname for node in job.nodes]),
            plural(job.accelerators, "GPU") if job.accelerators else "",
            job.partition and f"partition {job.partition}",
        ]
        owner = ", ".join(filter(None, parts[:2]))
        self._starts[job.run_key] = owner
        if len(self._starts) > MAX_STARTS:
            del self._starts[next(iter(self._starts))]
        if job.walltime:
            parts.append(f"limit {format_elapsed(job.walltime)}")
        if job.state != RUNNING:
            parts.append(f"already {job.state}")
        return ", ".join(filter(None, [*parts, _cluster(job.cluster)]))

    def _stop(self, job: Job) -> EventText:
        text = f"job {job.id} {ENDINGS.get(job.state, job.state)}"
        if job.start and job.end:
            text += f" after {format_elapsed((job.end - job.start) / SECOND)}"
        owner = self._starts.pop(job.run_key, "")
        rest = ", ".join(filter(None, (owner, _cluster(job.cluster))))
        colour = "" if job.state in _GOOD else "yellow" if job.state == "cancelled" else "red"
        return EventText(f"{text}: {rest}" if rest else text, colour)


def _queue(message: Message) -> EventText:
    """Describe which jobs of a user are pending, and which no longer are."""
    found = read_pending_event(message)
    parts = []
    if len(found.pending) == 1:
        parts.append(_pending_job(found.pending[0], found.user))
    elif found.pending:
        jobs = _grouped((job.id, job.reason) for job in found.pending)
        parts.append(f"{len(found.pending)} jobs are pending: {found.user}, {jobs}")
    if found.left:
        who = "" if parts or not found.user else f"{found.user}, "
        jobs = _grouped((job.id, job.state) for job in found.left)
        parts.append(f"no longer pending: {who}{jobs}")
    return EventText(", ".join(filter(None, ["; ".join(parts), _cluster(found.cluster)])))


def _pending_job(job: PendingJob, user: str) -> str:
    tasks = f" ({plural(job.tasks, 'task')} of an array)" if job.tasks else ""
    parts = [
        user,
        plural(job.nodes, "node") if job.nodes else "",
        job.partition and f"partition {job.partition}",
        f"limit {format_elapsed(job.walltime)}" if job.walltime else "",
        job.reason and f"reason {job.reason}",
    ]
    return f"job {job.id}{tasks} is pending: {', '.join(filter(None, parts))}"


def _grouped(numbers: Iterable[tuple[int, str]]) -> str:
    """Return numbers of jobs by reason or state: ``4711 4712 (Priority), 4713 (Resources)``."""
    groups: dict[str, list[int]] = {}
    for number, why in numbers:
        groups.setdefault(why, []).append(number)
    return ", ".join(
        _numbers(group) + (f" ({why})" if why else "") for why, group in groups.items()
    )


def _numbers(numbers: Sequence[int]) -> str:
    more = len(numbers) - MAX_NUMBERS
    text = " ".join(map(str, numbers[:MAX_NUMBERS]))
    return f"{text} and {more} more" if more > 0 else text


def node_text(names: Sequence[str]) -> str:
    """Return the number and the list of some nodes: ``4 nodes f[0101-0104]``."""
    return f"{plural(len(names), 'node')} {_compressed(names)}" if names else ""


def _compressed(names: Iterable[str]) -> str:
    names = list(names)
    try:
        return ",".join(compress(names))
    except DataError:  # not a name that a node list can contain
        return ",".join(names)


def _cluster(name: str) -> str:
    return name and f"cluster {name}"


def _node_states(message: Message) -> EventText:
    """Describe states of nodes; nodes in an unusual state are named."""
    found = msgspec.json.decode(str(message.value), type=NodeStates)
    states = {node.hostname: "+".join(node.states) or "unknown" for node in found.nodes}
    parts = []
    for state, count in Counter(states.values()).most_common():
        names = [] if state in _USUAL else [name for name in states if states[name] == state]
        parts.append(f"{count} {state} {_compressed(names)}".rstrip())
    text = f"states of {plural(len(states), 'node')}: {', '.join(parts)}"
    cluster = _cluster(found.cluster)
    return EventText(f"{text}, {cluster}" if cluster else text)


def _node_reasons(message: Message) -> EventText:
    found = msgspec.json.decode(str(message.value), type=NodeReasons)
    nodes: dict[str, list[str]] = {}
    for node in found.nodes:
        nodes.setdefault(node.reason, []).append(node.hostname)
    parts = [f"{_compressed(names)} {reason}" for reason, names in nodes.items()]
    text = f"reasons of {plural(len(found.nodes), 'node')}: {'; '.join(parts)}"
    cluster = _cluster(found.cluster)
    return EventText(f"{text}, {cluster}" if cluster else text)


_OTHERS = {"nodestate": _node_states, "nodereason": _node_reasons, PENDING_EVENT: _queue}
"""What describes events other than those of the class ``job``."""
