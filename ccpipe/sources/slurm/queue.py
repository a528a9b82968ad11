"""The queue of pending jobs, from what is new in squeue's output."""

from collections.abc import Sequence

from ccpipe.formats.slurm.records import LiveJob
from ccpipe.jobs.pending import PendingJob
from ccpipe.sources.slurm.poll import Poll
from ccpipe.translate.slurm.jobs import WAITING, pending_of_live


class PendingQueue:
    """The jobs that wait, of all polls: squeue's unchanged records are not read again."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self._jobs: dict[int, PendingJob] = {}

    def note(self, live: LiveJob) -> None:
        """Add a job that is new or has changed, or remove it if it does not wait any more."""
        if live.state in WAITING:
            self._jobs[live.id.job] = pending_of_live(live, self.cluster)
        else:
            self._jobs.pop(live.id.job, None)

    def after(self, poll: Poll) -> Sequence[PendingJob] | None:
        """Return the queue once all jobs of a poll were noted; None if squeue failed."""
        if poll.listed is None:
            return None
        for job in self._jobs.keys() - poll.listed:
            del self._jobs[job]
        return list(self._jobs.values())
