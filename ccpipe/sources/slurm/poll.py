"""What one round of Slurm's commands reports."""

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC

from ccpipe.errors import UnavailableError
from ccpipe.formats.slurm import (
    Cluster,
    LiveJob,
    RejectedRecord,
    SacctRow,
    SqueueReader,
    read_sacct,
    read_sinfo,
    scontrol,
)
from ccpipe.sources.slurm.commands import END, SACCT_COLUMNS, SEPARATOR, SQUEUE_COLUMNS, Commands
from ccpipe.translate.slurm.to_sonar import PENDING, Detail, detail_of

log = logging.getLogger(__name__)

SINFO_COLUMNS = ("partition", "nodelist", "statecomplete", "")
_SEPARATOR = SEPARATOR.encode()
_PENDING = frozenset(state.encode() for state in PENDING)
_PART = 1000
"""Jobs that are read at once."""
_JOB = re.compile(rb"^JobId=([0-9]{1,10}) ", re.MULTILINE)


@dataclass(slots=True)
class Poll:
    """What was read at one time; without what has not changed since the poll before."""

    time: int
    """Nanoseconds since the epoch."""
    rows: list[SacctRow] = field(default_factory=list)
    jobs: Iterable[LiveJob] = ()
    """To be read once."""
    listed: frozenset[int] | None = None
    """Numbers of all jobs that slurmctld knows; None if it could not be asked."""
    details: dict[int, Detail] = field(default_factory=dict)
    cluster: Cluster | None = None
    has_accounting: bool = True
    """Whether the rows are complete: sacct was asked and answered."""
    rejected: list[RejectedRecord] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def allocation(self, row: SacctRow) -> tuple[str, ...]:
        """Return what scontrol reported of the allocation of a row's job."""
        detail = None if row.is_step else self.details.get(row.id.job)
        return detail.allocation if detail and detail.start == row.start else ()


class Poller:
    """Runs the commands and reads what is new of their output.

    sacct comes before squeue, which so lists every job that sacct has running; scontrol is asked
    only when squeue lists a started job whose allocation is not known.
    """

    def __init__(self, commands: Commands, *, accounting: bool, uncompleted: bool) -> None:
        """Ask sacct only where there is `accounting`; for all jobs where `uncompleted`."""
        self.commands = commands
        self.accounting = accounting
        self.uncompleted = uncompleted
        self._rows = _Unchanged()
        self._jobs = _Unchanged()
        self._details: dict[int, Detail] = {}
        self._starts: dict[int, bytes] = {}
        """Of the jobs that scontrol was asked for, when they started."""

    def forget(self) -> None:
        """Read everything anew with the next poll."""
        self._rows, self._jobs = _Unchanged(), _Unchanged()

    def accounted(self, since: int, until: int) -> Poll:
        """Read what sacct has of jobs that ended between two times."""
        poll = Poll(time.time_ns(), has_accounting=False)
        if self.accounting and (output := self._try(poll, lambda: self._sacct(since, until))):
            poll.has_accounting = True
            reading = read_sacct(
                b"\n".join(self._rows.new(sacct_records(output), lambda record: record)),
                columns=SACCT_COLUMNS, delimiter=SEPARATOR, zone=UTC,
            )  # fmt: skip
            poll.rows, poll.rejected = reading.records, reading.rejected
        return poll

    def poll(self, since: int, until: int, *, with_nodes: bool) -> Poll:
        """Run all commands; sinfo only where nodes are asked for."""
        poll = self.accounted(since, until)
        self._live(poll)
        if with_nodes and (output := self._try(poll, self.commands.sinfo)):
            poll.cluster = read_sinfo(output, columns=SINFO_COLUMNS, delimiter="|", zone=UTC)
            poll.rejected += poll.cluster.rejected
        return poll

    def _live(self, poll: Poll) -> None:
        """Add what squeue and, where needed, scontrol have of the jobs that slurmctld knows."""
        output = self._try(poll, self.commands.squeue)
        if output is None:
            return
        end = f"{END}\n".encode()
        records = output.removesuffix(end).split(end) if output else []
        poll.listed = frozenset(_numbers(records))
        new = self._jobs.new(records, lambda record: record.partition(_SEPARATOR)[2])
        poll.jobs = _read_jobs(poll, new)
        self._details = {job: known for job, known in self._details.items() if job in poll.listed}
        self._starts = {job: start for job, start in self._starts.items() if job in poll.listed}
        missing = {job: at for job, at in _started(new) if self._starts.get(job) != at}
        if missing and (printed := self._try(poll, self.commands.scontrol)):
            self._details.update(read_details(printed, set(missing)))
            self._starts.update(missing)
        poll.details = self._details

    def _sacct(self, since: int, until: int) -> bytes:
        return self.commands.sacct(since, until, uncompleted=self.uncompleted) or b"\n"

    def _try(self, poll: Poll, command: Callable[[], bytes]) -> bytes | None:
        try:
            return command()
        except UnavailableError as error:
            poll.problems.append(str(error))
            return None


