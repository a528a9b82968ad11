"""One round of Slurm's commands, and what is new in it; or captured outputs instead."""

import logging
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from ccpipe.errors import ConfigError, DataError, UnavailableError
from ccpipe.formats.slurm.cluster import REASON_LAST, Cluster, read_sinfo
from ccpipe.formats.slurm.json import read_json
from ccpipe.formats.slurm.records import LiveJob, RejectedRow, SacctRow
from ccpipe.formats.slurm.text import SacctReader, SqueueReader, read_scontrol
from ccpipe.process import child
from ccpipe.translate.slurm.jobs import NOT_STARTED, has_started, live_memory_per_node

SEPARATOR, END = "\x1f", "\x1e"
MAX_OUTPUT = 2**30

FINAL_STATES = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REQUEUED", "REVOKED", "TIMEOUT",
)  # fmt: skip

SACCT_COLUMNS = (
    "JobIDRaw", "JobID", "User", "UID", "Account", "State", "Submit", "Start", "End", "Suspended",
    "TimelimitRaw", "Partition", "Reservation", "NodeList", "Priority", "Layout", "ReqCPUS",
    "ReqMem", "ReqNodes", "ReqTRES", "AllocTRES", "ExitCode", "MinCPU", "AveCPU", "AveDiskRead",
    "AveDiskWrite", "TRESUsageInAve", "TRESUsageOutAve", "AveRSS", "AveVMSize", "SystemCPU",
    "UserCPU", "MaxRSS", "MaxVMSize", "JobName", "DBIndex",
)  # fmt: skip
"""Without columns that change while a job runs, so that an unchanged row stays identical.

The last one is a number, so that the end of a row is clear even if its name contains newlines.
"""

_SQUEUE = {
    "%Q": "priority", "%i": "jobid", "%A": "jobid", "%T": "state", "%u": "user", "%U": "uid",
    "%a": "account", "%P": "partition", "%l": "time_limit", "%V": "submit_time",
    "%S": "start_time", "%e": "end_time", "%N": "nodelist", "%D": "nodes", "%C": "cpus",
    "%v": "reservation", "%j": "name", "%h": "over_subscribe", "%r": "reason",
}  # fmt: skip
SQUEUE_COLUMNS = tuple(_SQUEUE.values())
"""The first one, the priority, changes while jobs wait."""


_ENVIRONMENT = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard", "SLURM_BITSTR_LEN": "0"}
"""The last one prints all pending tasks of an array, not only as many as fit 64 characters."""


