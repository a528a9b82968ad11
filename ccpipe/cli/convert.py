"""``ccpipe convert``: files from one format to another."""

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Annotated, Literal

from cyclopts import Parameter

from ccpipe.cli.blocks import Block, Stream, open_stream, read_blocks
from ccpipe.cli.output import Format, encoder, note, open_stdout, plural, printable
from ccpipe.errors import DataError, EncodeError, UnavailableError, UsageError
from ccpipe.formats.lineprotocol import Dialect, Lines, decode
from ccpipe.pipeline import Records

STDIN = Path("-")
PATIENCE = 2.0
"""Seconds after which a terminal is told how far it has come."""


def convert(
    *files: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    from_: Annotated[Literal["line"], Parameter(name="--from")] = "line",  # noqa: ARG001 - the only one so far
    to: Format,
    precision: Literal["auto", "s", "ms", "us", "ns"] = "auto",
    to_precision: Literal["auto", "s", "ms", "us", "ns"] = "auto",
    dialect: Dialect = "cc",
    lenient: bool = False,
    output: Annotated[Path | None, Parameter(alias="-O")] = None,
) -> None:
    """Convert files from one format to another.

    Reads line protocol in bounded memory, however large the file. Each line that
    cannot be read is told on stderr with file, line, column and reason; the
    others are converted all the same, and the exit code is then 65.

    Examples:
      ccpipe convert --to json metrics.line | jq .name
      ccpipe tail -o line --for 30s | ccpipe convert --to csv -O node.csv
      ccpipe convert --to line --to-precision s old.line.gz -O seconds.line

    Parameters
    ----------
    files
        Files to read, .gz ones unpacked; without any, or for -, standard input.
    from_
        Format of the files.
    to
        Format to write.
    precision
        Unit of the timestamps read; auto reads it off each one's magnitude.
    to_precision
        Unit of the timestamps in line protocol; auto takes the coarsest that loses nothing.
    dialect
        Whose line protocol is read: ClusterCockpit's or InfluxDB's own.
    lenient
        Accept what the specification's examples and real programs write against the grammar.
    output
        File to write instead of standard output.
    """
    files = files or (STDIN,)
    read = functools.partial(decode, precision=precision, dialect=dialect, lenient=lenient)
    with contextlib.ExitStack() as stack:
        streams = [(path, stack.enter_context(open_stream(path))) for path in files]
        target = stack.enter_context(_open_target(output, files))
        head, encode = encoder(to, to_precision)
        target.write(head)
        conversion = _Conversion(encode, target)
        for path, stream in streams:
            conversion.run("stdin" if path == STDIN else str(path), stream, read)
    conversion.finish()


@contextlib.contextmanager
def _open_target(path: Path | None, files: tuple[Path, ...]) -> Iterator[IO[bytes]]:
    if path and any(path.exists() and file.exists() and path.samefile(file) for file in files):
        raise UsageError(f"{path} is read from: it cannot be written to as well")
    try:
        with path.open("wb") if path else open_stdout() as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnavailableError(f"{path or 'standard output'}: {error.strerror}") from None


class _Conversion:
    """The way of all files into one output, with its counts."""

    def __init__(self, encode: Callable[[Records], bytes], target: IO[bytes]) -> None:
        self.encode = encode
        self.target = target
        self.good = self.bad = self.size = 0
        self.progress = _Progress()

    def run(self, name: str, stream: Stream, read: Callable[[bytes], Lines]) -> None:
        try:
            for block in read_blocks(stream, read):
                self.take(name, block)
        except DataError as error:
            self.complain(f"{name}: {error}")
        self.progress.clear()

    def take(self, name: str, block: Block) -> None:
        for bad in block.lines.rejected:
            self.complain(f"{name}:{bad.line}: column {bad.column}: {bad.rule}: {bad.excerpt}")
        self.target.write(self.encoded(name, block))
        self.target.flush()
        self.good += len(block.lines)
        self.size += len(block.lines.payload)
        self.progress.show(f"{name}: {self.size / 2**20:.1f} MiB, {plural(self.good, 'value')}")

    def encoded(self, name: str, block: Block) -> bytes:
        """Encode a block; a row that the format cannot carry costs that row."""
        try:
            return self.encode(block.lines)
        except EncodeError:
            pieces = []
        for line, message in block.numbered():
            try:
                pieces.append(self.encode([message]))
            except EncodeError as error:
                self.good -= 1
                self.complain(f"{name}:{line}: {printable(str(error))}")
        return b"".join(pieces)

    def complain(self, text: str) -> None:
        self.progress.clear()
        note(text, "red")
        self.bad += 1

    def finish(self) -> None:
        """Give the counts, where not all was good; raises DataError."""
        if self.bad:
            counts = f"{plural(self.good, 'value')} converted all the same"
            raise DataError(f"{plural(self.bad, 'problem')}, told above; {counts}")


class _Progress:
    """One line on a terminal's stderr, rewritten, once there was some time to wait."""

    def __init__(self) -> None:
        self.next = time.monotonic() + PATIENCE
        self.shown = False

    def show(self, text: str) -> None:
        if sys.stderr.isatty() and time.monotonic() >= self.next:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            self.next = time.monotonic() + PATIENCE / 4
            self.shown = True

    def clear(self) -> None:
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self.shown = False
