"""The output formats of ``ccpipe convert --from gridengine``."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import IO, Literal, Protocol

import msgspec

from ccpipe.errors import EncodeError, MissingExtra
from ccpipe.formats.gridengine import (
    HEADER,
    Accounting,
    RejectedAccountingLine,
    encode_classic,
    encode_jsonl,
)
from ccpipe.formats.lineprotocol import encode as encode_lines
from ccpipe.formats.sonar import encode
from ccpipe.jobs import is_complete
from ccpipe.jobs import message as job_message
from ccpipe.message import Message
from ccpipe.translate.gridengine.assembler import Assembler, JobRuns
from ccpipe.translate.gridengine.jobs import Mapping, job_of
from ccpipe.translate.gridengine.to_sonar import jobs_to_sonar
from ccpipe.translate.gridengine.translator import metrics

FORMATS = ("classic", "json", "csv", "parquet", "line", "metrics", "events", "sonar")
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

    The command line, which may hold secrets, is written only if `command_line` is set.
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
    """Write a record as valid JSON: what is not UTF-8 becomes U+FFFD, as in all but `classic`."""
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
    return encode(jobs_to_sonar(jobs, mapping, time=time)).rstrip() + b"\n"


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
    """What is made of the jobs that ended within a block: events, metrics, an envelope."""

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
