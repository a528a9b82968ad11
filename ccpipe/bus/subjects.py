"""Subjects: where each kind of message is published. No name is ever parsed out of a subject.

Source: ClusterCockpit specification, *Messaging subjects*. Real sites use flat subjects
(``hpc-nats``, ``jobs``, ``cc.job.event``), so every one is a template that configuration may
replace::

    [bus.subjects]
    metrics = "hpc-nats"
    events.job = "cc.job.event"
    events.nodestate = "cc.node.state"

Events of each class may have a subject of their own; the others keep the template ``events``,
which ``"*"`` replaces in the same table.
"""

import functools
import re
import string
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ccpipe.config import Site
from ccpipe.errors import ConfigError, EncodeError, suggestion
from ccpipe.message import Kind, Message

TEMPLATES = {
    "metrics": "{cluster}.metrics",
    "events": "{cluster}.events.{name}",
    "log": "{cluster}.log.{name}",
    "control": "{cluster}.control.{method}",
    "sonar": "{cluster}.sonar.{name}",
    "dead": "{cluster}.dead",
}
"""``{name}`` is the event class, log component or Sonar type; ``{hostname}`` may be used too."""

KEPT = ("metrics", "events", "log", "sonar")
"""Subjects stored in a cluster's stream. Control is request and reply, and not stored."""

REQUESTED_BY = "Ccpipe-Requested-By"
"""Header of a control request: its claimed sender. It is logged and proves nothing."""

PLACEHOLDERS = ("cluster", "hostname", "name", "method")
"""Placeholders of all templates; events also have ``{function}``."""

_EVENTS = "events."
"""Prefix of the template names for one event class."""

CATEGORIES = {
    Kind.METRIC: "metrics",
    Kind.OTHER: "metrics",
    Kind.EVENT: "events",
    Kind.LOG: "log",
    Kind.CONTROL: "control",
}
"""The template of each kind of message."""

_UNSAFE = r"[\s\x00-\x20\x7f.*>%/\\\ud800-\udfff]"


def escape(name: str) -> str:
    """Escape a name as one token of a subject: dots, wildcards and the like become ``%XX``.

    A cluster may be called ``fox.educloud.no``, and a dot separates tokens. Different names stay
    different.
    """
    return re.sub(_UNSAFE, _percent, name) or "%"


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode(errors="surrogatepass"))


@functools.lru_cache(maxsize=256)
def _filled(
    template: str, cluster: str, hostname: str, name: str, method: str, function: str
) -> str:
    """Fill a template; missing values are empty, so that a node's metrics need no special case."""
    return template.format(
        cluster=escape(cluster),
        hostname=escape(hostname),
        name=escape(name),
        method=escape(method.lower()),
        function=escape(function),
    )


def matches(pattern: str, subject: str) -> bool:
    """Return whether a pattern with NATS's wildcards covers a subject, or all of a pattern."""
    wanted, given = pattern.split("."), subject.split(".")
    for position, word in enumerate(wanted):
        if word == ">":
            return len(given) > position
        if position >= len(given) or given[position] == ">" or word not in ("*", given[position]):
            return False
    return len(wanted) == len(given)


def minimal(patterns: Iterable[str]) -> list[str]:
    """Remove patterns covered by others: the subjects of a stream must not overlap."""
    wanted = list(dict.fromkeys(patterns))
    return [p for p in wanted if not any(q != p and matches(q, p) for q in wanted)]


