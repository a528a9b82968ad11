"""The converters of ``ccpipe convert``, and the reader of Sonar's formats."""

import io
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC

from ccpipe.config import Duration, Site
from ccpipe.errors import EncodeError
from ccpipe.formats import sonar
from ccpipe.formats.files import (
    LinesBlock,
    ReadableStream,
    read_blocks,
    read_piece,
    report_rejected,
)
from ccpipe.formats.gridengine import read_stream
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.slurm.records import SacctRow
from ccpipe.formats.slurm.text import read_sacct
from ccpipe.formats.sonar import Envelope, Envelopes, ReadProfile, WriteProfile
from ccpipe.formats.sonar.legacy_csv import CsvDecoder, is_csv
from ccpipe.jobs import Jobs
from ccpipe.message import Message
from ccpipe.terminal import printable
from ccpipe.translate.gridengine.export import Format, open_writer, write_records
from ccpipe.translate.gridengine.jobs import Mapping
from ccpipe.translate.slurm.jobs import job_of_row
from ccpipe.translate.slurm.to_cc import SlurmToCc
from ccpipe.translate.slurm.to_sonar import SlurmToSonar
from ccpipe.translate.sonar.cc_to_sonar import CcToSonar
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc

Report = Callable[[str], None]
"""Reports a problem, with its position in the file."""
Pieces = Iterator[tuple[bytes, int]]
"""Pieces of output, each with its number of units."""
Read = Callable[[bytes], Lines]
Encoder = tuple[bytes, Callable[[Sequence[Message]], bytes]]
"""The header line of a format, and what encodes messages in it."""

ROWS = 1000
_HEAD = 64
"""Bytes that are enough to distinguish CSV from JSON."""


class Converter(ABC):
    """Converts files of one format to another."""

    unit = "value"
    """Noun of the converted units."""
    head = b""
    """Written before all other output."""

    @abstractmethod
    def convert(self, stream: ReadableStream, problem: Report) -> Pieces:
        """Yield output; raises DataError if the rest of the file cannot be read."""

    def finish(self, problem: Report) -> Pieces:  # noqa: ARG002 - some report what they held back
        """Yield output that was held back until all files were read."""
        return iter(())


class RowConverter(Converter):
    """Line protocol to formats with one row per value."""

    def __init__(self, read: Read, target: Encoder) -> None:
        self.read = read
        self.head, self.encode = target

    def convert(self, stream: ReadableStream, problem: Report) -> Pieces:
        for block in read_blocks(stream, self.read):
            report_rejected(block, problem)
            try:
                yield self.encode(block.lines), len(block.lines)
            except EncodeError:
                yield from self._one_by_one(block, problem)

    def _one_by_one(self, block: LinesBlock, problem: Report) -> Pieces:
        for line, message in block.numbered():
            try:
                yield self.encode([message]), 1
            except EncodeError as error:
                problem(f":{line}: {printable(str(error))}")


class FromGridEngine(Converter):
    """Accounting to any format; all files go into one output."""

    unit = "record"

    def __init__(self, to: Format, *, cluster: str, command_line: bool = False) -> None:
        self.is_held = to == "parquet"  # its writer needs the file's positions
        self.command_line = command_line
        self.target = io.BytesIO()
        self.writer = open_writer(to, self.target, Mapping(cluster=cluster))

    def convert(self, stream: ReadableStream, problem: Report) -> Pieces:
        for reading in read_stream(stream):
            left_out = write_records(self.writer, reading.records, command_line=self.command_line)
            for bad in (*reading.rejected, *left_out):
                excerpt = bad.original[:60].decode("utf-8", "replace")
                problem(f":{bad.line}: {printable(f'{bad.reason}: {excerpt}')}")
            yield self._take_output(), len(reading.records) - len(left_out)

    def finish(self, problem: Report) -> Pieces:  # noqa: ARG002 - see Converter
        self.is_held = False
        # Parquet's writer closes what it writes to, and then nothing could be taken from it.
        close, self.target.close = self.target.close, lambda: None  # type: ignore[method-assign]
        self.writer.close()
        yield self._take_output(), 0
        close()

    def _take_output(self) -> bytes:
        if self.is_held:
            return b""
        piece = self.target.getvalue()
        self.target.seek(0)
        self.target.truncate()
        return piece


