"""Filters of ``tail``."""

import functools
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ccpipe.bus.subjects import matches
from ccpipe.cli.tail.options import Options
from ccpipe.cli.tail.payloads import type_and_attributes
from ccpipe.formats.lineprotocol import Lines
from ccpipe.message import Kind, Message

if TYPE_CHECKING:  # they take their time, and most people ask for everything
    from ccpipe.cli.tail.jobs import JobNodes
    from ccpipe.translate.rules.select import Select


class MessageFilter:
    """Filters by kind, cluster, node, name and job."""

    def __init__(self, options: Options, of_cluster: Sequence[str]) -> None:
        """Take the options, and the subjects of one cluster, whose messages need no tag."""
        self.options = options
        self.of_cluster = of_cluster
        self.nodes = options.nodes()
        self.jobs = _jobs(options.job) if options.job else None
        self._kinds = [kind for kind in options.kind if kind not in ("sonar", "dead")]
        self._has_lines = bool(self._kinds) or not options.kind

    @property
    def is_filtered(self) -> bool:
        """Whether the filter may exclude anything."""
        given = self.options
        return any([given.kind, given.node, given.name, given.cluster, given.job])

    @property
    def has_dead_letters(self) -> bool:
        """Whether dead letters are shown: they have neither nodes nor names."""
        given = self.options
        return "dead" in given.kinds and not (given.node or given.name or given.job)

    def lines(self, subject: str, lines: Lines) -> Lines:
        """Return the lines that are shown."""
        if not self.is_filtered:
            return lines
        if not self._has_lines and not self.options.subjects:
            return lines[:0]
        is_of_cluster = any(matches(pattern, subject) for pattern in self.of_cluster)
        kept = self._selects[is_of_cluster].feed(lines)
        assert isinstance(kept, Lines)
        return kept if self.jobs is None else self._of_jobs(kept)

    @functools.cached_property
    def _selects(self) -> "dict[bool, Select]":
        """What keeps lines, by whether their subject says whose they are."""
        from ccpipe.translate.rules.select import Select

        select = functools.partial(
            Select, kinds=self._kinds, nodes=self.nodes, names=self.options.name
        )
        return {True: select(), False: select(clusters=self.options.cluster)}

    def _of_jobs(self, lines: Lines) -> Lines:
        return lines.take(bytearray(self._is_of_job(message) for message in lines))

    def _is_of_job(self, message: Message) -> bool:
        assert self.jobs is not None
        if message.kind is Kind.EVENT and message.name == "job":
            return self.jobs.add_event(message)
        if message.tags.get("stype") == "job":
            return message.tags.get("stype-id", "") in map(str, self.jobs.jobs)
        return message.hostname in self.jobs.nodes

    def envelope(self, envelope: Mapping[str, Any]) -> bool:
        """Return whether one of Sonar's envelopes is shown."""
        kind, attributes = type_and_attributes(envelope)
        is_about = self.jobs.add_attributes(attributes) if self.jobs else True
        given = self.options
        return (
            "sonar" in given.kinds
            and is_about
            and _fits(given.cluster, attributes.get("cluster"))
            and _fits(self.nodes, attributes.get("node"))
            and _fits(given.name, kind)
        )


def _jobs(numbers: Sequence[int]) -> "JobNodes":
    from ccpipe.cli.tail.jobs import JobNodes  # it takes its time, and is seldom asked for

    return JobNodes(numbers)


def _fits(patterns: Sequence[str], text: object) -> bool:
    return not patterns or any(fnmatchcase(str(text or ""), pattern) for pattern in patterns)
