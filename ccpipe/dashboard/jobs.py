"""Jobs, from the events ``start_job`` and ``stop_job`` that any scheduler's bridge publishes."""

from collections.abc import Iterator
from typing import Any

import msgspec

from ccpipe.message import Message

MAX_JOBS = 3000
"""Maximum number of jobs; beyond it those that ended first are dropped."""
MAX_NODES = 10_000
"""Maximum number of nodes per job."""
MAX_TEXT = 255

JobKey = tuple[str, int, int]
"""Cluster, job and start in seconds."""


class _Resource(msgspec.Struct):
    hostname: str


class _Event(msgspec.Struct):
    """The fields read from either event; writers differ in the others."""

    jobId: int  # noqa: N815 - cc-backend's keys, here and below
    cluster: str = ""
    user: str = ""
    project: str = ""
    partition: str = ""
    startTime: int = 0  # noqa: N815
    stopTime: int = 0  # noqa: N815
    jobState: str = ""  # noqa: N815
    numHwthreads: int = 0  # noqa: N815
    numAcc: int = 0  # noqa: N815
    walltime: int = 0
    resources: list[_Resource] = []
    metaData: dict[str, Any] | None = None  # noqa: N815


class JobRow(msgspec.Struct):
    """A job as the page shows it; times are seconds since the epoch."""

    cluster: str
    id: int
    start: int
    user: str = ""
    project: str = ""
    partition: str = ""
    name: str = ""
    nodes: list[str] = []
    hwthreads: int = 0
    accelerators: int = 0
    walltime: int = 0
    stop: int = 0
    """0 while it runs."""
    state: str = ""
    """``running``, or how it ended."""

    @property
    def key(self) -> JobKey:
        """Identifies the job."""
        return self.cluster, self.id, self.start


class KnownJobs:
    """The known jobs, newest last; bounded."""

    def __init__(self, maximum: int = MAX_JOBS) -> None:
        """Start without jobs."""
        self.maximum = maximum
        self.jobs: dict[JobKey, JobRow] = {}
        self.version = 0
        """Grows with every change."""

    @property
    def running(self) -> list[JobRow]:
        """Jobs that have not ended, the latest first."""
        return [job for job in self.latest() if not job.stop]

    def latest(self) -> Iterator[JobRow]:
        """Yield all jobs, the latest first."""
        return iter(sorted(self.jobs.values(), key=lambda job: -job.start))

    def on(self, cluster: str, hostname: str) -> list[JobRow]:
        """Return the running jobs of a node."""
        return [job for job in self.running if job.cluster == cluster and hostname in job.nodes]

    def feed(self, message: Message) -> None:
        """Process an event; other events than starts and stops of jobs are ignored."""
        function = message.tags.get("function")
        if message.name != "job" or function not in ("start_job", "stop_job"):
            return
        try:
            event = msgspec.json.decode(str(message.value), type=_Event, strict=False)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return
        cluster = (event.cluster or message.tags.get("cluster", ""))[:MAX_TEXT]
        key = (cluster, event.jobId, event.startTime)
        if function == "start_job":
            before = self.jobs.get(key)
            self.jobs[key] = job = _job(cluster, event)
            if before is not None and not job.stop:  # a repeated start
                job.stop, job.state = before.stop, before.state
            self._make_room()
        elif not self._stop(key, event):
            return
        self.version += 1

    def _stop(self, key: JobKey, event: _Event) -> bool:
        """Record the end of a job; one without a known start is not shown."""
        job = self.jobs.get(key)
        if job is None and not event.startTime:
            same = [j for j in self.jobs.values() if j.key[:2] == key[:2] and not j.stop]
            job = same[-1] if same else None
        if job is None:
            return False
        job.stop = max(event.stopTime, 1)
        job.state = event.jobState[:MAX_TEXT] or "ended"
        return True

    def _make_room(self) -> None:
        while len(self.jobs) > self.maximum:
            ended = min(self.jobs.values(), key=lambda job: (job.stop or 2**62, job.start))
            del self.jobs[ended.key]


def _job(cluster: str, event: _Event) -> JobRow:
    state = event.jobState if event.jobState not in ("", "running") else ""
    return JobRow(
        cluster=cluster,
        id=event.jobId,
        start=event.startTime,
        user=event.user[:MAX_TEXT],
        project=event.project[:MAX_TEXT],
        partition=event.partition[:MAX_TEXT],
        name=str((event.metaData or {}).get("jobName", ""))[:MAX_TEXT],
        nodes=[each.hostname[:MAX_TEXT] for each in event.resources[:MAX_NODES]],
        hwthreads=event.numHwthreads,
        accelerators=event.numAcc,
        walltime=event.walltime,
        stop=event.stopTime if state else 0,
        state=state[:MAX_TEXT] or "running",
    )
