"""The subjects that ``tail`` subscribes to, and its filters of messages."""

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ccpipe.bus.subjects import CATEGORIES, Subjects, matches
from ccpipe.cli.console.options import expand_patterns
from ccpipe.cli.tail.options import Options
from ccpipe.cli.tail.view import type_and_attributes
from ccpipe.config import Site
from ccpipe.errors import DataError, UsageError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.nodelist import expand
from ccpipe.message import Kind, Message

if TYPE_CHECKING:  # filters are imported when there are some: a sixth of the time to the first line
    from ccpipe.translate.rules.select import Select


def patterns_of(site: Site, options: Options) -> tuple[list[str], list[str]]:
    """Choose subjects: the given ones, else by the requested kinds and clusters.

    Returns the patterns to subscribe to, and the ones for a requested cluster, whose messages need
    no tag ``cluster``.
    """
    for subject in options.subject:
        tokens = subject.split(".")
        if not all(tokens) or ">" in tokens[:-1] or any(map(str.isspace, subject)):
            raise UsageError(f"not a subject: {subject!r}")
    if options.subject:
        return list(dict.fromkeys(options.subject)), []
    known = Subjects.of(site)
    of_kind = {str(kind): name for kind, name in CATEGORIES.items()}
    categories = list(dict.fromkeys(of_kind.get(kind, kind) for kind in options.kinds))
    everywhere = known.patterns(categories, "*")
    clusters = options.cluster
    if not clusters or any(re.search(r"[*?\[]", cluster) for cluster in clusters):
        return everywhere, []
    named = [known.patterns(categories, cluster) for cluster in clusters]
    patterns = list(dict.fromkeys(pattern for group in named for pattern in group))
    return patterns, [p for p in patterns if p not in everywhere]


class MessageFilter:
    """Filters by kind, cluster, node, name and job."""

    def __init__(self, options: Options, of_cluster: Sequence[str]) -> None:
        """Take the options, and the subjects of one cluster, whose messages need no tag."""
        self.options = options
        self.of_cluster = of_cluster
        self.nodes = expand_patterns(options.node)
        self.jobs = JobNodes(options.job) if options.job else None
        self._kinds = [kind for kind in options.kind if kind not in ("sonar", "dead")]
        self._has_lines = bool(self._kinds) or not options.kind

    @property
    def is_filtered(self) -> bool:
        given = self.options
        return any([given.kind, given.node, given.name, given.cluster, given.job])

    @property
    def has_dead_letters(self) -> bool:
        """Whether dead letters are shown: they have neither nodes nor names."""
        given = self.options
        return "dead" in given.kinds and not (given.node or given.name or given.job)

    def lines(self, subject: str, lines: Lines) -> Lines:
        if not self.is_filtered:
            return lines
        if not self._has_lines and not self.options.subject:
            return lines[:0]
        is_of_cluster = any(matches(pattern, subject) for pattern in self.of_cluster)
        kept = self._selects[is_of_cluster].feed(lines)
        assert isinstance(kept, Lines)
        return kept if self.jobs is None else self._of_jobs(kept)

    @functools.cached_property
    def _selects(self) -> "dict[bool, Select]":
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


def _fits(patterns: Sequence[str], text: object) -> bool:
    return not patterns or any(fnmatchcase(str(text or ""), pattern) for pattern in patterns)


class JobNodes:
    """Tracks the nodes of some jobs, from ClusterCockpit's events and Sonar's envelopes."""

    def __init__(self, jobs: Collection[int]) -> None:
        self.jobs = frozenset(jobs)
        self.nodes: set[str] = set()

    def add_event(self, event: Message) -> bool:
        """Process an event; return whether it is about one of the jobs."""
        from ccpipe.jobs import read_event

        try:
            job = read_event(event)
        except DataError:
            return False
        if job.id not in self.jobs:
            return False
        self.nodes.update(node.hostname for node in job.nodes if node.hostname)
        return True

    def add_attributes(self, attributes: Mapping[str, Any]) -> bool:
        """Process an envelope's attributes; return whether it is about one of the jobs."""
        is_about = False
        for kind in ("slurm_jobs", "jobs"):
            records = attributes.get(kind)
            for record in records if isinstance(records, list) else ():
                if not isinstance(record, dict) or not self._is_watched(record):
                    continue
                is_about = True
                nodes = record.get("nodes")
                for text in nodes if isinstance(nodes, list) else [attributes.get("node")]:
                    self._add_list(text)
        return is_about

    def _is_watched(self, record: Mapping[str, Any]) -> bool:
        job = record.get("job_id", record.get("job"))
        return isinstance(job, int) and job in self.jobs

    def _add_list(self, text: object) -> None:
        try:
            self.nodes.update(expand(str(text)) if text else ())
        except DataError:
            return
