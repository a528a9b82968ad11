"""Slurm's jobs, partitions and node states, from Slurm's own commands.

A poll yields its jobs and steps in batches; the last batch has no jobs, but the queue, sinfo's
report of the cluster, and the errors. So jobs precede the numbers of the nodes that they run on.

sacct is queried again from some time before its last complete answer, so that neither a restart
nor an outage of slurmctld or slurmdbd loses the end of a job.

Only changes are sent again. A record is identified by its job, step and submission, since a
requeued job is submitted again. A sent record becomes durable once it is stored downstream. A job
that slurmctld forgot before sacct reported its end keeps the window of sacct open.
"""

import asyncio
import functools
import itertools
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from ccpipe.config import Duration, Interval, Site
from ccpipe.errors import ConfigError
from ccpipe.formats.slurm.records import LiveJob, SacctRow
from ccpipe.jobs import Job, Jobs, is_final
from ccpipe.pipeline import Batch, Source, wait_for_event
from ccpipe.pipeline.state import StateStore, StateTable
from ccpipe.sources.slurm.poll import REQUEUEABLE, SECOND, Commands, Poll, Poller, PollReplay
from ccpipe.sources.slurm.queue import PendingQueue
from ccpipe.sources.slurm.start_metadata import StartMetadata
from ccpipe.translate.slurm.jobs import job_of_live, job_of_row, steady

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
        state_file: str = "",
        poll_interval: Interval = Interval(30),  # noqa: B008 - frozen, as any float
        node_interval: Interval = Interval(60),  # noqa: B008
        sacct_overlap: Duration = Duration(1800),
        lookback: Duration = Duration(86400),
        resend_interval: Duration = Duration(0),
        accounting: bool = True,
        uncompleted: bool = False,
        job_script: bool = False,
        slurm_info: bool = False,
        slurm_conf: str = "",
        bin_dir: str = "",
        timeout: Interval = Interval(120),  # noqa: B008
        replay_dir: str = "",
        replay_speed: float = 1.0,
    ) -> None:
        """Configure the queries and their intervals.

        Parameters
        ----------
        mode
            ``delta`` sends records that have changed since they were last sent; ``full`` sends
            each time all that the commands report, and remembers nothing, as Sonar does.
        state_file
            The file, on a local disk, that records what was sent. Without it everything is sent
            again after a restart. A file of this name plus ``.resend`` causes everything to be
            sent again, and is then removed.
        poll_interval
            Time between two polls of jobs.
        node_interval
            Time between two polls of nodes and partitions, which are sent as a whole.
        sacct_overlap
            How far before its last complete answer sacct is queried again.
        lookback
            How far the first poll goes back without a state.
        resend_interval
            Time after which everything is sent again; 0 for never.
        accounting
            Whether there is a slurmdbd. Without it a job's end is the one that squeue reports
            within ``MinJobAge``, and steps and used resources are unknown.
        uncompleted
            Whether sacct is also queried for jobs that have not ended, which adds running steps.
        job_script
            Whether ``slurm_to_cc`` sends a job's script with its start. It may contain secrets.
            Envelopes have no field for it.
        slurm_info
            Whether it sends likewise what ``scontrol -d show job`` prints of the job.
        slurm_conf
            The ``slurm.conf`` of the cluster to query, if that is not this machine's.
        bin_dir
            The directory of Slurm's commands; empty for the ``PATH``.
        timeout
            How long one command may take.
        replay_dir
            A directory of captured outputs to read instead; see ``docs/slurm/jobs.md``.
        replay_speed
            How many times faster than they were captured; 0 for without pauses.

        Raises
        ------
        ConfigError
            if a number is out of range, or there is nothing to replay.

        """
        if replay_speed < 0:
            raise ConfigError(f"replay_speed is {replay_speed}: it must not be negative")
        self.site = site
        self.slurm_conf = slurm_conf
        self.is_full = mode == "full"
        self.poll_interval = float(poll_interval)
        self.node_interval = float(node_interval)
        self.sacct_overlap = round(sacct_overlap * SECOND)
        self.lookback = max(round(lookback * SECOND), self.sacct_overlap)
        self.resend_interval = float(resend_interval)
        self.replay_speed = replay_speed
        self._commands = Commands(directory=bin_dir, timeout=float(timeout), conf=slurm_conf)
        self._poller = Poller(self._commands, accounting=accounting, uncompleted=uncompleted)
        self._metadata = (
            StartMetadata(self._commands, job_script=job_script, slurm_info=slurm_info)
            if job_script or slurm_info
            else None
        )
        self._replay = PollReplay(replay_dir) if replay_dir else None
        self._queue = PendingQueue(site.cluster)
        self._changes = Changes("" if self.is_full else state_file, site.cluster, self._queue.note)
        self._request = Path(f"{state_file}.resend") if state_file else None
        self._next_nodes = 0.0
        self._next_resend = time.monotonic() + self.resend_interval
        self._reported: list[str] = []
        self._stopped = asyncio.Event()

    async def check(self) -> None:
        """Run ``squeue --version``, for ``ccpipe validate --connect``."""
        if self._replay is None:
            self._check_conf()
            await asyncio.to_thread(self._commands.version)

    def _check_conf(self) -> None:
        if self.slurm_conf and not Path(self.slurm_conf).is_file():
            raise ConfigError(f"slurm_conf: {self.slurm_conf}: no such file")

    def stop(self) -> None:
        self._stopped.set()

    async def batches(self) -> AsyncIterator[Batch[Jobs]]:
        self._check_conf()
        self._changes.open()
        if self._replay is not None:
            async for batch in self._replayed(self._replay):
                yield batch
            return
        while not self._stopped.is_set():
            begin = time.monotonic()
            async for batch in self._polled():
                yield batch
            await wait_for_event(
                self._stopped, max(0.0, begin + self.poll_interval - time.monotonic())
            )

    async def _replayed(self, replay: PollReplay) -> AsyncIterator[Batch[Jobs]]:
        before = None
        for poll in replay:
            if before is not None and self.replay_speed:
                await wait_for_event(
                    self._stopped, (poll.time - before) / SECOND / self.replay_speed
                )
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
        since = until - self.lookback if complete is None else complete - self.sacct_overlap
        if self.is_full:
            since = until - self.sacct_overlap
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
            self._next_nodes = time.monotonic() + self.node_interval
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
        is_due = bool(self.resend_interval) and time.monotonic() >= self._next_resend
        if is_due:
            self._next_resend = time.monotonic() + self.resend_interval
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
        horizon = 0 if self._replay or complete is None else complete - 2 * self.sacct_overlap
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
            queue=self._queue.after(poll),
            errors=[text[:MAX_TEXT] for text in new],
        )


