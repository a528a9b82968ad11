"""The content of an open page as frames: everything at first, then changes.

A frame is JSON and columns of 32-bit floats: the length of the JSON (4 bytes, little-endian), the
JSON padded with blanks to a multiple of 4, and the floats as the machine has them (little-endian on
all that ccpipe runs on). NaN, which JSON cannot represent, marks a missing value.
"""

import math
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from ccpipe.dashboard.access import (
    AccessError,
    Role,
    Viewer,
    check_role,
    role_required_by,
)  # fmt: skip
from ccpipe.dashboard.job_columns import JobColumns
from ccpipe.dashboard.node_views import SumSeries, facts
from ccpipe.errors import UsageError
from ccpipe.jobs import Job, RunKey
from ccpipe.live.feed import LiveFeed
from ccpipe.live.node import LiveNode
from ccpipe.live.state import Entry
from ccpipe.live.thresholds import exceeded
from ccpipe.live.totals import SILENT
from ccpipe.node.sampling.collector import power_metrics

MAX_METRICS = 64
MAX_LINES = 8
"""Maximum number of nodes of a job with separate lines.

More are shown as their mean, in a band of minimum and maximum.
"""
MAX_JOBS = 500
MAX_PARTS = 64
"""Maximum number of parts of a metric shown on a node's page."""
MAX_NAMES = 32
"""Maximum number of nodes of each job in a list, by which it can be found."""
MAX_SUBJECTS = 20
SECOND = 10**9
FINE = ("hwthread ", "core ")
"""Types with too many parts to show one by one."""
JOB_METRICS = (
    "flops_any", "mem_bw", "cpu_user", "cpu_used", "cpu_load", "mem_used", "ipc", "clock",
    "nv_util", "nv_mem_util", "nv_fb_mem_used", "rocm_gfx_util", "rocm_mem_used",
    "net_bytes_in_bw", "net_bytes_out_bw", "ib_total_bw", "lustre_read_bw", "lustre_write_bw",
)  # fmt: skip
"""Default metrics of a job's page."""


class OverviewQuery(msgspec.Struct, tag_field="view", tag="overview", forbid_unknown_fields=True):
    """The first page: sums over all nodes, and maps of them by some metrics."""

    metrics: list[str] = []
    cluster: str | None = None
    """All if None."""


class NodesQuery(msgspec.Struct, tag_field="view", tag="nodes", forbid_unknown_fields=True):
    """All nodes: what each is doing, and some metrics."""

    metrics: list[str] = []
    cluster: str | None = None
    """All if None."""


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


Query = OverviewQuery | NodesQuery | NodeQuery | JobsQuery | JobQuery | EventsQuery | HealthQuery
Q = TypeVar("Q", bound=Query)
N = TypeVar("N", bound=OverviewQuery | NodesQuery)
_query = msgspec.json.Decoder(Query)
_encoder = msgspec.json.Encoder()


def view_of(feed: LiveFeed, query: str | bytes, viewer: Viewer) -> "PageView[Any]":
    """Return the view that a page requests; raises UsageError, or AccessError."""
    try:
        asked = _query.decode(query)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UsageError(f"not a query: {error}") from None
    view = VIEWS[type(asked)]
    check_role(viewer, role_required_by(view))
    return view(feed, asked, viewer)


def frame(header: Mapping[str, Any], numbers: "array[float] | None" = None) -> bytes:
    text = _encoder.encode(header)
    text += b" " * (-len(text) % 4)
    if numbers is not None and sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return struct.pack("<I", len(text)) + text + (numbers.tobytes() if numbers else b"")


