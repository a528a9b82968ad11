"""The content of an open page as frames: everything at first, then changes."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ccpipe.dashboard.frame import frame
from ccpipe.errors import UsageError
from ccpipe.jobs import Job, RunKey
from ccpipe.live.feed import LiveFeed
from ccpipe.live.nodes import NAN, LiveNode

MAX_METRICS = 64
"""Maximum number of metrics per page."""
MAX_LINES = 32
"""Maximum number of nodes of a job with separate lines.

More are shown as minimum, mean and maximum.
"""
MAX_JOBS = 500
"""Maximum number of jobs in a list."""
MAX_PARTS = 64
"""Maximum number of parts of a metric shown on a node's page."""
MAX_NAMES = 32
"""Maximum number of nodes of each job in a list, by which it can be found."""
SECOND = 10**9
FINE = ("hwthread ", "core ")
"""Types with too many parts to show one by one."""
JOB_METRICS = (
    "flops_any", "mem_bw", "cpu_user", "cpu_used", "cpu_load", "mem_used", "ipc", "clock",
    "nv_util", "nv_mem_util", "nv_fb_mem_used", "rocm_gfx_util", "rocm_mem_used",
    "net_bytes_in_bw", "net_bytes_out_bw", "ib_total_bw", "lustre_read_bw", "lustre_write_bw",
)  # fmt: skip
"""Default metrics of a job's page."""
POWERS = ("cpu_power", "mem_power", "nv_power_usage", "rocm_avg_power", "platform_power")
"""Metrics that add up to a job's energy; only `platform_power` if available."""


class OverviewQuery(msgspec.Struct, tag_field="view", tag="overview", forbid_unknown_fields=True):
    """All nodes by some metrics."""

    metrics: list[str] = []


class NodeQuery(msgspec.Struct, tag_field="view", tag="node", forbid_unknown_fields=True):
    """One node."""

    cluster: str
    node: str


class JobsQuery(msgspec.Struct, tag_field="view", tag="jobs", forbid_unknown_fields=True):
    """The list of jobs."""


class JobQuery(msgspec.Struct, tag_field="view", tag="job", forbid_unknown_fields=True):
    """One job."""

    cluster: str
    job: int
    start: int


class EventsQuery(msgspec.Struct, tag_field="view", tag="events", forbid_unknown_fields=True):
    """Events and log messages."""


class HealthQuery(msgspec.Struct, tag_field="view", tag="health", forbid_unknown_fields=True):
    """The health of the pipe."""


Query = OverviewQuery | NodeQuery | JobsQuery | JobQuery | EventsQuery | HealthQuery
_query = msgspec.json.Decoder(Query)


def view_of(feed: LiveFeed, query: str | bytes) -> "PageView":
    """Return the view that a page requests; raises UsageError."""
    try:
        asked = _query.decode(query)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UsageError(f"not a query: {error}") from None
    match asked:
        case OverviewQuery():
            return Overview(feed, asked)
        case NodeQuery():
            return NodePage(feed, asked)
        case JobsQuery():
            return JobList(feed)
        case JobQuery():
            return JobPage(feed, asked)
        case EventsQuery():
            return Events(feed)
        case _:
            return HealthPage(feed)


class PageView:
    """One page's view; `frame` is called once a second."""

    name = ""

    def __init__(self, feed: LiveFeed) -> None:
        """Read from `feed`."""
        self.feed = feed
        self.state = feed.state
        self.entries = 0  # number of the latest entry that was sent
        self.first = True

    def frame(self) -> bytes:
        """Return the next frame."""
        header, numbers = self.content()
        header |= {"view": self.name, "first": self.first, "status": self.status()}
        self.first = False
        return frame(header, numbers)

    def content(self) -> tuple[dict[str, Any], "array[float] | None"]:
        """Return what has changed since the last call."""
        raise NotImplementedError

    def status(self) -> Mapping[str, Any]:
        """Return the status line of every page."""
        nodes, health = self.state.nodes, self.state.health
        shown = nodes.in_order()
        return {
            "connected": self.feed.bus.is_connected,
            "server": self.feed.bus.url,
            "nodes": len(shown),
            "silent": sum(node.is_silent for node in shown),
            "running": len(self.state.jobs.running),
            "lines": health.lines_per_second,
            "dead": health.dead_count,
            "lag": sum(each.waiting for each in health.consumers),
        }

    def known(self, names: Iterable[str]) -> Mapping[str, Any]:
        """Return the properties of those metrics that collectors declare."""
        known = self.state.nodes.known
        return {
            name: {"unit": row.unit, "meaning": row.meaning, "averaged": row.is_averaged}
            for name in names
            if (row := known.get(name)) is not None
        }

    def new_entries(self, maximum: int) -> list[Any]:
        """Return the events and log messages since the last call."""
        fresh = self.state.journal.after(self.entries, maximum)
        self.entries = self.state.journal.count
        return fresh