async def _acknowledge(note: Callable[[], None]) -> None:
    note()


MAX_RECORDS = 500_000
"""Maximum number of records remembered; least recently sent ones are dropped first."""
MISSING = 86400 * SECOND
"""How long to wait for the end of a job that slurmctld forgot, in nanoseconds."""

UNNAMED = "allocation"
"""slurmdbd's name for a job whose end it received before its start.

slurmctld reports starts in groups, every few seconds.
"""

Key = tuple[int, str, int, int]
"""Job, step, submission in seconds, and task: ``squeue -r`` shows pending tasks with one number."""


class SentRecord(msgspec.Struct, frozen=True, gc=False):
    """The version of a record that was last sent."""

    digest: bytes
    start: int
    """Seconds since the epoch, like `end`; 0 if unknown."""
    end: int
    is_final: bool
    is_accounted: bool


class Changes:
    """Selects the records of each poll that must be sent."""

    def __init__(
        self, path: str, cluster: str, note: Callable[[LiveJob], None] = lambda _: None
    ) -> None:
        """Keep what was sent in a file; `note` is called with each job of squeue that is read."""
        self.cluster = cluster
        self._note = note
        self._state = StateStore(path)
        self._sent: StateTable[Key, SentRecord] = self._state.table(
            "sent", tuple[int, str, int, int], SentRecord, maximum=MAX_RECORDS
        )
        self._progress = self._state.table("progress", str, int, maximum=8)
        self._given: dict[Key, SentRecord] = {}
        self._missing: dict[int, int] = {}
        """When jobs that have not ended but are no longer listed were last listed."""
        self._last_poll = 0
        self._unnamed: dict[tuple[int, int | None], SacctRow] = {}

    def open(self) -> None:
        self._state.open()
        self._last_poll = self._progress.get("poll") or 0

    @property
    def complete_until(self) -> int | None:
        """Time until which all ends were reported, in nanoseconds; None if unknown."""
        return self._progress.get("complete")

    def forget(self) -> None:
        for key in list(self._sent):
            self._sent.pop(key)
        self._given.clear()

    def changed(
        self, poll: Poll, *, everything: bool = False
    ) -> Iterator[tuple[Job, tuple[Key, SentRecord]]]:
        """Yield the changed records, each with the argument for ``acknowledge``.

        The end of a run that Slurm may requeue follows squeue's jobs: a reader then knows already
        whether the job goes on.
        """
        rows = list(self._rows(poll))
        for row in rows:
            if row.state not in REQUEUEABLE:
                yield from self._of_row(row, poll, everything=everything)
        for live in poll.jobs:
            self._note(live)
            job = job_of_live(poll.with_allocation(live), self.cluster)
            known = self._known(job)
            if known and known.is_accounted and known.is_final and _is_same_run(job, known):
                continue
            yield from self._if_changed(job, is_accounted=False, everything=everything)
        for row in rows:
            if row.state in REQUEUEABLE:
                yield from self._of_row(row, poll, everything=everything)

    def _of_row(
        self, row: SacctRow, poll: Poll, *, everything: bool
    ) -> Iterator[tuple[Job, tuple[Key, SentRecord]]]:
        job = job_of_row(poll.with_allocation(row), self.cluster)
        return self._if_changed(job, is_accounted=True, everything=everything)

    def _known(self, job: Job) -> SentRecord | None:
        key = _key(job)
        return self._given.get(key) or self._sent.get(key)

    def _rows(self, poll: Poll) -> Iterator[SacctRow]:
        """Yield the rows with more information about their job than squeue has."""
        held, self._unnamed = self._unnamed, {}
        for row in poll.rows:
            held.pop((row.id.job, row.submit), None)
        for row in (*held.values(), *poll.rows):
            is_listed = poll.listed is not None and row.id.job in poll.listed
            if row.is_step or not is_listed:
                yield row
            elif row.end is not None:
                if row.job_name == UNNAMED:  # mostly empty; squeue lists it meanwhile
                    self._unnamed[row.id.job, row.submit] = row
                else:
                    yield row

    def _if_changed(
        self, job: Job, *, is_accounted: bool, everything: bool
    ) -> Iterator[tuple[Job, tuple[Key, SentRecord]]]:
        key, known = _key(job), self._known(job)
        sent = SentRecord(
            record_digest(job), job.start // SECOND, job.end // SECOND, is_final_run(job),
            is_accounted,
        )  # fmt: skip
        if everything or known is None or known.digest != sent.digest:
            self._given[key] = sent
            yield job, (key, sent)

    def note_listed(self, poll: Poll) -> None:
        """Record which jobs have vanished before their ends were reported."""
        if poll.listed is None:
            return
        latest = dict(self._sent.items()) | self._given
        ended = {(key[0], key[2]) for key, sent in latest.items() if sent.is_final}
        open_jobs = {
            job
            for (job, step, submit, _), sent in latest.items()
            if not step and not sent.is_final and (job, submit) not in ended
        }
        before = self._last_poll or poll.time
        self._missing = {
            job: self._missing.get(job, before)
            for job in open_jobs - poll.listed
            if poll.time - self._missing.get(job, before) < MISSING
        }
        self._last_poll = poll.time

    def complete(self, time: int) -> int:
        """Return the time until which all ends are known, if sacct was queried at `time`."""
        return min([time, *self._missing.values()])

    def acknowledge(self, sent: Iterable[tuple[Key, SentRecord]]) -> None:
        for key, value in sent:
            self._sent.put(key, value)
            if self._given.get(key) is value:
                del self._given[key]
        self._state.commit(is_durable=True)

    def acknowledge_poll(self, poll: Poll, complete: int | None, horizon: int) -> None:
        """Record durably until when ends are known; forget records before `horizon`."""
        for key, sent in list(self._sent.items()):
            is_gone = poll.listed is not None and key[0] not in poll.listed
            if is_gone and key[0] not in self._missing and sent.end * SECOND < horizon:
                self._sent.pop(key)
        if poll.listed is not None:
            self._progress.put("poll", poll.time)
        if complete is not None:
            self._progress.put("complete", complete)
        self._state.commit(is_durable=True)


def record_digest(job: Job) -> bytes:
    """Return a digest of a job's record without its priority and reason, which change often."""
    assert isinstance(job.raw, SacctRow | LiveJob)
    return blake2b(msgspec.msgpack.encode(steady(job.raw)), digest_size=12).digest()


def is_final_run(job: Job) -> bool:
    """Return whether a record describes a finished run, whether final or requeued."""
    assert isinstance(job.raw, SacctRow | LiveJob)
    return bool(job.end) and (is_final(job.state) or job.raw.state in _REQUEUED)


_REQUEUED = frozenset({"REQUEUED", "REVOKED"})


def _is_same_run(job: Job, known: SentRecord) -> bool:
    """Return whether squeue shows the run that ended, or a job that waits until it has completed.

    When it has, a requeued job is submitted again.
    """
    return is_final_run(job) or not job.start or job.start // SECOND == known.start


def _key(job: Job) -> Key:
    return job.id, job.step, job.submit // SECOND, job.array_task or 0