class FromSacct(Converter):
    """``sacct -P`` or ``--json`` to Sonar's JSON, or to events of jobs.

    Times without a zone are UTC.
    """

    unit = "row"

    def __init__(self, cluster: str, profile: WriteProfile, target: Encoder | None = None) -> None:
        self.cluster = cluster
        self.profile = profile
        self.head = target[0] if target else b""
        self.encode = target[1] if target else None
        site = Site(cluster=cluster)
        self.to_sonar = SlurmToSonar(site=site, batch_size=ROWS)
        self.to_cc = SlurmToCc(site=site, stop_delay=Duration(0))

    def convert(self, stream: ReadableStream, problem: Report) -> Pieces:
        for reading in read_sacct(stream, zone=UTC):
            for bad in reading.rejected:
                problem(f":{bad.line}: {printable(f'{bad.reason}: {bad.excerpt}')}")
            for at in range(0, len(reading.records), ROWS):
                rows = reading.records[at : at + ROWS]
                try:
                    yield self._convert(rows), len(rows)
                except EncodeError as error:
                    problem(f": {printable(str(error))}")

    def _convert(self, rows: Sequence[SacctRow]) -> bytes:
        known = [row.end or row.start or row.submit or 0 for row in rows]
        jobs = Jobs(
            [job_of_row(row, self.cluster) for row in rows], time=max(known) or time.time_ns()
        )
        if self.encode is not None:
            return self.encode(self.to_cc.feed(jobs))
        (envelope,) = self.to_sonar.feed(jobs)
        return sonar.encode(envelope, profile=self.profile)


class Rewrite(Converter):
    """Sonar's JSON to Sonar's JSON in another profile."""

    unit = "envelope"

    def __init__(self, profile: ReadProfile, to: WriteProfile) -> None:
        self.profile = profile
        self.to = to

    def convert(self, stream: ReadableStream, problem: Report) -> Pieces:
        for envelopes in _read(stream, self.profile, problem):
            yield from _write(envelopes, self.to, problem)


class FromSonar(Converter):
    """Sonar's JSON to messages."""

    def __init__(self, profile: ReadProfile, target: Encoder, *, envelopes: bool) -> None:
        self.profile = profile
        self.head, self.encode = target
        self.translator = SonarToCc(envelopes=envelopes, stop_delay=Duration(0))

    def convert(self, stream: ReadableStream, problem: Report) -> Pieces:
        for envelopes in _read(stream, self.profile, problem):
            lines = self.translator.feed(envelopes)
            _report_refused(lines, problem)
            yield self.encode(lines), len(lines)


class ToSonar(Converter):
    """Line protocol to Sonar's JSON."""

    unit = "envelope"

    def __init__(self, read: Read, profile: WriteProfile) -> None:
        self.read = read
        self.profile = profile
        self.translator = CcToSonar()
        self.translator.clock = lambda: 0.0  # windows close by the data's times alone

    def convert(self, stream: ReadableStream, problem: Report) -> Pieces:
        for block in read_blocks(stream, self.read):
            report_rejected(block, problem)
            envelopes = self.translator.feed(block.lines)
            _report_refused(envelopes, problem)
            yield from _write(envelopes, self.profile, problem)

    def finish(self, problem: Report) -> Pieces:
        return _write(self.translator.flush(), self.profile, problem)


def read_envelopes(
    stream: ReadableStream, *, profile: ReadProfile = "auto", strict: bool = False
) -> Iterator[Envelopes]:
    """Decode a stream of JSON or CSV block by block; raises DataError on a read error."""
    head = b""
    while len(head) < _HEAD and (piece := read_piece(stream)):
        head += piece
    kind = CsvDecoder if is_csv(head) else sonar.Decoder
    decoder = kind(profile=profile, strict=strict)
    yield decoder.feed(head)
    while piece := read_piece(stream):
        yield decoder.feed(piece)
    yield decoder.finish()


def _read(stream: ReadableStream, profile: ReadProfile, problem: Report) -> Iterator[Envelopes]:
    for envelopes in read_envelopes(stream, profile=profile):
        for bad in envelopes.rejected:
            for found in bad.problems:
                problem(f":{bad.line}: {printable(str(found))}")
        yield envelopes


def _write(envelopes: Iterable[Envelope], profile: WriteProfile, problem: Report) -> Pieces:
    for envelope in envelopes:
        try:
            yield sonar.encode(envelope, profile=profile), 1
        except EncodeError as error:
            problem(f": {printable(str(error))}")


def _report_refused(records: Lines | Envelopes, problem: Report) -> None:
    for bad in records.rejected:
        problem(f": {printable(bad.reason)}")
