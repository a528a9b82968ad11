"""Slurm's jobs, partitions and node states, from Slurm's own commands.

A poll gives its jobs and steps in batches; the last batch has no jobs, but what sinfo reported of
the cluster and what failed. So jobs come before the numbers of the nodes that they run on.

sacct is queried again from some time before its last complete answer, so that neither a restart
nor an outage of slurmctld or slurmdbd loses the end of a job.
"""

import asyncio
import functools
import itertools
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from ccpipe.config import Duration, Interval, Site
from ccpipe.errors import ConfigError
from ccpipe.jobs import Job, Jobs
from ccpipe.pipeline import Batch, Source, wait_for_event
from ccpipe.sources.slurm.changes import Changes
from ccpipe.sources.slurm.poll import SECOND, Commands, Poll, Poller
from ccpipe.sources.slurm.replay import PollReplay
from ccpipe.sources.slurm.start_metadata import StartMetadata

log = logging.getLogger(__name__)

SPAN = 86400 * SECOND
MARGIN = 60 * SECOND
"""Maximum lead of slurmdbd's clock."""
BATCH = 5000
MAX_TEXT = 500


class Slurm(Source[Jobs]):
    """Polls sacct, squeue, scontrol and sinfo, or replays captured output."""

    gives = Jobs

    def __init__(
        self,
        *,
        site: Site,
        mode: Literal["delta", "full"] = "delta",
        state: str = "",
        poll: Interval = Interval(30),  # noqa: B008 - frozen, as any float
        nodes: Interval = Interval(60),  # noqa: B008
        window: Duration = Duration(1800),
        begin: Duration = Duration(86400),
        resend: Duration = Duration(0),
        accounting: bool = True,
        uncompleted: bool = False,
        job_script: bool = False,
        slurm_info: bool = False,
        programs: str = "",
        timeout: Interval = Interval(120),  # noqa: B008
        replay: str = "",
        speed: float = 1.0,
    ) -> None:
        """Take what to ask for, and how often.

        Parameters
        ----------
        mode
            ``delta`` sends what has changed since it was sent last; ``full`` sends each time what
            the commands report, and remembers nothing, as Sonar does.
        state
            The file, on a local disk, that keeps what was sent. Without it everything is sent
            again after a restart. A file of this name with ``.resend`` behind it has everything
            sent again, and is then removed.
        poll
            Time between two polls of jobs.
        nodes
            Time between two polls of nodes and partitions, which are sent as a whole.
        window
            How far before its last complete answer sacct is asked again.
        begin
            How far the first poll goes back where there is no state.
        resend
            Time after which everything is sent again; 0 for never.
        accounting
            Whether there is a slurmdbd. Without it a job's end is what squeue reports within
            ``MinJobAge``, and nothing is known of steps and of resources used.
        uncompleted
            Whether sacct is asked for jobs that have not ended, too: that brings running steps.
        job_script
            Whether ``slurm_to_cc`` sends a job's script with its start. It may hold secrets.
            Envelopes have no field for it.
        slurm_info
            Whether it sends likewise what ``scontrol -d show job`` prints of the job.
        programs
            The folder of Slurm's commands; empty for the ``PATH``.
        timeout
            How long one command may take.
        replay
            A folder of captured outputs to read instead, see ``replay``.
        speed
            How many times faster than they were captured; 0 for without pauses.

        Raises
        ------
        ConfigError
            if a number makes no sense, or there is nothing to replay.

        """
        if speed < 0:
            raise ConfigError(f"speed is {speed}: it must not be negative")
        self.site = site
        self.is_full = mode == "full"
        self.poll = float(poll)
        self.nodes = float(nodes)
        self.window = round(window * SECOND)
        self.begin = max(round(begin * SECOND), self.window)
        self.resend = float(resend)
        self.speed = speed
        self._commands = Commands(folder=programs, timeout=float(timeout))
        self._poller = Poller(self._commands, accounting=accounting, uncompleted=uncompleted)
        self._metadata = (
            StartMetadata(self._commands, job_script=job_script, slurm_info=slurm_info)
            if job_script or slurm_info
            else None
        )
        self._replay = PollReplay(replay) if replay else None
        self._changes = Changes("" if self.is_full else state, site.cluster)
        self._request = Path(f"{state}.resend") if state else None
        self._next_nodes = 0.0
        self._next_resend = time.monotonic() + self.resend
        self._reported: list[str] = []
        self._stopped = asyncio.Event()

    async def check(self) -> None:
        """Run ``squeue --version``, for ``ccpipe validate --connect``."""
        if self._replay is None:
            await asyncio.to_thread(self._commands.version)

    def stop(self) -> None:
        self._stopped.set()

    async def batches(self) -> AsyncIterator[Batch[Jobs]]:
        self._changes.open()
        if self._replay is not None:
            async for batch in self._replayed(self._replay):
                yield batch
            return
        while not self._stopped.is_set():
            begin = time.monotonic()
            async for batch in self._polled():
                yield batch
            await wait_for_event(self._stopped, max(0.0, begin + self.poll - time.monotonic()))

    async def _replayed(self, replay: PollReplay) -> AsyncIterator[Batch[Jobs]]:
        before = None
        for poll in replay:
            if before is not None and self.speed:
                await wait_for_event(self._stopped, (poll.time - before) / SECOND / self.speed)
            if self._stopped.is_set():
                return
            before = poll.time
            async for batch in self._batches(poll, poll.time, everything=self.is_full):
                yield batch

    async def _polled(self) -> AsyncIterator[Batch[Jobs]]:
        everything = self.is_full or self._is_resend_due()
        if everything:
            self._poller.forget()
        until = time.time_ns()
        complete = self._changes.complete_until
        since = until - self.begin if complete is None else complete - self.window
        if self.is_full:
            since = until - self.window
        while until - since > SPAN:  # catch up day by day
            poll = await asyncio.to_thread(self._poller.accounted, since, since + SPAN)
            if not poll.has_accounting:
                break
            since += SPAN
            async for batch in self._batches(poll, since, everything=everything):
                yield batch
            if self._stopped.is_set():
                return
        with_nodes = time.monotonic() >= self._next_nodes
        if with_nodes:
            self._next_nodes = time.monotonic() + self.nodes
        # Threads get only what runs commands: the state file is used in this thread only.
        poll = await asyncio.to_thread(
            self._poller.poll, since, until + MARGIN, with_nodes=with_nodes
        )
        async for batch in self._batches(poll, until, everything=everything):
            yield batch

    def _is_resend_due(self) -> bool:
        is_requested = self._request is not None and self._request.exists()
        if is_requested and self._request is not None:
            self._request.unlink(missing_ok=True)
        is_due = bool(self.resend) and time.monotonic() >= self._next_resend
        if is_due:
            self._next_resend = time.monotonic() + self.resend
        return is_requested or is_due

    async def _batches(
        self, poll: Poll, until: int, *, everything: bool
    ) -> AsyncIterator[Batch[Jobs]]:
        """Yield what a poll has to send; the last batch records until when ends are known."""
        if self._metadata is not None:
            self._metadata.begin_poll()
        found = self._changes.changed(poll, everything=everything)
        while part := list(itertools.islice(found, BATCH)):
            await asyncio.sleep(0)
            changed, sent = zip(*part, strict=True)
            jobs = Jobs(await self._with_texts(changed, poll), time=poll.time)
            note = functools.partial(self._changes.acknowledge, sent)
            yield Batch(jobs, functools.partial(_acknowledge, note), "slurm")
        self._changes.note_listed(poll)
        known = self._changes.complete_until
        complete = self._changes.complete(until) if poll.has_accounting else known
        # A replayed sacct reports the same rows each time.
        horizon = 0 if self._replay or complete is None else complete - 2 * self.window
        note = functools.partial(self._changes.acknowledge_poll, poll, complete, horizon)
        yield Batch(self._cluster_state(poll), functools.partial(_acknowledge, note), "slurm")

    async def _with_texts(self, jobs: Sequence[Job], poll: Poll) -> Sequence[Job]:
        if self._metadata is None or not poll.printed:
            return jobs
        texts = await asyncio.to_thread(self._metadata.of, jobs, poll.printed)
        return [
            job if job.step or job.id not in texts else replace(job, start_metadata=texts[job.id])
            for job in jobs
        ]

    def _cluster_state(self, poll: Poll) -> Jobs:
        new = [text for text in poll.problems if text not in self._reported]
        self._reported = poll.problems
        if new:
            log.warning("%s", "; ".join(new))
        return Jobs(
            rejected=poll.rejected,
            time=poll.time,
            cluster=poll.cluster,
            errors=[text[:MAX_TEXT] for text in new],
        )


async def _acknowledge(note: Callable[[], None]) -> None:
    note()
