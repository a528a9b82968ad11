"""The subjects that ``tail`` subscribes to, and its filters of messages."""

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ccpipe.bus.subjects import CATEGORIES, Subjects, matches
from ccpipe.cli.console.options import expand_patterns
from ccpipe.cli.tail.options import Options
from ccpipe.cli.tail.view import type_and_attributes
from ccpipe.config import Site
from ccpipe.errors import DataError, UsageError
from ccpipe.formats.lineprotocol import Lines, ValueType
from ccpipe.formats.nodelist import expand
from ccpipe.message import Kind, Message

if TYPE_CHECKING:  # filters are imported when there are some: a sixth of the time to the first line
    from ccpipe.jobs import Job, RunKey
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
    if (options.job or options.user) and "events" not in categories:
        categories.append("events")  # starts and stops of the jobs
    everywhere = known.patterns(categories, "*")
    clusters = options.cluster
    if not clusters or any(re.search(r"[*?\[]", cluster) for cluster in clusters):
        return everywhere, []
    named = [known.patterns(categories, cluster) for cluster in clusters]
    patterns = list(dict.fromkeys(pattern for group in named for pattern in group))
    return patterns, [p for p in patterns if p not in everywhere]


class MessageFilter:
    """Filters by kind, cluster, node, name, job and owner of a job."""

    def __init__(self, options: Options, of_cluster: Sequence[str]) -> None:
        """Take the options, and the subjects of one cluster, whose messages need no tag."""
        self.options = options
        self.of_cluster = of_cluster
        self.nodes = expand_patterns(options.node)
        watches_jobs = bool(options.job or options.user)
        self.jobs = JobNodes(options.job, options.user) if watches_jobs else None
        self._kinds = [kind for kind in options.kind if kind not in ("sonar", "dead")]
        self._has_lines = bool(self._kinds) or not options.kind

    @property
    def is_filtered(self) -> bool:
        given = self.options
        return any([given.kind, given.node, given.name, given.cluster, given.job, given.user])

    @property
    def has_dead_letters(self) -> bool:
        """Whether dead letters are shown: they have neither nodes nor names."""
        given = self.options
        return "dead" in given.kinds and not any([given.node, given.name, given.job, given.user])

    def lines(self, subject: str, lines: Lines) -> Lines:
        if not self.is_filtered:
            return lines
        if self.jobs is not None:
            self.jobs.add_events(lines)
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
        if message.kind is Kind.EVENT and message.name in ("job", "jobpending"):
            return self.jobs.is_about(message)
        if message.tags.get("stype") == "job":
            return self.jobs.has_id(message.tags.get("stype-id", ""))
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


MAX_JOBS = 50_000
"""Maximum number of jobs of users; beyond it the oldest are dropped."""


class JobNodes:
    """Tracks the nodes of some jobs, from ClusterCockpit's events and Sonar's envelopes.

    Nodes of jobs that are given by id are kept; those of users' jobs are dropped when a job ends,
    since the next job on them can be someone else's.
    """

    def __init__(self, jobs: Collection[int] = (), users: Sequence[str] = ()) -> None:
        """Watch jobs that have one of these ids and one of these owners, where there are any."""
        self.jobs = frozenset(jobs)
        self.users = users
        self.nodes: set[str] = set()
        self._uses = Counter[str]()
        self._running: dict[RunKey, list[str]] = {}
        self._ended: dict[RunKey, None] = {}

    def __str__(self) -> str:
        ids = f"job {', '.join(map(str, sorted(self.jobs)))}" if self.jobs else "a job"
        return f"{ids} of {', '.join(self.users)}" if self.users else ids

    def add_events(self, lines: Lines) -> None:
        """Process the events among some lines."""
        if ValueType.TEXT in lines.types:
            for row, kind in enumerate(lines.types):
                if kind == ValueType.TEXT:
                    self.add_event(lines[row])

    def add_event(self, event: Message) -> bool:
        """Process an event; return whether it is about one of the jobs."""
        if (found := _job_of(event)) is None:
            return False
        function, job = found
        key = self._key(job)
        if function == "start_job" and self._is_selected(job.id, job.user):
            if key not in self._ended:
                self._start(job)
        elif function == "stop_job" and self.users and key in self._running:
            self._end(key)
        return self._is_of(job)

    def is_about(self, event: Message) -> bool:
        """Return whether an event is the start or the stop of one of the jobs, or it is pending."""
        if event.name == "jobpending":
            return any(self._is_selected(job, user) for job, user in _pending_of(event))
        found = _job_of(event)
        return found is not None and self._is_of(found[1])

    def has_id(self, job: str) -> bool:
        """Return whether one of the jobs has an id."""
        if not self.users:
            return job in map(str, self.jobs)
        return any(str(key.id) == job for key in self._running)

    def _is_of(self, job: "Job") -> bool:
        key = self._key(job)
        is_known = key in self._running or key in self._ended
        return is_known or self._is_selected(job.id, job.user)

    def _is_selected(self, job: int, user: str) -> bool:
        return (not self.jobs or job in self.jobs) and _fits(self.users, user)

    def _key(self, job: "Job") -> "RunKey":
        """Return the key of a job; a stop may lack the start."""
        if job.start:
            return job.run_key
        return next((key for key in self._running if key[:2] == job.key), job.run_key)

    def _start(self, job: "Job") -> None:
        names = [node.hostname for node in job.nodes if node.hostname]
        self.nodes.update(names)
        if self.users and job.run_key not in self._running:
            self._uses.update(names)
            self._running[job.run_key] = names
            if len(self._running) > MAX_JOBS:
                self._end(next(iter(self._running)))

    def _end(self, key: "RunKey") -> None:
        names = self._running.pop(key)
        self._uses.subtract(names)
        self.nodes.difference_update(name for name in names if not self._uses[name])
        self._uses = +self._uses if len(self._uses) > 2 * len(self.nodes) else self._uses
        self._ended[key] = None
        if len(self._ended) > MAX_JOBS:
            del self._ended[next(iter(self._ended))]

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
        user = record.get("user_name", record.get("user"))
        return isinstance(job, int) and self._is_selected(job, str(user or ""))

    def _add_list(self, text: object) -> None:
        if self.users:
            return  # no envelope says when the job leaves them
        try:
            self.nodes.update(expand(str(text)) if text else ())
        except DataError:
            return


def _job_of(event: Message) -> "tuple[str, Job] | None":
    from ccpipe.jobs import function_of, read_event

    try:
        return function_of(event), read_event(event)
    except DataError:
        return None


def _pending_of(event: Message) -> Iterator[tuple[int, str]]:
    """Yield number and user of the jobs that an event reports as pending, or no longer so."""
    from ccpipe.jobs.pending import read_pending_event

    with contextlib.suppress(DataError):
        found = read_pending_event(event)
        yield from ((job.id, found.user) for job in found.pending)
        yield from ((job.id, found.user) for job in found.left)