class _Unchanged:
    """Which records the output before had."""

    def __init__(self) -> None:
        self._known: frozenset[int] = frozenset()

    def new(self, records: Iterable[bytes], key: Callable[[bytes], bytes]) -> list[bytes]:
        """Return the records whose keys the output before had not."""
        hashes = {hash(key(record)): record for record in records}
        known, self._known = self._known, frozenset(hashes)
        return [record for number, record in hashes.items() if number not in known]


def sacct_records(output: bytes) -> Iterator[bytes]:
    """Split at the newlines that end a row; a name may hold others."""
    begun = b""
    for line in output.split(b"\n"):
        record = begun + line
        if record.count(_SEPARATOR) >= len(SACCT_COLUMNS) - 1:
            yield record
            begun = b""
        elif record:
            begun = record + b"\n"
    if begun.strip():
        yield begun


def _read_jobs(poll: Poll, records: Sequence[bytes]) -> Iterator[LiveJob]:
    """Yield the jobs of squeue, a part at a time, since there may be very many."""
    reader = SqueueReader(columns=SQUEUE_COLUMNS, delimiter=SEPARATOR, zone=UTC)
    for at in range(0, len(records), _PART):
        reading = reader.feed(b"\n".join(records[at : at + _PART]) + b"\n")
        poll.rejected += reading.rejected
        yield from reading.records
    reading = reader.flush()
    poll.rejected += reading.rejected
    yield from reading.records


def _started(records: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the jobs of squeue that have nodes, each with its start as it is printed."""
    number, state, start, nodes = map(
        SQUEUE_COLUMNS.index, ("jobid", "state", "start_time", "nodelist")
    )
    for record in records:
        cells = record.split(_SEPARATOR)
        is_whole = len(cells) == len(SQUEUE_COLUMNS) and cells[number + 1].isdigit()
        if is_whole and cells[nodes] and cells[state] not in _PENDING:
            yield int(cells[number + 1]), cells[start]


def _numbers(records: Sequence[bytes]) -> Iterator[int]:
    """Yield the numbers of the jobs that squeue lists."""
    for record in records:
        number = record.split(_SEPARATOR, 3)[2:3]
        if number and number[0].isdigit():
            yield int(number[0])


def read_details(output: bytes, jobs: set[int]) -> dict[int, Detail]:
    """Read some of the jobs that ``scontrol -d show job`` printed, by their numbers."""
    found = list(_JOB.finditer(output))
    ends = [match.start() for match in found[1:]] + [len(output)]
    wanted = b"".join(
        output[match.start() : end]
        for match, end in zip(found, ends, strict=True)
        if int(match[1]) in jobs
    )
    reading = scontrol.read_jobs(wanted, zone=UTC)
    for bad in reading.rejected:
        log.warning("scontrol show job: %s: %s", bad.reason, bad.excerpt)
    return {job.id.job: detail_of(job) for job in reading.records}
