"""Sonar's formats in ``ccpipe convert`` and ``validate``."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from ccpipe.config import Duration
from ccpipe.errors import EncodeError
from ccpipe.formats.files import ReadableStream, read_blocks, read_piece, report_rejected
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.sonar import Decoder, Envelope, Envelopes, ReadProfile, WriteProfile, encode
from ccpipe.formats.sonar.older_csv import CsvDecoder, is_csv
from ccpipe.message import Message
from ccpipe.terminal import printable
from ccpipe.translate.sonar.cc_to_sonar import CcToSonar
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc

Report = Callable[[str], None]
"""Reports a problem, with its position in the file."""


_HEAD = 64
"""Bytes that are enough to distinguish CSV from JSON."""


def read_envelopes(
    stream: ReadableStream, *, profile: ReadProfile = "auto", strict: bool = False
) -> Iterator[Envelopes]:
    """Decode a stream of JSON or CSV block by block; raises DataError on a read error."""
    head = b""
    while len(head) < _HEAD and (piece := read_piece(stream)):
        head += piece
    kind = CsvDecoder if is_csv(head) else Decoder
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


def _write(
    envelopes: Iterable[Envelope], profile: WriteProfile, problem: Report
) -> Iterator[tuple[bytes, int]]:
    for envelope in envelopes:
        try:
            yield encode(envelope, profile=profile), 1
        except EncodeError as error:
            problem(f": {printable(str(error))}")


def _report_refused(records: Lines | Envelopes, problem: Report) -> None:
    for bad in records.rejected:
        problem(f": {printable(bad.reason)}")


class Rewrite:
    """Sonar's JSON to Sonar's JSON in another profile."""

    head = b""
    unit = "envelope"

    def __init__(self, profile: ReadProfile, to: WriteProfile) -> None:
        self.profile = profile
        self.to = to

    def convert(self, stream: ReadableStream, problem: Report) -> Iterator[tuple[bytes, int]]:
        for envelopes in _read(stream, self.profile, problem):
            yield from _write(envelopes, self.to, problem)

    def finish(self, problem: Report) -> Iterator[tuple[bytes, int]]:  # noqa: ARG002 - see Converter
        return iter(())


class FromSonar:
    """Sonar's JSON to messages."""

    unit = "value"

    def __init__(
        self,
        profile: ReadProfile,
        target: tuple[bytes, Callable[[Sequence[Message]], bytes]],
        *,
        envelopes: bool,
    ) -> None:
        self.profile = profile
        self.head, self.encode = target
        self.translator = SonarToCc(envelopes=envelopes, stop_delay=Duration(0))

    def convert(self, stream: ReadableStream, problem: Report) -> Iterator[tuple[bytes, int]]:
        for envelopes in _read(stream, self.profile, problem):
            lines = self.translator.feed(envelopes)
            _report_refused(lines, problem)
            yield self.encode(lines), len(lines)

    def finish(self, problem: Report) -> Iterator[tuple[bytes, int]]:  # noqa: ARG002 - see Converter
        return iter(())


class ToSonar:
    """Line protocol to Sonar's JSON."""

    head = b""
    unit = "envelope"

    def __init__(self, read: Callable[[bytes], Lines], profile: WriteProfile) -> None:
        self.read = read
        self.profile = profile
        self.translator = CcToSonar()
        self.translator.clock = lambda: 0.0  # windows close by the data's times alone

    def convert(self, stream: ReadableStream, problem: Report) -> Iterator[tuple[bytes, int]]:
        for block in read_blocks(stream, self.read):
            report_rejected(block, problem)
            envelopes = self.translator.feed(block.lines)
            _report_refused(envelopes, problem)
            yield from _write(envelopes, self.profile, problem)

    def finish(self, problem: Report) -> Iterator[tuple[bytes, int]]:
        return _write(self.translator.flush(), self.profile, problem)
