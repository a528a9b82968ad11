"""``ccpipe convert``: files from one format to another."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, Literal, cast, get_args

from cyclopts import Parameter

from ccpipe.cli.console.options import On, refuse_options
from ccpipe.cli.console.output import Format, encoder
from ccpipe.cli.convert.converters import (
    Converter,
    FromGridEngine,
    FromSacct,
    FromSonar,
    Pieces,
    Rewrite,
    RowConverter,
    ToSonar,
)
from ccpipe.errors import CreateError, DataError, UsageError
from ccpipe.formats import sonar
from ccpipe.formats.files import ReadableStream, open_stream
from ccpipe.formats.lineprotocol import Dialect, decode
from ccpipe.terminal import Progress, note, open_stdout, plural

STDIN = Path("-")


def convert(
    *files: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    from_: Annotated[
        Literal["line", "sonar", "gridengine", "sacct"], Parameter(name="--from")
    ] = "line",
    to: Format | Literal["sonar", "events", "metrics", "classic", "parquet"],
    precision: Literal["auto", "s", "ms", "us", "ns"] = "auto",
    to_precision: Literal["auto", "s", "ms", "us", "ns"] = "auto",
    dialect: Dialect = "cc",
    lenient: bool = False,
    sonar_profile: sonar.ReadProfile = "auto",
    to_sonar_profile: sonar.WriteProfile = "spec",
    envelopes: On = True,
    cluster: str = "local",
    command_line: bool = False,
    out: Path | None = None,
) -> None:
    """Convert files from one format to another.

    Reads line protocol, Sonar JSON, and Grid Engine or Slurm accounting, with
    bounded memory for files of any size. Invalid input is reported on stderr with
    file, line and reason; the rest is converted, and the exit code is then 65.

    Examples:
      ccpipe convert --to json metrics.line | jq .name
      ccpipe convert --to line --to-precision s old.line.gz --out seconds.line
      ccpipe convert --from sonar --to line 0+sample-c1.json

    Parameters
    ----------
    files
        Files to read (.gz, .bz2, .xz and .zst are decompressed); none or - for standard input.
    from_
        Format of the files.
    to
        Format to write; events, metrics, classic and parquet are for Grid Engine only.
    precision
        Unit of the timestamps read; auto infers it from their magnitude.
    to_precision
        Unit of the timestamps in line protocol; auto uses the coarsest lossless unit.
    dialect
        Line protocol dialect to read: ClusterCockpit's or InfluxDB's.
    lenient
        Accept known deviations from the grammar (the specification's examples, real programs).
    sonar_profile
        Encoding of Sonar JSON: as specified, as Sonar writes it, or detected from the producer.
    to_sonar_profile
        Consumer for which Sonar JSON is written.
    envelopes
        Include the complete JSON in lines converted from Sonar JSON, so that nothing is lost.
    cluster
        Cluster name for accounting data.
    command_line
        Keep the job's command line in accounting data; it may contain secrets.
    out
        File to write instead of standard output.
    """
    refuse_options(files)
    files = files or (STDIN,)
    read = functools.partial(decode, precision=precision, dialect=dialect, lenient=lenient)
    with contextlib.ExitStack() as stack:
        streams = [(path, stack.enter_context(open_stream(path))) for path in files]
        conversion = _Conversion(stack.enter_context(_open_target(out, files)))
        converter: Converter
        if from_ == "gridengine":
            converter = FromGridEngine(to, cluster=cluster, command_line=command_line)
        elif from_ == "sacct":
            target = None if to == "sonar" else encoder(_of_lines(to), to_precision)
            converter = FromSacct(cluster, to_sonar_profile, target)
        elif from_ == to == "sonar":
            converter = Rewrite(sonar_profile, to_sonar_profile)
        elif to == "sonar":
            converter = ToSonar(read, to_sonar_profile)
        elif from_ == "sonar":
            target = encoder(_of_lines(to), to_precision)
            converter = FromSonar(sonar_profile, target, envelopes=envelopes)
        else:
            converter = RowConverter(read, encoder(_of_lines(to), to_precision))
        conversion.run(converter, [("stdin" if p == STDIN else str(p), s) for p, s in streams])
    conversion.finish()


def _of_lines(to: str) -> Format:
    for known in get_args(Format):
        if to == known:
            return cast("Format", known)
    raise UsageError(f"--to {to} is for --from gridengine only")


@contextlib.contextmanager
def _open_target(path: Path | None, files: tuple[Path, ...]) -> Iterator[IO[bytes]]:
    if path and any(path.exists() and file.exists() and path.samefile(file) for file in files):
        raise UsageError(f"{path} is an input file: it cannot also be the output")
    try:
        with path.open("wb") if path else open_stdout() as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CreateError(f"{path or 'standard output'}: {error.strerror}") from None


class _Conversion:
    """Converts all files into one output and counts units."""

    def __init__(self, target: IO[bytes]) -> None:
        self.target = target
        self.good = self.bad = 0
        self.unit = ""
        self.progress = Progress()

    def run(self, converter: Converter, files: Sequence[tuple[str, ReadableStream]]) -> None:
        self.unit = converter.unit
        self.target.write(converter.head)
        for name, stream in files:
            try:
                self.write(name, converter.convert(stream, functools.partial(self.report, name)))
            except DataError as error:
                self.report(name, f": {error}")
        self.write("", converter.finish(functools.partial(self.report, files[-1][0])))

    def write(self, name: str, pieces: Pieces) -> None:
        for piece, count in pieces:
            self.target.write(piece)
            self.target.flush()
            self.good += count
            self.progress.show(f"{name}: {plural(self.good, self.unit)}")
        self.progress.clear()

    def report(self, name: str, text: str) -> None:
        self.progress.clear()
        note(f"{name}{text}", "red")
        self.bad += 1

    def finish(self) -> None:
        if self.bad:
            counts = f"{plural(self.good, self.unit)} converted"
            raise DataError(f"{plural(self.bad, 'problem')}, reported above; {counts}")
