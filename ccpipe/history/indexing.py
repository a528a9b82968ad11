"""Keeps the index of jobs up to date in the background: events, a store's jobs, and reports."""

import asyncio
import functools
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self, TypeVar

from ccpipe.errors import DeniedError, UnavailableError, UsageError
from ccpipe.history.index import BrokenIndexError, FoundJobs, JobIndex, JobTimes
from ccpipe.history.interfaces import History
from ccpipe.history.job_search import JobSearch
from ccpipe.history.report import UsageReport, fetch_report
from ccpipe.jobs import Job, RunKey
from ccpipe.jobs.pending import PendingJob
from ccpipe.node.sampling.collector import units
from ccpipe.process.background import background, end_tasks

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_IN_MEMORY = 10_000
MAX_PENDING = 20_000
"""Jobs that wait to be written; beyond it the oldest are dropped."""
MAX_QUEUE = 200_000
"""The same for changes of pending jobs."""
WRITE_SECONDS = 1.0
FILL_SECONDS = 30 * 86400.0
"""How far back a store is asked for jobs at the start."""
MIN_FILL_SECONDS = 3600.0
"""If a store cannot answer for this time, jobs before it are not read."""
OVERLAP_SECONDS = 86400.0
"""Jobs in a store that may be older than the newest one in the index, and are not in it."""
SETTLE_SECONDS = 180.0
"""From the end of a job to its report: bridges write a store's last values with a delay."""
RETRY_SECONDS = 60.0
LOST_SECONDS = 3600.0
"""Between two searches for jobs whose stop was lost."""
IDLE_SECONDS = 10.0
PAUSE_SECONDS = 0.1
"""Between two reports, so that queries of people precede them."""
BATCH = 20
WRITTEN_AT_ONCE = 500
QUEUE_AT_ONCE = 5000
"""The same for pending jobs, which are small."""


