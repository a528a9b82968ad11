"""Jobs over HTTP: searches of the index, and the report of one job."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import msgspec

from ccpipe.config import state_directory
from ccpipe.dashboard.access import Role, current_viewer, requires
from ccpipe.errors import DeniedError, MissingExtra, UsageError
from ccpipe.history.index import FoundJobs
from ccpipe.history.indexing import JobIndexer
from ccpipe.history.interfaces import History
from ccpipe.history.job_search import JobSearch
from ccpipe.jobs import Job, RunKey
from ccpipe.jobs.pending import PendingJob
from ccpipe.live.feed import LiveFeed

try:
    from aiohttp import web
except ImportError:
    raise MissingExtra("aiohttp", "dashboard") from None

SECOND = 10**9


class ReportQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A run of a job, as the page names it."""

    cluster: str
    job: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    start: Annotated[int, msgspec.Meta(ge=0, lt=2**63 // SECOND)]
    """Seconds since the epoch."""


class JobsApi:
    """Answers requests about jobs; its index is kept up to date while the application runs."""

    def __init__(self, feed: LiveFeed, history: History | None = None) -> None:
        """Index the jobs of a feed, and those of a store in a file of the state directory."""
        self._live = feed.state.jobs
        cluster = feed.site.cluster
        path = _index_path(cluster) if history is not None else None
        clusters = [cluster] if cluster else []
        self.indexer = JobIndexer(
            path, history, clusters=clusters, live=self._known, queue=self._waiting
        )

    def routes(self, prefix: str) -> list[web.RouteDef]:
        """Return the routes below a path."""
        return [
            web.post(f"{prefix}/api/jobs", self.find),
            web.post(f"{prefix}/api/job-report", self.report),
        ]

    async def run(self, _: web.Application) -> AsyncIterator[None]:
        """Keep the index up to date, as a cleanup context of the application."""
        async with self.indexer:
            for job in self._known():
                self.indexer.put(job)
            self.indexer.put_queue(list(self._waiting()), [])
            self._live.changed = self.indexer.put
            self._live.pending.changed = self.indexer.put_queue
            yield
            self._live.changed = self._live.pending.changed = None

    def _known(self) -> Iterator[Job]:
        return iter(list(self._live.jobs.values()))

    def _waiting(self) -> Iterator[PendingJob]:
        return iter(list(self._live.pending.jobs.values()))

    @requires(Role.USER)
    async def find(self, request: web.Request) -> web.Response:
        """Answer a ``JobSearch`` with ``FoundJobs``, to a user with his own jobs."""
        search: JobSearch = await _read(request, JobSearch)
        viewer = current_viewer()
        if not viewer.sees_all:
            if not viewer.user or (search.user and viewer.user not in search.user):
                return _json(FoundJobs(0, []))
            search = msgspec.structs.replace(search, user=[viewer.user])
        return _json(await self.indexer.find(search))

    @requires(Role.USER)
    async def report(self, request: web.Request) -> web.Response:
        """Answer a ``ReportQuery`` with the ``UsageReport`` of the job."""
        asked = await _read(request, ReportQuery)
        job = await self.job(RunKey(asked.cluster, asked.job, asked.start * SECOND))
        if job is None or not current_viewer().may_see(job):
            raise UsageError(f"no event of job {asked.job} has been received")
        return _json(await self.indexer.report(job))

    async def job(self, key: RunKey) -> Job | None:
        """Return a run of a job: live, indexed, or of the store, if that has events."""
        job = self._live.jobs.get(key) or await self.indexer.get(key)
        if job is None and self.indexer.history is not None:
            with contextlib.suppress(UsageError, DeniedError):  # it has metrics only, or fewer
                job = await self.indexer.history.job(key)
        return job


def _index_path(cluster: str) -> Path:
    name = quote(cluster, safe="") or "all"
    return state_directory() / "dashboard" / f"jobs-{name}.sqlite"


async def _read(request: web.Request, kind: type[msgspec.Struct]) -> Any:
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UsageError(f"not a query: {error}") from None


def _json(answer: msgspec.Struct) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
