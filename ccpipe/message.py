"""One message of the ClusterCockpit line protocol, and its vocabulary.

Source: ClusterCockpit specification "InfluxData line-protocol flavor", sections *Message
categories*, *Rules valid for all message categories* and *Message types*.
"""

import enum
from collections.abc import Iterator, Mapping

import msgspec


class Uint(int):
    """An integer that is written with the suffix ``u`` (0 … 2⁶⁴-1) rather than ``i``."""

    __slots__ = ()


Value = float | int | bool | str
"""A payload. ``Uint`` is an unsigned integer; a plain ``int`` is a signed one of 64 bits."""


class Kind(enum.StrEnum):
    """The category of a message, decided by its field key (*Message categories*)."""

    METRIC = "metric"
    EVENT = "event"
    LOG = "log"
    CONTROL = "control"
    OTHER = "other"
    """Any other field key: plain Influx line protocol, as Telegraf or Slurm write it."""

    @classmethod
    def of(cls, field: str) -> "Kind":
        """Return the category of a field key."""
        return _KIND_OF_FIELD.get(field, cls.OTHER)


_KIND_OF_FIELD = {
    "value": Kind.METRIC,
    "event": Kind.EVENT,
    "log": Kind.LOG,
    "control": Kind.CONTROL,
}

NODE_TYPES = frozenset(
    {"node", "socket", "die", "memoryDomain", "llc", "core", "hwthread", "accelerator"}
)
"""Values of the tag ``type`` (*Mandatory tags per message*)."""

LOG_LEVELS = ("debug", "info", "warn", "error")
"""Values of the tag ``loglevel``, the most severe last (*Message categories*)."""

CONTROL_METHODS = ("GET", "PUT")
"""Values of the tag ``method`` (*Message categories*)."""


class Message(msgspec.Struct, frozen=True):
    """One line: a name, tags, one payload and a timestamp.

    The field key decides the category. A line with several fields becomes several messages with
    the same name, tags and timestamp.
    """

    name: str
    """The measurement: metric name, event class, log component or control class."""
    tags: Mapping[str, str]
    """Sorted by key when decoded; shared by all messages of a series: do not modify."""
    value: Value
    time: int | None = None
    """Nanoseconds since the epoch; ``None`` if the line has no timestamp."""
    field: str = "value"

    @property
    def kind(self) -> Kind:
        """The category, from the field key."""
        return Kind.of(self.field)

    @property
    def hostname(self) -> str:
        """The node that the message is about; empty if the tag is missing."""
        return self.tags.get("hostname", "")

    def problems(self) -> list[str]:
        """Return the rules of the specification that the message breaks.

        A tag without a value counts as missing. Messages that break rules are still carried,
        because many programs write such messages.
        """
        return [*_tag_problems(self.tags), *_PAYLOAD_RULES[self.kind](self)] + (
            [] if self.time is not None else ["the timestamp is missing"]
        )


def _tag_problems(tags: Mapping[str, str]) -> Iterator[str]:
    if not tags.get("hostname"):
        yield "tag hostname is missing"
    node_type = tags.get("type")
    if not node_type:
        yield "tag type is missing"
    elif node_type not in NODE_TYPES:
        yield f"tag type is {node_type!r}, not one of {', '.join(sorted(NODE_TYPES))}"
    elif node_type != "node" and not tags.get("type-id"):
        yield f"tag type-id is missing, which type={node_type} needs"
    if tags.get("stype-id") and not tags.get("stype"):
        yield "tag stype-id is present without stype"
    if tags.get("stype") and not tags.get("stype-id"):
        yield "tag stype is present without stype-id"


def _metric_problems(message: Message) -> Iterator[str]:
    if isinstance(message.value, bool | str):
        yield f"a metric's value must be a number, not {message.value!r:.40}"


def _text_problems(message: Message) -> Iterator[str]:
    if not isinstance(message.value, str):
        yield f"field {message.field} must be a string, not {message.value!r}"


def _event_problems(message: Message) -> Iterator[str]:
    yield from _text_problems(message)
    if not message.tags.get("function"):
        yield "tag function is missing, which an event needs"


def _log_problems(message: Message) -> Iterator[str]:
    yield from _text_problems(message)
    yield from _one_of(message.tags, "loglevel", LOG_LEVELS)


def _control_problems(message: Message) -> Iterator[str]:
    yield from _text_problems(message)
    yield from _one_of(message.tags, "method", CONTROL_METHODS)


def _other_problems(message: Message) -> Iterator[str]:
    yield f"unknown field {message.field} (expected one of {', '.join(_KIND_OF_FIELD)})"


def _one_of(tags: Mapping[str, str], key: str, allowed: tuple[str, ...]) -> Iterator[str]:
    if not tags.get(key):
        yield f"tag {key} is missing"
    elif tags[key] not in allowed:
        yield f"tag {key} is {tags[key]!r}, not one of {', '.join(allowed)}"


_PAYLOAD_RULES = {
    Kind.METRIC: _metric_problems,
    Kind.EVENT: _event_problems,
    Kind.LOG: _log_problems,
    Kind.CONTROL: _control_problems,
    Kind.OTHER: _other_problems,
}


def metric(name: str, value: float, *, time: int, tags: Mapping[str, str]) -> Message:
    """Build a metric: a number with a name (*Metrics*)."""
    return Message(name, tags, value, time, "value")


def event(cls: str, function: str, payload: str, *, time: int, tags: Mapping[str, str]) -> Message:
    """Build an event of a class such as ``job``; `function` is its purpose (*Events*)."""
    return Message(cls, {**tags, "function": function}, payload, time, "event")


def log(component: str, level: str, text: str, *, time: int, tags: Mapping[str, str]) -> Message:
    """Build a log message of a component; `level` is one of ``LOG_LEVELS`` (*Logs*)."""
    return Message(component, {**tags, "loglevel": level}, text, time, "log")
