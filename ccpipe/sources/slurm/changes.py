"""What was sent of each job, so that only changes are sent again.

A record is identified by its job, step and submission, since a requeued job is submitted again.
What was sent becomes durable once it is stored downstream. A job that slurmctld forgot before
sacct reported its end keeps the window of sacct open.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

import msgspec

from ccpipe.formats.slurm.records import LiveJob, SacctRow
from ccpipe.jobs import Job, is_final
from ccpipe.pipeline.state import StateStore, StateTable
from ccpipe.sources.slurm.poll import REQUEUEABLE, Poll
from ccpipe.translate.slurm.jobs import job_of_live, job_of_row, steady

SECOND = 10**9
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
    """What was sent of a record."""

    digest: bytes
    start: int
    """Seconds since the epoch, like `end`; 0 for none."""
    end: int
    is_final: bool
    is_accounted: bool


class Changes:
    """Selects the records of each poll that must be sent."""

    def __init__(self, path: str, cluster: str) -> None:
        self.cluster = cluster
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
        """Yield the rows that say more about their job than squeue does."""
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
    """Return a digest of a job's record without its priority, which changes with age."""
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