class Overview(PageView):
    """All nodes by some metrics, running jobs, the latest events."""

    name = "overview"

    def __init__(self, feed: LiveFeed, query: OverviewQuery) -> None:
        """Show `metrics` of all nodes."""
        super().__init__(feed)
        self.metrics = query.metrics[:MAX_METRICS]
        self.layout = self.jobs = -1

    def content(self) -> tuple[dict[str, Any], "array[float] | None"]:
        """Return the metrics' columns, and what else has changed."""
        nodes = self.state.nodes
        header: dict[str, Any] = {"columns": self.metrics, "entries": self.new_entries(30)}
        if self.layout != nodes.layout:
            self.layout = nodes.layout
            counts = nodes.metric_counts()
            header["nodes"] = [node.id for node in nodes.in_order()]
            header["metrics"] = counts
            header["known"] = self.known(counts)
        if self.jobs != self.state.jobs.version:
            self.jobs = self.state.jobs.version
            header["jobs"] = [summary(job) for job in self.state.jobs.running[:MAX_JOBS]]
        ordered = nodes.in_order()
        header["silent"] = [place for place, node in enumerate(ordered) if node.is_silent]
        numbers = array("f")
        for metric in self.metrics:
            numbers.extend(nodes.column(metric))
        return header, numbers


Column = int | Sequence[int]
"""A slot, or several that are shown as minimum, mean and maximum."""


class RowsView(PageView):
    """A view of history rows: the whole history at first, then new rows."""

    def __init__(self, feed: LiveFeed) -> None:
        """Begin with the whole history."""
        super().__init__(feed)
        self.layout = -1
        self.last = 0.0
        self.slots: list[int] = []
        self.reduce: Callable[[Sequence[float]], list[float]] | None = None

    def rows(self, header: dict[str, Any]) -> "array[float]":
        """Put the times of new rows into the header; return their values."""
        nodes = self.state.nodes
        times, numbers = nodes.history(self.slots, self.last)
        if times:
            self.last = times[-1]
        header["times"] = times
        if self.reduce is None:
            return numbers
        width = len(self.slots)
        reduced = array("f")
        for start in range(0, len(numbers), width or 1):
            reduced.extend(self.reduce(numbers[start : start + width]))
        return reduced


class NodePage(RowsView):
    """One node: all its series."""

    name = "node"

    def __init__(self, feed: LiveFeed, query: NodeQuery) -> None:
        """Show the node of a cluster."""
        super().__init__(feed)
        self.id = (query.cluster, query.node)
        self.jobs = -1

    def content(self) -> tuple[dict[str, Any], "array[float] | None"]:
        """Return new rows, jobs and events of the node."""
        nodes = self.state.nodes
        header: dict[str, Any] = {"id": self.id}
        node = nodes.nodes.get(self.id)
        if node is None or not node.cells:
            return header | {"missing": True}, None
        if self.layout != nodes.layout:
            self.layout = nodes.layout
            series = _series_of(node)
            slots = [slot for *_, slot in series]
            if slots != self.slots:
                self.slots, self.last = slots, 0.0
                header["series"] = [(metric, part) for metric, part, _ in series]
                header["known"] = self.known(node.cells)
        if self.jobs != self.state.jobs.version:
            self.jobs = self.state.jobs.version
            header["jobs"] = [summary(job) for job in self.state.jobs.on(*self.id)[:MAX_JOBS]]
        header["silent"] = node.is_silent
        header["seen"] = node.seen
        header["entries"] = [
            each for each in self.new_entries(1000) if (each.cluster, each.hostname) == self.id
        ][-50:]
        return header, self.rows(header)


def _series_of(node: LiveNode) -> list[tuple[str, str, int]]:
    """Return the series of a node's page: metric, part and slot."""
    found: list[tuple[str, str, int]] = []
    for metric, cell in sorted(node.cells.items()):
        found.append((metric, "", cell))
        parts = node.parts.get(metric, {})
        shown = [part for part in sorted(parts) if not part.startswith(FINE)]
        found += [(metric, part, parts[part]) for part in shown[:MAX_PARTS]]
    return found


class JobList(PageView):
    """Running and recent jobs."""

    name = "jobs"

    def __init__(self, feed: LiveFeed) -> None:
        """Show the latest jobs."""
        super().__init__(feed)
        self.version = -1

    def content(self) -> tuple[dict[str, Any], "array[float] | None"]:
        """Return the jobs where something changed."""
        jobs = self.state.jobs
        if self.version == jobs.version:
            return {}, None
        self.version = jobs.version
        latest = list(jobs.latest())
        latest.sort(key=lambda job: job.run_key in jobs.ended)  # running ones first
        return {"jobs": [summary(job) for job in latest[:MAX_JOBS]], "total": len(latest)}, None


