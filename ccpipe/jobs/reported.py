"""What a store of jobs should show: the jobs whose starts and stops it has confirmed.

A store that loses some of them, such as one restored from a backup, shows other jobs as running
than those that run. ``ReportedJobs`` keeps what was reported, and returns what must be reported
again.
"""

from collections.abc import Container, Iterator

import msgspec

from ccpipe.jobs.events import function_of, read_event
from ccpipe.jobs.job import RunKey
from ccpipe.jobs.lifecycle import MAX_JOBS, Function
from ccpipe.message import Message
from ccpipe.pipeline.state import StateStore

MAX_ENDED = 10_000
"""Maximum number of jobs that ended of which the stop is kept; the oldest are dropped."""


class JobReport(msgspec.Struct, frozen=True):
    """A start or a stop of a job as it was sent."""

    function: Function
    key: RunKey
    payload: str
    """JSON, as cc-backend reads it."""

    @classmethod
    def of(cls, message: Message) -> "JobReport":
        """Return an event as a report; raises DataError if it is not a start or a stop."""
        return cls(function_of(message), read_event(message).run_key, str(message.value))


class ReportedJobs:
    """The latest reported run of each job."""

    def __init__(self, path: str = "") -> None:
        """Keep them in a state file, which ``open()`` opens, or else in memory."""
        self.state = StateStore(path)
        self._running = self.state.table("running", tuple[str, int], JobReport, maximum=MAX_JOBS)
        self._ended = self.state.table("ended", tuple[str, int], JobReport, maximum=MAX_ENDED)

    def add(self, report: JobReport) -> None:
        key = report.key[:2]
        if report.function == "stop_job":
            started = self._running.get(key)
            if started and report.key.start in (0, started.key.start):
                self._running.pop(key)
                # with the start that the stop may lack
                report = msgspec.structs.replace(report, key=started.key)
            self._ended.put(key, report)
        elif not ((ended := self._ended.get(key)) and ended.key == report.key):
            self._running.put(key, report)  # not a start that is repeated after its stop

    def start_of(self, key: RunKey) -> JobReport | None:
        started = self._running.get(key[:2])
        return started if started and key.start in (0, started.key.start) else None

    def differences(self, running: Container[RunKey]) -> Iterator[JobReport]:
        """Yield what must be reported again to a store that shows these jobs as running."""
        yield from [start for _, start in self._running.items() if start.key not in running]
        yield from [stop for _, stop in self._ended.items() if stop.key in running]