class Commands:
    """Runs sacct, squeue, scontrol and sinfo: one bulk query each, bounded in time and output.

    Their text output is the same from Slurm 20.11 to today, while their JSON has several dialects,
    is five to seven times larger and, from sacct of 22.05, lacks exit codes. Times are printed in
    UTC (``TZ=UTC``), so that no hour occurs twice. Fields are separated by 0x1F and squeue's jobs
    terminated by 0x1E, which no name contains. Each raises UnavailableError if it fails.

    Source: sacct(1), squeue(1), sinfo(1), scontrol(1).
    """

    def __init__(self, *, directory: str, timeout: float, conf: str = "") -> None:
        """Find the programs in a directory, or on the ``PATH`` if it is empty.

        `conf` is the ``slurm.conf`` of the cluster, if that is not this machine's.
        """
        self.directory = directory
        self.timeout = timeout
        self._environment = {**_ENVIRONMENT, "SLURM_CONF": conf} if conf else _ENVIRONMENT

    def sacct(self, since: int, until: int, *, uncompleted: bool) -> bytes:
        states = [] if uncompleted else ["--state", ",".join(FINAL_STATES)]
        return self._run([
            "sacct", "--allusers", "--duplicates", "--noheader", "--parsable2", "--noconvert",
            "--delimiter", SEPARATOR, "--format", ",".join(SACCT_COLUMNS), *states,
            "--starttime", _local(since), "--endtime", _local(until),
        ])  # fmt: skip

    def squeue(self) -> bytes:
        form = SEPARATOR.join(_SQUEUE) + END
        return self._run(["squeue", "--all", "--noheader", "--states", "all", "--format", form])

    def scontrol(self) -> bytes:
        return self._run(["scontrol", "--all", "--details", "show", "job"])

    def batch_script(self, job: int, seconds: float) -> bytes:
        """Return the script of a job that slurmctld knows, within a time.

        For a job without a script scontrol succeeds, and prints nothing.
        """
        words = ["scontrol", "write", "batch_script", str(job), "-"]
        script = self._run(words, min(seconds, self.timeout))
        if not script:
            raise UnavailableError("scontrol write batch_script: printed nothing")
        return script

    def sinfo(self) -> bytes:
        form = "Partition:|,NodeList:|,StateComplete:|,Reason:|"
        return self._run(["sinfo", "--all", "--noheader", "--exact", "--Format", form])

    def version(self) -> str:
        return self._run(["squeue", "--version"]).decode(errors="replace").strip()

    def _run(self, words: Sequence[str], timeout: float | None = None) -> bytes:
        program = str(Path(self.directory, words[0])) if self.directory else words[0]
        try:
            return child.run(
                [program, *words[1:]],
                timeout=self.timeout if timeout is None else timeout,
                output=MAX_OUTPUT,
                environment={**os.environ, **self._environment},
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise UnavailableError(f"{words[0]}: {reason}") from None


def _local(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")


log = logging.getLogger(__name__)

SINFO_COLUMNS = ("partition", "nodelist", "statecomplete", *REASON_LAST)
_SEPARATOR = SEPARATOR.encode()
_NOT_STARTED = frozenset(state.encode() for state in NOT_STARTED)
SECOND = 10**9
_Record = TypeVar("_Record", SacctRow, LiveJob)
_PART = 1000
REQUEUEABLE = frozenset({"BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REQUEUED"})
"""States of runs after which Slurm may run the job again."""
_JOB = re.compile(rb"^JobId=([0-9]{1,10}) ", re.MULTILINE)


@dataclass(slots=True)
class Poll:
    """The output of one round of commands, without records unchanged since the previous poll."""

    time: int
    rows: list[SacctRow] = field(default_factory=list)
    jobs: Iterable[LiveJob] = ()
    """An iterator: to be read once."""
    listed: frozenset[int] | None = None
    """Numbers of all jobs known to slurmctld; None if it did not answer."""
    details: dict[int, LiveJob] = field(default_factory=dict)
    printed: dict[int, bytes] = field(default_factory=dict)
    """scontrol's output for each job that has started since the previous poll."""
    cluster: Cluster | None = None
    has_accounting: bool = True
    """Whether the rows are complete: sacct was called and succeeded."""
    rejected: list[RejectedRow] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def with_allocation(self, record: _Record) -> _Record:
        """Return a record with what scontrol reported of the allocation of its run."""
        known = None if record.id.step else self.details.get(record.id.job)
        if known is None or known.start != record.start:
            return record
        if has_started(known):
            record = replace(record, oversubscribe=known.oversubscribe, allocation=known.allocation)
        if isinstance(record, LiveJob):
            return replace(
                record,
                memory_per_node=live_memory_per_node(known),
                req_tres=known.req_tres,
                alloc_tres=known.alloc_tres,
            )
        return record


class Poller:
    """Runs the commands and parses what is new in their output.

    sacct runs before squeue, which therefore lists every job that is running according to sacct;
    scontrol is called only if squeue lists a started job with an unknown allocation.
    """

    def __init__(self, commands: Commands, *, accounting: bool, uncompleted: bool) -> None:
        self.commands = commands
        self.accounting = accounting
        self.uncompleted = uncompleted
        self._rows = _Unchanged()
        self._jobs = _Unchanged()
        self._held: list[SacctRow] = []
        self._details: dict[int, LiveJob] = {}
        self._starts: dict[int, bytes] = {}

    def forget(self) -> None:
        self._rows, self._jobs = _Unchanged(), _Unchanged()

    def accounted(self, since: int, until: int) -> Poll:
        poll = Poll(time.time_ns(), has_accounting=False)
        if self.accounting and (output := self._try(poll, lambda: self._sacct(since, until))):
            poll.has_accounting = True
            reader = SacctReader(columns=SACCT_COLUMNS, delimiter=SEPARATOR, zone=UTC)
            new = self._rows.new(sacct_records(output), lambda record: record)
            reading = reader.read(b"\n".join(new))
            poll.rows, poll.rejected = reading.records, reading.rejected
        return poll

    def poll(self, since: int, until: int, *, with_nodes: bool) -> Poll:
        poll = self.accounted(since, until)
        self._live(poll)
        self._hold(poll)
        if with_nodes and (output := self._try(poll, self.commands.sinfo)):
            poll.cluster = read_sinfo(output, columns=SINFO_COLUMNS)
            poll.rejected += poll.cluster.rejected
        return poll

    def _hold(self, poll: Poll) -> None:
        """Keep the ends of runs that may be requeued until squeue reports whether they were."""
        rows, self._held = [*self._held, *poll.rows], []
        if poll.listed is None:
            self._held = [row for row in rows if row.state in REQUEUEABLE and not row.is_step]
            rows = [row for row in rows if row.state not in REQUEUEABLE or row.is_step]
        poll.rows = rows

    def _live(self, poll: Poll) -> None:
        """Add jobs known to slurmctld from squeue and, where needed, scontrol."""
        output = self._try(poll, self.commands.squeue)
        if output is None:
            return
        end = f"{END}\n".encode()
        records = output.removesuffix(end).split(end) if output else []
        poll.listed = frozenset(_numbers(records))
        new = self._jobs.new(records, lambda record: record.partition(_SEPARATOR)[2])
        poll.jobs = _read_jobs(poll, new, time.time_ns())
        self._details = {job: known for job, known in self._details.items() if job in poll.listed}
        self._starts = {job: start for job, start in self._starts.items() if job in poll.listed}
        missing = {job: at for job, at in _started(new) if self._starts.get(job) != at}
        if missing and (printed := self._try(poll, self.commands.scontrol)):
            poll.printed = printed_jobs(printed, set(missing))
            self._details.update(read_details(poll.printed))
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
    """Records of the previous output."""

    def __init__(self) -> None:
        self._known: frozenset[int] = frozenset()

    def new(self, records: Iterable[bytes], key: Callable[[bytes], bytes]) -> list[bytes]:
        hashes = {hash(key(record)): record for record in records}
        known, self._known = self._known, frozenset(hashes)
        return [record for number, record in hashes.items() if number not in known]


def sacct_records(output: bytes) -> Iterator[bytes]:
    """Split at the newlines that end a row; names may contain others."""
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


def _read_jobs(poll: Poll, records: Sequence[bytes], at: int) -> Iterator[LiveJob]:
    reader = SqueueReader(columns=SQUEUE_COLUMNS, delimiter=SEPARATOR, zone=UTC)
    for first in range(0, len(records), _PART):
        reading = reader.feed(b"\n".join(records[first : first + _PART]) + b"\n")
        poll.rejected += reading.rejected
        yield from (pending_if_requeued(job, at) for job in reading.records)
    reading = reader.flush()
    poll.rejected += reading.rejected
    yield from (pending_if_requeued(job, at) for job in reading.records)


def _started(records: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    number, state, start, nodes = map(
        SQUEUE_COLUMNS.index, ("jobid", "state", "start_time", "nodelist")
    )
    for record in records:
        cells = record.split(_SEPARATOR)
        is_whole = len(cells) == len(SQUEUE_COLUMNS) and cells[number + 1].isdigit()
        if is_whole and cells[nodes] and cells[state] not in _NOT_STARTED:
            yield int(cells[number + 1]), cells[start]


def _numbers(records: Sequence[bytes]) -> Iterator[int]:
    for record in records:
        number = record.split(_SEPARATOR, 3)[2:3]
        if number and number[0].isdigit():
            yield int(number[0])


def printed_jobs(output: bytes, jobs: set[int]) -> dict[int, bytes]:
    found = list(_JOB.finditer(output))
    ends = [match.start() for match in found[1:]] + [len(output)]
    return {
        int(match[1]): output[match.start() : end]
        for match, end in zip(found, ends, strict=True)
        if int(match[1]) in jobs
    }


def read_details(printed: Mapping[int, bytes]) -> dict[int, LiveJob]:
    reading = read_scontrol(b"".join(printed.values()), zone=UTC)
    for bad in reading.rejected:
        log.warning("scontrol show job: %s: %s", bad.reason, bad.excerpt)
    return {job.id.job: job for job in reading.records}


def pending_if_requeued(job: LiveJob, time: int) -> LiveJob:
    """Return a requeued job as pending while its last run still completes.

    `time` is when squeue was called. While an epilog runs, squeue prints such a job as COMPLETING
    on the nodes of the run that ended, without a start or with the current time as its start, and
    the end of its time limit from then on as its end. The end of a run that really completes has
    passed.
    """
    if job.state != "COMPLETING" or not _ends_by_limit(job, time):
        return job
    return replace(job, state="PENDING", start=None, end=None, node_list=None)


def _ends_by_limit(job: LiveJob, time: int) -> bool:
    """Return whether a job has not ended at a time: its end is its time limit's."""
    limit = job.time_limit
    if job.start is None or limit is None or math.isinf(limit):
        return job.end is None or job.end > time
    return job.end is not None and job.start < job.end == job.start + round(limit) * SECOND > time


_CAPTURED = re.compile(r"(sacct|squeue|sinfo|scontrol)[^.]*\.([0-9]{1,11})\.(?:txt|json)")


class PollReplay:
    """The polls of a directory of captured outputs, in order of time, as if run again.

    A file is named by its command and time in seconds since the epoch: ``sacct.1795170834.txt``,
    ``squeue_all.1795170834.txt``, ``sinfo_N.1795170834.txt``, ``scontrol.1795170834.txt``; anything
    between command and time is ignored. Files with the same time form one poll. Text must begin
    with the header line (scontrol has none) and contain times in UTC; sacct's may also be JSON.
    """

    def __init__(self, directory: str) -> None:
        self._files: dict[int, list[tuple[str, Path]]] = {}
        for path in sorted(Path(directory).glob("*")):
            if found := _CAPTURED.fullmatch(path.name):
                self._files.setdefault(int(found[2]) * SECOND, []).append((found[1], path))
        if not self._files:
            raise ConfigError(f"replay: {directory} has no files such as sacct.1795170834.txt")

    def __iter__(self) -> Iterator[Poll]:
        """Yield the polls; a file that cannot be read is reported as a problem of its poll."""
        for captured, files in sorted(self._files.items()):
            poll = Poll(captured, has_accounting=False)
            for command, path in files:
                try:
                    _add_captured(poll, command, path.read_bytes())
                except (DataError, OSError) as error:
                    poll.problems.append(f"{path.name}: {error}")
            yield poll


def _add_captured(poll: Poll, command: str, payload: bytes) -> None:
    match command:
        case "sacct":
            is_json = payload[:1] == b"{"
            rows = read_json(payload) if is_json else SacctReader(zone=UTC).read(payload)
            poll.rows += rows.records
            poll.rejected += rows.rejected
            poll.has_accounting = True
        case "squeue":
            jobs = SqueueReader(zone=UTC).read(payload)
            # A table may have been captured without times.
            poll.jobs = [pending_if_requeued(j, poll.time) if j.start else j for j in jobs.records]
            poll.rejected += jobs.rejected
            poll.listed = frozenset(job.id.job for job in jobs.records)
        case "scontrol":
            details = read_scontrol(payload, zone=UTC)
            poll.details = {job.id.job: job for job in details.records}
            poll.rejected += details.rejected
        case "sinfo":
            poll.cluster = read_sinfo(payload)
            poll.rejected += poll.cluster.rejected