class Subjects(msgspec.Struct, frozen=True):
    """The subjects of one cluster."""

    cluster: str
    hostname: str
    """Our own node: used for envelopes that name none."""
    templates: Mapping[str, str] = msgspec.field(default_factory=lambda: TEMPLATES)
    """By default the specification's."""

    @classmethod
    def of(cls, site: Site, own: Mapping[str, str | dict[str, str]] | None = None) -> "Subjects":
        """Return the specification's subjects, overridden by the site's, then by `own`.

        Raises
        ------
        ConfigError
            if a template has an unknown name or placeholder, or is not a valid subject.

        """
        given = dict(_flat(site.bus.subjects)) | dict(_flat(own or {}))
        for name, template in given.items():
            _check(name, template)
        return cls(site.cluster, site.hostname, {**TEMPLATES, **given})

    def of_message(self, message: Message) -> str:
        """Return the subject that a message is published on.

        Raises
        ------
        EncodeError
            if the subject needs a tag, ``method`` or ``function``, that is missing.

        """
        kind, tags = message.kind, message.tags
        template = self.templates[CATEGORIES[kind]]
        if kind is Kind.EVENT:
            template = self.templates.get(_EVENTS + message.name, template)
        named = [
            message.hostname if "{hostname}" in template else "",
            message.name if "{name}" in template else "",
        ]
        for tag in ("method", "function"):
            is_named = f"{{{tag}}}" in template
            value = tags.get(tag, "") if is_named else ""
            if is_named and not value:
                raise EncodeError(f"{kind} message {message.name!r} has no tag {tag}")
            named.append(value)
        cluster = tags.get("cluster") or self.cluster
        return _filled(template, cluster, *named)

    def dead(self) -> str:
        """Return the subject of dead letters."""
        return self._fill("dead", escape(self.cluster))

    def has(self, name: str) -> bool:
        """Return whether a name is one of ``TEMPLATES`` or a class of events."""
        is_class = name.startswith(_EVENTS) and name.removeprefix(_EVENTS).isidentifier()
        return is_class or name in self.templates

    def patterns(self, names: Iterable[str], cluster: str | None = None) -> list[str]:
        """Return subscription patterns for some of ``TEMPLATES``; other names are taken literally.

        A class of events, such as ``events.job``, has the template of events unless it has its own.
        `cluster` is the name of another cluster, or ``*`` for all. Metrics are also subscribed to
        per node, a form which lets the broker restrict each node to its own name.
        """
        token = "*" if cluster == "*" else escape(cluster or self.cluster)
        found: dict[str, None] = {}
        for name in names:
            if not self.has(name):
                found[name] = None
                continue
            found[self._fill(name, token)] = None
            if name == "metrics" and self.templates[name] == TEMPLATES[name]:
                found[self._fill(name, token) + ".*"] = None
            if name == "events":
                classes = [each for each in self.templates if each.startswith(_EVENTS)]
                found |= dict.fromkeys(self._fill(each, token) for each in classes)
        return list(found)

    def _fill(self, name: str, cluster: str) -> str:
        any_of = dict.fromkeys([*PLACEHOLDERS, "function"], "*") | {"cluster": cluster}
        if name not in self.templates:
            name, _, any_of["name"] = name.partition(".")
        return self.templates[name].format(**any_of)


def _flat(subjects: Mapping[str, str | Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield templates by name; entries of the table ``events`` as ``events.<class>``."""
    for name, given in subjects.items():
        if isinstance(given, str):
            yield name, given
            continue
        if name != "events":
            raise ConfigError(f"bus.subjects.{name}: expected a string; only events has classes")
        for event, template in given.items():
            yield ("events" if event == "*" else _EVENTS + event), template


def _check(name: str, template: str) -> None:
    path = f"bus.subjects.{name}"
    is_class = name.startswith(_EVENTS) and name != _EVENTS
    if name not in TEMPLATES and not is_class:
        raise ConfigError(f"{path}: unknown; {suggestion(name, TEMPLATES)}")
    try:
        used = [part[1] for part in string.Formatter().parse(template) if part[1] is not None]
    except ValueError as error:
        raise ConfigError(f"{path}: {template!r}: {error}") from None
    known = [*PLACEHOLDERS, "function"] if is_class or name == "events" else PLACEHOLDERS
    for placeholder in used:
        if placeholder not in known:
            choices = ", ".join(f"{{{each}}}" for each in known)
            raise ConfigError(f"{path}: unknown placeholder {{{placeholder}}}; known are {choices}")
    filled = template.format(**dict.fromkeys(known, "x"))
    if not all(filled.split(".")) or re.search(r"[\s*>]", filled):
        raise ConfigError(f"{path}: {template!r} is not a subject")
