"""What was sent of each job, so that only changes are sent again.

A record is identified by its job, step and submission, since a requeued job is submitted again.
What was sent becomes durable once it is stored downstream. A job that slurmctld forgot before
sacct reported its end keeps the window of sacct open.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

import msgspec

from ccpipe.formats.slurm import SacctRow
from ccpipe.formats.sonar import UNSET, ExtendedUint, SlurmJob, timestamp
from ccpipe.jobs import is_final
from ccpipe.pipeline.state import StateStore, StateTable
from ccpipe.sources.slurm.poll import REQUEUEABLE, Poll
from ccpipe.translate.slurm.to_sonar import Detail, job_of_live, job_of_row

MAX_RECORDS = 500_000
"""Maximum number of records remembered; least recently sent ones are dropped first."""
MISSING = 86400 * 10**9
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
    """Whether sacct reported it."""


class Changes:
    """Selects the records of each poll that must be sent."""

    def __init__(self, path: str) -> None:
        """Store the state in a file; ``open()`` opens it."""
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
        """Rows of jobs of which slurmdbd knows only the end, by number and submission."""

    def open(self) -> None:
        """Read the file; raises ConfigError if it cannot be used."""
        self._state.open()
        self._last_poll = self._progress.get("poll") or 0

    @property
    def complete_until(self) -> int | None:
        """Time until which all ends were reported, in nanoseconds; None if unknown."""
        return self._progress.get("complete")

    def forget(self) -> None:
        """Send everything again."""
        for key in list(self._sent):
            self._sent.pop(key)
        self._given.clear()

    def changed(
        self, poll: Poll, *, everything: bool = False
    ) -> Iterator[tuple[SlurmJob, tuple[Key, SentRecord]]]:
        """Yield the changed records, each with the argument for ``acknowledge``.

        The end of a run that Slurm may requeue follows squeue's jobs: a reader then knows already
        whether the job goes on.
        """
        rows = list(self._rows(poll))
        for row in rows:
            if row.state not in REQUEUEABLE:
                yield from self._of_row(row, poll, everything=everything)
        for live in poll.jobs:
            job = job_of_live(live, _detail(poll, live.id.job, live.start))
            key = _key(job)
            known = self._given.get(key) or self._sent.get(key)
            if known and known.is_accounted and known.is_final and _is_same_run(job, known):
                continue
            yield from self._if_changed(job, is_accounted=False, everything=everything)
        for row in rows:
            if row.state in REQUEUEABLE:
                yield from self._of_row(row, poll, everything=everything)

    def _of_row(
        self, row: SacctRow, poll: Poll, *, everything: bool
    ) -> Iterator[tuple[SlurmJob, tuple[Key, SentRecord]]]:
        job = job_of_row(row, poll.allocation(row))
        return self._if_changed(job, is_accounted=True, everything=everything)

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
        self, job: SlurmJob, *, is_accounted: bool, everything: bool
    ) -> Iterator[tuple[SlurmJob, tuple[Key, SentRecord]]]:
        key = _key(job)
        sent = SentRecord(
            record_digest(job), _seconds(job.start_time), _seconds(job.end_time),
            is_final_run(job), is_accounted,
        )  # fmt: skip
        known = self._given.get(key) or self._sent.get(key)
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
        """Record durably that these were sent."""
        for key, value in sent:
            self._sent.put(key, value)
            if self._given.get(key) is value:
                del self._given[key]
        self._state.commit(is_durable=True)

    def acknowledge_poll(self, poll: Poll, complete: int | None, horizon: int) -> None:
        """Record durably until when ends are known; forget records before `horizon`."""
        for key, sent in list(self._sent.items()):
            is_gone = poll.listed is not None and key[0] not in poll.listed
            if is_gone and key[0] not in self._missing and sent.end * 10**9 < horizon:
                self._sent.pop(key)
        if poll.listed is not None:
            self._progress.put("poll", poll.time)
        if complete is not None:
            self._progress.put("complete", complete)
        self._state.commit(is_durable=True)


def record_digest(job: SlurmJob) -> bytes:
    """Return a digest of a record without its priority, which changes with age."""
    steady = msgspec.structs.replace(job, priority=UNSET)
    return blake2b(msgspec.msgpack.encode(steady, enc_hook=_wire), digest_size=12).digest()


def _wire(number: ExtendedUint) -> int:
    return number.wire


def is_final_run(job: SlurmJob) -> bool:
    """Return whether a record describes a finished run, whether final or requeued."""
    return bool(job.end_time) and (is_final(job.job_state.lower()) or job.job_state in _REQUEUED)


_REQUEUED = frozenset({"REQUEUED", "REVOKED"})


def _is_same_run(job: SlurmJob, known: SentRecord) -> bool:
    """Return whether squeue shows the run that ended, or a job that waits until it has completed.

    When it has, a requeued job is submitted again.
    """
    return is_final_run(job) or not job.start_time or _seconds(job.start_time) == known.start


def _key(job: SlurmJob) -> Key:
    return job.job_id, job.job_step, _seconds(job.submit_time), job.array_task_id


def _seconds(text: str) -> int:
    return (timestamp.parse(text) or 0) // 10**9


def _detail(poll: Poll, job: int, start: int | None) -> Detail | None:
    detail = poll.details.get(job)
    return detail if detail and detail.start == start else None