class JobIndexer:
    """The index of jobs of a dashboard, as an async context manager."""

    def __init__(
        self,
        path: Path | None,
        history: History | None = None,
        *,
        clusters: Iterable[str] = (),
        live: Callable[[], Iterable[Job]] = tuple,
        queue: Callable[[], Iterable[PendingJob]] = tuple,
    ) -> None:
        """Use a file, or memory without a `path` or where the file cannot be used.

        The jobs of some `clusters` are read from `history` at the start, and reports computed from
        it. `live` and `queue` return the jobs that are known now, and those that wait, for an index
        that replaces a broken one.
        """
        self.history = history
        self._clusters = list(clusters)
        self._live, self._known_queue = live, queue
        self._pending: dict[RunKey, Job] = {}
        self._queue: dict[tuple[str, int], PendingJob | None] = {}
        """Changes of jobs that wait to start; None of those that left the queue."""
        self._writing = asyncio.Lock()
        self._units: dict[str, str] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._index = self._open(path)

    def _open(self, path: Path | None) -> JobIndex:
        if path is not None:
            try:
                index = JobIndex(path)
                index.clear_pending()
                return index  # noqa: TRY300 - both may fail
            except UnavailableError as error:
                log.error("%s; only jobs since the start are listed", error)  # noqa: TRY400 - no traceback
        return JobIndex(max_jobs=MAX_IN_MEMORY)

    async def __aenter__(self) -> Self:
        self._tasks = [
            background(self._keep_writing(), "ccpipe-job-index"),
            background(self._keep_ending(), "ccpipe-lost-stops"),
        ]
        if self.history is not None:
            self._tasks.append(background(self._fill(self.history), "ccpipe-stored-jobs"))
            self._tasks.append(background(self._keep_reporting(self.history), "ccpipe-job-reports"))
        return self

    async def __aexit__(self, *_: object) -> None:
        await end_tasks(self._tasks)
        self._index.close()

    def put(self, job: Job) -> None:
        """Write a job with the next ones."""
        self._pending.pop(job.run_key, None)
        self._pending[job.run_key] = job
        if len(self._pending) > MAX_PENDING:
            del self._pending[next(iter(self._pending))]

    def put_queue(self, jobs: Sequence[PendingJob], left: Sequence[tuple[str, int]]) -> None:
        """Write which jobs are pending with the next ones, and which no longer are, by key."""
        self._queue.update(dict.fromkeys(left))
        self._queue.update((job.key, job) for job in jobs)
        for key in list(itertools.islice(self._queue, max(0, len(self._queue) - MAX_QUEUE))):
            del self._queue[key]

    async def find(self, search: JobSearch) -> FoundJobs:
        """Search all jobs that were put; raises UsageError or UnavailableError."""
        await self._write()
        return await self._call(functools.partial(JobIndex.find, search=search))

    async def get(self, key: RunKey) -> Job | None:
        await self._write()
        return await self._call(functools.partial(JobIndex.get, key=key))

    async def times(self, cluster: str | None, start: float, stop: float) -> JobTimes:
        """Return when jobs ran in a time, of all clusters if `cluster` is None."""
        await self._write()
        read = functools.partial(JobIndex.times, cluster=cluster, start=start, stop=stop)
        return await self._call(read)

    async def report(self, job: Job) -> UsageReport:
        """Return the report of a job as of now; raises UsageError or UnavailableError."""
        if self.history is None:
            raise UsageError("no store of metrics is configured, from which a report is computed")
        return await self._fetch(self.history, job)

    async def _fetch(self, history: History, job: Job) -> UsageReport:
        if self._units is None:
            self._units = await asyncio.to_thread(units)
        try:
            return await fetch_report(history, job, self._units)
        except DeniedError as error:  # our credentials, not those of a viewer
            raise UnavailableError(str(error)) from None

    async def _call(self, function: Callable[[JobIndex], T]) -> T:
        """Call a method of the index in a thread; replace the index if it is broken."""
        index = self._index
        try:
            return await asyncio.to_thread(function, index)
        except BrokenIndexError as error:
            if index.path is None:
                raise
            if index is self._index:
                log.error("%s; until a restart, only recent jobs are listed", error)  # noqa: TRY400 - no traceback
                index.close()
                self._index = JobIndex(max_jobs=MAX_IN_MEMORY)
                await asyncio.to_thread(self._index.put, list(self._live()))
                await asyncio.to_thread(self._index.put_pending, list(self._known_queue()))
            return await asyncio.to_thread(function, self._index)

    async def _write(self) -> None:
        """Write the jobs that were put; they are kept if that fails."""
        async with self._writing:
            while self._pending:
                keys = list(self._pending)[:WRITTEN_AT_ONCE]
                jobs = [self._pending[key] for key in keys]
                await self._call(functools.partial(JobIndex.put, jobs=jobs))
                for job in jobs:
                    if self._pending.get(job.run_key) is job:  # no newer one since
                        del self._pending[job.run_key]
            while self._queue:
                changes = dict(itertools.islice(self._queue.items(), QUEUE_AT_ONCE))
                waiting = [job for job in changes.values() if job is not None]
                left = [key for key, job in changes.items() if job is None]
                await self._call(functools.partial(JobIndex.put_pending, jobs=waiting, left=left))
                for key, change in changes.items():
                    if self._queue.get(key) is change:
                        del self._queue[key]

    async def _keep_writing(self) -> None:
        while True:
            try:
                await self._write()
            except UnavailableError as error:
                log.warning("%s", error)
                await asyncio.sleep(RETRY_SECONDS)
            await asyncio.sleep(WRITE_SECONDS)

    async def _keep_ending(self) -> None:
        """End the jobs whose stop was lost, now and then."""
        while True:
            try:
                end_lost = functools.partial(JobIndex.end_lost, now=time.time())
                await self._call(end_lost)
            except UnavailableError as error:
                log.warning("%s", error)
            await asyncio.sleep(LOST_SECONDS)

    async def _fill(self, history: History) -> None:
        """Read the jobs of a store that are newer than those in the index, the newest first."""
        newest = await self._call(JobIndex.newest)
        oldest = max(newest - OVERLAP_SECONDS, time.time() - FILL_SECONDS)
        for cluster in self._clusters:
            stop, span = time.time(), FILL_SECONDS
            while stop > oldest and span >= MIN_FILL_SECONDS:
                start = max(oldest, stop - span)
                try:
                    jobs = await history.jobs(cluster, start, stop)
                except UsageError as error:  # a store of metrics only, or too many jobs
                    log.debug("jobs of %s: %s", cluster, error)
                    span /= 4
                except (UnavailableError, DeniedError) as error:
                    log.warning("jobs of %s are not read: %s", cluster, error)
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    stop = start
                    for place in range(0, len(jobs), WRITTEN_AT_ONCE):
                        part = jobs[place : place + WRITTEN_AT_ONCE]
                        await self._call(functools.partial(JobIndex.put, jobs=part))

    async def _keep_reporting(self, history: History) -> None:
        """Compute the missing reports of jobs that have ended, the latest first."""
        while True:
            try:
                before = time.time() - SETTLE_SECONDS
                missing = functools.partial(JobIndex.without_report, before=before, maximum=BATCH)
                jobs = await self._call(missing)
                for job in jobs:
                    await self._report(history, job)
                    await asyncio.sleep(PAUSE_SECONDS)
            except UnavailableError as error:
                log.warning("reports of jobs are not computed: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                if not jobs:
                    await asyncio.sleep(IDLE_SECONDS)

    async def _report(self, history: History, job: Job) -> None:
        report = None
        try:
            report = await self._fetch(history, job)
        except UsageError as error:  # it would be the same next time
            log.debug("no report of job %d: %s", job.id, error)
        put = functools.partial(JobIndex.put_report, key=job.run_key, report=report)
        await self._call(put)