class JobPage(RowsView):
    """One job: its nodes' series."""

    name = "job"

    def __init__(self, feed: LiveFeed, query: JobQuery) -> None:
        """Show the job of a cluster."""
        super().__init__(feed)
        self.key = RunKey(query.cluster, query.job, query.start * SECOND)
        self.version = -1
        self.metrics: list[str] = []
        self.nodes: list[str] = []

    def content(self) -> tuple[dict[str, Any], "array[float] | None"]:
        """Return new rows: for each metric its nodes' values, or minimum, mean and maximum."""
        job = self.state.jobs.jobs.get(self.key)
        header: dict[str, Any] = {"key": (*self.key[:2], self.key.start // SECOND)}
        if job is None:
            return header | {"missing": True}, None
        if self.version != self.state.jobs.version:
            self.version = self.state.jobs.version
            header["job"] = details(job)
        if self.layout != self.state.nodes.layout:
            self.layout = self.state.nodes.layout
            self._choose(job, header)
        return header, self.rows(header)

    def _choose(self, job: Job, header: dict[str, Any]) -> None:
        """Choose the metrics that the nodes have, and find their slots."""
        nodes = self.state.nodes
        found = (nodes.nodes.get((job.cluster, each.hostname)) for each in job.nodes)
        there = [node for node in found if node is not None and node.cells]
        has = {metric for node in there for metric in node.cells}
        powers = [each for each in POWERS if each in has]
        if "platform_power" in powers:
            powers = ["platform_power"]
        metrics = [each for each in JOB_METRICS if each in has] + powers
        slots = [node.cells.get(metric, 0) for metric in metrics for node in there]
        if slots == self.slots and metrics == self.metrics:
            return
        self.slots, self.metrics, self.last = slots, metrics, 0.0
        count = len(there)
        self.reduce = None if count <= MAX_LINES else lambda row: _extremes(row, count)
        header["metrics"] = metrics
        header["powers"] = powers
        header["known"] = self.known(metrics)
        header["nodes"] = [node.id[1] for node in there] if count <= MAX_LINES else None
        header["count"] = count


def _extremes(row: Sequence[float], count: int) -> list[float]:
    """Return minimum, mean, maximum of each `count` values."""
    found: list[float] = []
    for start in range(0, len(row), count):
        values = [v for v in row[start : start + count] if v == v]  # noqa: PLR0124 - not NaN
        found += (
            [min(values), sum(values) / len(values), max(values)] if values else [NAN, NAN, NAN]
        )
    return found


class Events(PageView):
    """Events and log messages as they come."""

    name = "events"

    def content(self) -> tuple[dict[str, Any], "array[float] | None"]:
        """Return what is new."""
        return {"entries": self.new_entries(1000)}, None


class HealthPage(PageView):
    """The health of the pipe."""

    name = "health"

    def __init__(self, feed: LiveFeed) -> None:
        """Begin with all dead letters that are kept."""
        super().__init__(feed)
        self.dead = 0
        self.last = 0.0

    def content(self) -> tuple[dict[str, Any], "array[float] | None"]:
        """Return counts, new rates and new dead letters."""
        health, nodes = self.state.health, self.state.nodes
        rates = [rate for rate in health.rates if rate[0] > self.last]
        if rates:
            self.last = rates[-1][0]
        letters = [letter for letter in health.dead if letter.number > self.dead]
        self.dead = health.dead_count
        return {
            "rates": rates,
            "letters": letters,
            "reasons": health.reasons,
            "streams": health.streams,
            "consumers": health.consumers,
            "problem": health.problem,
            "counts": {
                "payloads": health.payloads,
                "lines": health.lines,
                "bytes": health.bytes,
                "rejected": health.rejected,
                "dropped": health.dropped,
                "dead": health.dead_count,
                "series": nodes.series,
                "left_out": nodes.left_out,
            },
        }, None


def summary(job: Job) -> dict[str, Any]:
    """Return a job with the first of its nodes; times are seconds, and the end of a run is 0."""
    return {
        "cluster": job.cluster, "id": job.id, "start": job.start // SECOND, "user": job.user,
        "project": job.project, "partition": job.partition, "name": job.name,
        "nodes": len(job.nodes), "first": [node.hostname for node in job.nodes[:MAX_NAMES]],
        "stop": job.end // SECOND, "state": job.state,
    }  # fmt: skip


def details(job: Job) -> dict[str, Any]:
    """Return a job with all its nodes and what it asked for."""
    found = summary(job) | {
        "nodes": [node.hostname for node in job.nodes], "hwthreads": job.hwthreads,
        "accelerators": job.accelerators, "walltime": job.walltime,
    }  # fmt: skip
    del found["first"]
    return found
