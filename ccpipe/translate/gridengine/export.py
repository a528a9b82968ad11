"""The output formats of ``ccpipe convert --from gridengine``.

docs/gridengine/jobs.md lists the fields of Sonar's envelopes, and what they cannot represent.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import IO, Literal, Protocol

import msgspec

from ccpipe import __version__
from ccpipe.errors import EncodeError, MissingExtra
from ccpipe.formats import sonar
from ccpipe.formats.gridengine import (
    HEADER,
    Accounting,
    RejectedAccountingLine,
    encode_classic,
    encode_jsonl,
)
from ccpipe.formats.lineprotocol import encode as encode_lines
from ccpipe.jobs import Job, JobUsage, is_complete
from ccpipe.jobs import message as job_message
from ccpipe.message import Message
from ccpipe.translate.gridengine.jobs import JobRuns, Mapping, job_of, metrics
from ccpipe.translate.gridengine.translator import Assembler

Format = Literal["classic", "json", "csv", "parquet", "line", "metrics", "events", "sonar"]
"""``classic`` and ``json`` are Grid Engine's own; ``csv`` and ``parquet`` have the columns of
``formats.gridengine.columns``; ``metrics``, ``events`` and ``line``, which is both, are line
protocol, of jobs that ended; ``sonar`` is one envelope for each block of the file."""


class Writer(Protocol):
    """Writes records in one format to a file object."""

    def write(self, records: Sequence[Accounting]) -> None:
        """Write records; raises EncodeError before writing any if one cannot be encoded."""
        ...

    def close(self) -> None: ...


def write_records(
    writer: Writer, records: Sequence[Accounting], *, command_line: bool = False
) -> list[RejectedAccountingLine]:
    """Write records and return those that the format cannot carry.

    The command line, which may contain secrets, is written only if `command_line` is set.
    """
    if not command_line:
        records = [msgspec.structs.replace(each, submit_cmd_line=None) for each in records]
    try:
        writer.write(records)
    except EncodeError:
        return list(_one_by_one(writer, records))
    return []


def _one_by_one(writer: Writer, records: Sequence[Accounting]) -> Iterator[RejectedAccountingLine]:
    for record in records:
        try:
            writer.write([record])
        except EncodeError as error:
            place = record.origin
            yield RejectedAccountingLine(
                place.line, place.offset, str(error), encode_jsonl(record).rstrip()
            )


def open_writer(  # noqa: PLR0911 - one return for each format
    to: Format, target: IO[bytes], mapping: Mapping
) -> Writer:
    """Return the writer of a format; raises MissingExtra for tables without pyarrow."""
    match to:
        case "classic":
            return _Lines(target, encode_classic, HEADER)
        case "json":
            return _Lines(target, _encode_json)
        case "csv" | "parquet":
            return _Table(target, to)
        case "line":
            return _Jobs(
                target,
                lambda jobs: _encode(chain(events(j, mapping), metrics(j, mapping)) for j in jobs),
            )
        case "metrics":
            return _Jobs(target, lambda jobs: _encode(metrics(job, mapping) for job in jobs))
        case "events":
            return _Jobs(target, lambda jobs: _encode(events(job, mapping) for job in jobs))
        case "sonar":
            return _Jobs(target, lambda jobs: _envelope(jobs, mapping))


def _encode_json(record: Accounting) -> bytes:
    """Write a record as valid JSON: invalid UTF-8 becomes U+FFFD, as in all but `classic`."""
    return encode_jsonl(record).decode("utf-8", "replace").encode()


def events(job: JobRuns, mapping: Mapping) -> Iterator[Message]:
    """Yield ``start_job`` and ``stop_job`` of a job that ran; nothing where it never started."""
    finished = job.finished(mapping)
    if job.end and is_complete(finished):
        yield job_message("start_job", finished)
        yield job_message("stop_job", finished)


def _encode(messages: Iterable[Iterator[Message]]) -> bytes:
    return encode_lines(list(chain.from_iterable(messages)), precision="auto")


def _envelope(jobs: Sequence[JobRuns], mapping: Mapping) -> bytes:
    time = max(job.end for job in jobs)
    return sonar.encode(jobs_to_sonar(jobs, mapping, time=time)).rstrip() + b"\n"


class _Lines:
    """A line for each record."""

    def __init__(
        self, target: IO[bytes], encode: Callable[[Accounting], bytes], head: bytes = b""
    ) -> None:
        self.target = target
        self.encode = encode
        target.write(head)

    def write(self, records: Sequence[Accounting]) -> None:
        self.target.write(b"".join(map(self.encode, records)))

    def close(self) -> None:
        pass


class _Table:
    """A row for each record."""

    def __init__(self, target: IO[bytes], to: Literal["csv", "parquet"]) -> None:
        try:
            from pyarrow import csv, parquet
        except ImportError:
            raise MissingExtra("pyarrow", "parquet") from None
        from ccpipe.formats.gridengine.columns import from_records

        self.rows = from_records
        opens = csv.CSVWriter if to == "csv" else parquet.ParquetWriter
        self.writer = opens(target, from_records([]).schema)

    def write(self, records: Sequence[Accounting]) -> None:
        if records:
            self.writer.write_table(self.rows(records))

    def close(self) -> None:
        self.writer.close()


class _Jobs:
    """Writes the jobs that ended within a block as events, metrics or an envelope."""

    def __init__(self, target: IO[bytes], encode: Callable[[Sequence[JobRuns]], bytes]) -> None:
        self.target = target
        self.encode = encode
        self.assembler = Assembler()

    def write(self, records: Sequence[Accounting]) -> None:
        self.put(list(self.assembler.feed(job_of(each, "") for each in records)))

    def close(self) -> None:
        self.put(list(self.assembler.flush()))

    def put(self, jobs: Sequence[JobRuns]) -> None:
        if jobs:
            self.target.write(self.encode(jobs))


_SONAR_STATES = {
    "completed": "COMPLETED",
    "failed": "FAILED",
    "timeout": "TIMEOUT",
    "cancelled": "CANCELLED",
    "preempted": "PENDING",
    "node_fail": "FAILED",
}

_KIB = 1024


def jobs_to_sonar(jobs: Iterable[JobRuns], mapping: Mapping, *, time: int) -> sonar.JobsEnvelope:
    """Return an envelope of jobs that ended, made at `time`, in nanoseconds since the epoch.

    A job is one record without a step, and one for each PE task with the task's id as the step.
    """
    attributes = sonar.JobsAttributes(
        time=sonar.timestamp.write(time),
        cluster=mapping.cluster,
        slurm_jobs=tuple(
            slurm_job(mapping.apply(each, nodes))
            for job in jobs
            for each, nodes in ((job.last, job.nodes), *((task, None) for task in job.tasks))
        ),
    )
    meta = sonar.MetadataObject(producer="ccpipe", version=__version__)
    return sonar.JobsEnvelope(meta=meta, data=sonar.JobsData(attributes=attributes))


def slurm_job(job: Job) -> sonar.SlurmJob:
    memory = job.memory // _KIB
    whole = memory * max(len(job.nodes), 1)
    amounts = {"cpu": job.hwthreads, "mem": whole, "gres/gpu": job.accelerators}
    resources = ",".join(
        f"{name}={amount}{'K' if name == 'mem' else ''}"
        for name, amount in amounts.items()
        if amount > 0
    )
    is_pending = job.runs_again and not job.start
    return sonar.SlurmJob(
        job_id=job.id,
        job_step=job.step,
        job_name=job.name,
        job_state="PENDING" if is_pending else _SONAR_STATES[job.state],
        array_job_id=job.array_id,
        array_task_id=job.array_task or 0,
        user_name=job.user,
        account=job.project or job.metadata.get("account", ""),
        submit_time=_time(job.submit),
        time_limit=sonar.ExtendedUint(math.ceil(job.walltime / 60))
        if job.walltime
        else sonar.UNSET,
        partition=job.partition,
        reservation=job.metadata.get("arid", ""),
        nodes=tuple(node.hostname for node in job.nodes),
        requested_cpus=max(job.hwthreads, 0),
        requested_memory_per_node=memory,
        requested_node_count=len(job.nodes),
        start_time=_time(job.start),
        end_time=_time(job.end),
        exit_code=max(job.exit_code or 0, 0),
        sacct=_sacct(job.usage or JobUsage(), resources),
        requested_resources=resources,
        allocated_resources=resources,
    )


def _sacct(usage: JobUsage, resources: str) -> sonar.SacctData:
    return sonar.SacctData(
        AllocTRES=resources,
        AveCPU=_whole(usage.cpu),
        MinCPU=_whole(usage.cpu),
        ElapsedRaw=_whole(usage.wallclock),
        SystemCPU=_whole(usage.system),
        UserCPU=_whole(usage.user),
        MaxRSS=_whole((usage.max_rss or 0) / _KIB),
        MaxVMSize=_whole((usage.max_vmem or 0) / _KIB),
    )


def _whole(amount: float | None) -> int:
    """Round; 0, which Sonar omits, if the value is unknown or exceeds 64 bits."""
    whole = round(amount or 0)
    return whole if 0 <= whole < 2**63 else 0


def _time(time: int) -> str:
    return sonar.timestamp.write(time) if time else ""
