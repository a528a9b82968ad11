"""Events of jobs and of states of nodes as one readable line."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.clustercockpit import NodeReasons, NodeStates
from ccpipe.formats.nodelist import compress
from ccpipe.jobs import RUNNING, Job, RunKey, function_of, read_event
from ccpipe.message import Kind, Message
from ccpipe.terminal import format_elapsed, plural

SECOND = 10**9
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
        """Return the text of an event; None if it is not about a job or states of nodes."""
        if message.kind is not Kind.EVENT:
            return None
        try:
            if message.name == "nodestate":
                return _node_states(message)
            if message.name == "nodereason":
                return _node_reasons(message)
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