class PageView(Generic[Q]):
    """One page's view; `frame` is called once a second."""

    minimum_role: ClassVar[Role | None] = None
    """Who may see it; nobody unless it is set."""

    def __init__(self, feed: LiveFeed, query: Q, viewer: Viewer) -> None:
        self.feed = feed
        self.query = query
        self.viewer = viewer
        self.state = feed.state
        self.entries = 0  # number of the latest entry that was sent
        self.first = True
        self._versions = {"layout": -1, "jobs": -1}

    def frame(self) -> bytes:
        """Return the next frame; raises AccessError if the viewer may not see it any more."""
        header, numbers = self._content()
        name = self.query.__struct_config__.tag
        header |= {"view": name, "first": self.first, "status": self.status()}
        self.first = False
        return frame(header, numbers)

    def _content(self) -> "tuple[dict[str, Any], array[float] | None]":
        """Return what has changed since the last call."""
        raise NotImplementedError

    def _has_changed(self, what: Literal["layout", "jobs"]) -> bool:
        state = self.state
        version = state.nodes.layout if what == "layout" else state.jobs.version
        before, self._versions[what] = self._versions[what], version
        return before != version

    def status(self) -> Mapping[str, Any]:
        nodes, health = self.state.nodes, self.state.health
        shown = nodes.in_order()
        is_admin = self.viewer.role >= Role.ADMIN
        return {
            "connected": self.feed.bus.is_connected,
            "server": self.feed.bus.url if is_admin else "",
            "nodes": len(shown),
            "silent": sum(node.condition == SILENT for node in shown),
            "running": len(self.state.jobs.running),
            "lines": health.lines_per_second,
            "dead": health.dead_count if is_admin else 0,
            "lag": sum(each.num_pending for each in health.consumers),
        }

    def known(self, names: Iterable[str]) -> Mapping[str, Any]:
        known = self.state.nodes.known
        return {
            name: {"unit": row.unit, "meaning": row.meaning, "averaged": row.is_averaged}
            for name in names
            if (row := known.get(name)) is not None
        }

    def new_entries(self, maximum: int) -> list[Entry]:
        fresh = self.state.journal.after(self.entries)
        self.entries = self.state.journal.count
        return [each for each in fresh if self.viewer.may_see_entry(each)][-maximum:]

    def visible(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the jobs that the viewer may see."""
        return [job for job in jobs if self.viewer.may_see(job)]


class NodesView(PageView[N]):
    """A view of the nodes of one cluster or of all, by some metrics."""

    def __init__(self, feed: LiveFeed, query: N, viewer: Viewer) -> None:
        super().__init__(feed, query, viewer)
        self.chosen: list[LiveNode] = []
        self.layout_changed = False
        self._sent: dict[str, Any] = {}

    def columns(self, header: dict[str, Any]) -> "array[float]":
        """Put the nodes, where they have changed, and the metrics into the header.

        Returns the metrics' values, metric by metric.
        """
        nodes, cluster = self.state.nodes, self.query.cluster
        self.layout_changed = self._has_changed("layout")
        if self.layout_changed:
            ordered = nodes.in_order()
            self.chosen = [node for node in ordered if cluster is None or node.id[0] == cluster]
            counts = nodes.metric_counts(self.chosen)
            header["clusters"] = list(dict.fromkeys(node.id[0] for node in ordered))
            header["nodes"] = [node.id for node in self.chosen]
            header["metrics"] = counts
            header["known"] = self.known(counts)
        header["columns"] = metrics = self.query.metrics[:MAX_METRICS]
        numbers = array("f")
        for metric in metrics:
            numbers.extend(nodes.column(metric, self.chosen))
        return numbers

    def put(self, header: dict[str, Any], name: str, content: object) -> None:
        """Put content into the header if it differs from what was last sent."""
        if self._sent.get(name) != content:
            header[name] = self._sent[name] = content


class Overview(NodesView[OverviewQuery]):
    """The first page: sums, maps, exceeded thresholds, running jobs, the latest events."""

    minimum_role = Role.USER

    def __init__(self, feed: LiveFeed, query: OverviewQuery, viewer: Viewer) -> None:
        super().__init__(feed, query, viewer)
        self.sums = SumSeries(self.state.nodes)
        self.counted = 0.0

    def _content(self) -> "tuple[dict[str, Any], array[float] | None]":
        state, cluster = self.state, self.query.cluster
        header: dict[str, Any] = {"entries": self.new_entries(30)}
        numbers = self.columns(header)
        if self.layout_changed:
            header["restart"] = self.sums.choose(self.chosen)
        if self._has_changed("jobs"):
            running = self.visible(state.jobs.running)
            running = [job for job in running if cluster in (None, job.cluster)]
            header["jobs"] = [summary(job) for job in running[:MAX_JOBS]]
        self.put(header, "conditions", [node.condition for node in self.chosen])
        health = state.health if self.viewer.role >= Role.ADMIN else None
        self.put(header, "exceeded", list(exceeded(state.nodes, self.chosen, health)))
        header["counted"], header["counts"] = state.totals.after(self.counted, cluster)
        self.counted = header["counted"][-1] if header["counted"] else self.counted
        header["times"], sums = self.sums.rows()
        return header, numbers + sums


class NodeList(NodesView[NodesQuery]):
    """The list and the map of nodes."""

    minimum_role = Role.USER

    def _content(self) -> "tuple[dict[str, Any], array[float] | None]":
        header: dict[str, Any] = {}
        numbers = self.columns(header)
        self.put(header, "facts", [facts(self.state, node, self.viewer) for node in self.chosen])
        return header, numbers


class RowsView(PageView[Q]):
    """A view of history rows: the whole history at first, then new rows."""

    def __init__(self, feed: LiveFeed, query: Q, viewer: Viewer) -> None:
        super().__init__(feed, query, viewer)
        self.start, self.stop = 0.0, math.inf
        """Rows outside this time are not sent; seconds since the epoch."""
        self.last = 0.0
        self.slots: list[int] = []
        self.reduce: Callable[[Sequence[float]], list[float]] | None = None

    def rows(self, header: dict[str, Any]) -> "array[float]":
        """Put the times of new rows into the header; return their values."""
        nodes = self.state.nodes
        times, numbers = nodes.history(self.slots, max(self.last, self.start))
        if times:
            self.last = times[-1]
        if self.last > self.stop:
            times = times[: bisect_right(times, self.stop)]
            numbers = numbers[: len(times) * len(self.slots)]
        header["times"] = times
        if self.reduce is None:
            return numbers
        width = len(self.slots)
        reduced = array("f")
        for start in range(0, len(numbers), width or 1):
            reduced.extend(self.reduce(numbers[start : start + width]))
        return reduced


class NodePage(RowsView[NodeQuery]):
    """One node: all its series, to a user only while a job of his runs on it."""

    minimum_role = Role.USER

    def _content(self) -> "tuple[dict[str, Any], array[float] | None]":
        id_ = (self.query.cluster, self.query.node)
        header: dict[str, Any] = {"id": id_}
        jobs = self.visible(self.state.jobs.on(*id_))
        if not self.viewer.sees_all:
            if not jobs:
                raise AccessError("no job of yours is running on this node")
            self.start = min(job.start for job in jobs) / SECOND
        node = self.state.nodes.nodes.get(id_)
        if node is None or not node.is_listed:
            return header | {"missing": True}, None
        if self._has_changed("layout"):
            series = _series_of(node)
            slots = [slot for *_, slot in series]
            if slots != self.slots or self.first:
                self.slots, self.last = slots, 0.0
                header["series"] = [(metric, part) for metric, part, _ in series]
                # a node that sends nothing may have stored metrics of any name
                header["known"] = self.known(node.cells or self.state.nodes.known)
        if self._has_changed("jobs"):
            header["jobs"] = [summary(job) for job in jobs[:MAX_JOBS]]
        header["facts"] = facts(self.state, node, self.viewer)
        header["interval"] = node.interval if node.knows_interval else None
        header["exceeded"] = list(exceeded(self.state.nodes, [node]))
        header["entries"] = [
            each for each in self.new_entries(1000) if (each.cluster, each.hostname) == id_
        ][-50:]
        return header, self.rows(header)


def _series_of(node: LiveNode) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []
    for metric, cell in sorted(node.cells.items()):
        found.append((metric, "", cell))
        parts = node.parts.get(metric, {})
        shown = [part for part in sorted(parts) if not part.startswith(FINE)]
        found += [(metric, part, parts[part]) for part in shown[:MAX_PARTS]]
    return found


class JobList(PageView[JobsQuery]):
    """Whether jobs have started or ended since: the page then requests them anew."""

    minimum_role = Role.USER

    def _content(self) -> "tuple[dict[str, Any], array[float] | None]":
        return {"changed": self._has_changed("jobs")}, None


class JobPage(RowsView[JobQuery]):
    """One job: its nodes' series. A job that the viewer may not see is missing."""

    minimum_role = Role.USER
    metrics: Sequence[str] = ()

    def _content(self) -> "tuple[dict[str, Any], array[float] | None]":
        cluster, number, start = self.query.cluster, self.query.job, self.query.start
        job = self.state.jobs.jobs.get(RunKey(cluster, number, start * SECOND))
        header: dict[str, Any] = {"key": (cluster, number, start)}
        if job is None or not self.viewer.may_see(job):
            return header | {"missing": True}, None
        self.start, self.stop = job.start / SECOND, job.end / SECOND or math.inf
        if self._has_changed("jobs"):
            header["job"] = details(job)
        if self._has_changed("layout"):
            self._choose(job, header)
        return header, self.rows(header)

    def _choose(self, job: Job, header: dict[str, Any]) -> None:
        """Choose the metrics that the nodes have, and find their slots."""
        nodes = self.state.nodes
        found = (nodes.nodes.get((job.cluster, each.hostname)) for each in job.nodes)
        there = [node for node in found if node is not None and node.cells]
        has = {metric for node in there for metric in node.cells}
        powers = power_metrics(has)
        metrics = [each for each in JOB_METRICS if each in has] + powers
        has_lines = len(job.nodes) <= MAX_LINES
        columns = JobColumns(job, there, metrics, nodes.known, has_lines=has_lines)
        if columns.slots == self.slots and metrics == self.metrics:
            return
        self.slots, self.metrics, self.last = columns.slots, metrics, 0.0
        self.reduce = columns.reduce
        header["metrics"] = metrics
        header["whole_node"] = columns.of_whole_node
        header["powers"] = powers
        header["known"] = self.known(metrics)
        header["nodes"] = [node.id[1] for node in there] if has_lines else None
        header["count"] = len(there)


class Events(PageView[EventsQuery]):
    """Events and log messages as they arrive."""

    minimum_role = Role.USER

    def _content(self) -> "tuple[dict[str, Any], array[float] | None]":
        return {"entries": self.new_entries(1000)}, None


class HealthPage(PageView[HealthQuery]):
    """The health of the pipe."""

    minimum_role = Role.ADMIN
    dead = 0
    last = 0.0

    def _content(self) -> "tuple[dict[str, Any], array[float] | None]":
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
            "streams": [
                {
                    "name": each.name,
                    "messages": each.state.messages,
                    "bytes": each.state.bytes,
                    "subjects": each.subjects[:MAX_SUBJECTS],
                }
                for each in health.streams
            ],
            "consumers": [
                {
                    "stream": each.stream_name,
                    "name": each.name,
                    "waiting": each.num_pending,
                    "ack_pending": each.num_ack_pending,
                    "redelivered": each.num_redelivered,
                }
                for each in health.consumers
            ],
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


VIEWS: dict[type[Query], type[PageView[Any]]] = {
    OverviewQuery: Overview,
    NodesQuery: NodeList,
    NodeQuery: NodePage,
    JobsQuery: JobList,
    JobQuery: JobPage,
    EventsQuery: Events,
    HealthQuery: HealthPage,
}


def summary(job: Job) -> dict[str, Any]:
    """Return a job with the first of its nodes; times are seconds, and the end of a run is 0."""
    return {
        "cluster": job.cluster, "id": job.id, "start": job.start // SECOND, "user": job.user,
        "project": job.project, "partition": job.partition, "name": job.name,
        "nodes": len(job.nodes), "first": [node.hostname for node in job.nodes[:MAX_NAMES]],
        "stop": job.end // SECOND, "state": job.state,
    }  # fmt: skip


def details(job: Job) -> dict[str, Any]:
    found = summary(job) | {
        "nodes": [node.hostname for node in job.nodes], "hwthreads": job.hwthreads,
        "accelerators": job.accelerators, "walltime": job.walltime, "shared": job.shared,
    }  # fmt: skip
    del found["first"]
    return found
