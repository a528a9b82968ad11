"""``ccpipe send``: lines from files or standard input onto the bus."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ccpipe.bus.codecs import Packing
from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.errors import ForbiddenError
from ccpipe.bus.nats.publisher import NoStreamError
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.console.options import Lenient, Rate, SiteOptions, refuse_options
from ccpipe.cli.recipe.pipe import Discarded, Pipe, run_pipe
from ccpipe.errors import DataError, DeniedError, MissingInputError, UsageError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.pipeline import DeadLetterSink, Limits, Sink
from ccpipe.records import Records
from ccpipe.sinks.dead_letter_file import DeadLetterFile
from ccpipe.sources.file import FileSource
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import Progress, data_for_stdout, plural

ONE_LINE = Packing(1, 2**20, 2**20)
"""Limits of a payload that is printed."""


async def send(
    *files: Annotated[str, Parameter(allow_leading_hyphen=True)],
    precision: Literal["auto", "s", "ms", "us", "ns"] = "auto",
    lenient: Lenient = False,
    rate: Rate = 0,
    rejected: Path | None = None,
    dry_run: bool = False,
    where: SiteOptions = SiteOptions(),
) -> None:
    """Publish lines from files or standard input.

    Each line is published on the subject of its kind, as if by a node. Invalid
    lines are reported and left out; the exit code is then 65. With JetStream the
    command ends when the broker has stored everything, and messages sent twice
    within two minutes are deduplicated. Lines on subjects that the server forbids
    are left out as well; the exit code is then 77.

    Examples:
      ccpipe send corrected.lp
      ccpipe convert --to line old.json.gz | ccpipe send --rate 5000
      ccpipe send day.lp.zst --rejected bad.lp --server nats://10.0.0.1:4222

    Parameters
    ----------
    files
        Files of line protocol (.gz, .bz2, .xz and .zst are decompressed); none or - for standard
        input.
    precision
        Unit of the timestamps; auto infers it from their magnitude.
    rejected
        Dead-letter file for lines left out, readable by `ccpipe dead-letters`.
    dry_run
        Print each line after its subject; connect to nothing.
    """
    _check(files, rate)
    site, telemetry = where.site(), Telemetry()
    source = FileSource(
        paths=list(files) or ["-"], format="line", lenient=lenient, rate=rate, precision=precision
    )
    codec = LineCodec(precision=precision)
    sending = _Sending(site=site, telemetry=telemetry, codec=codec)
    async with contextlib.AsyncExitStack() as stack:
        letters: DeadLetterSink = Discarded()
        sink: Sink[Any] = _Printing(codec, Subjects.of(site))
        if not dry_run:
            bus = Connection(site.bus, name="send", telemetry=telemetry, forever=False)
            sink = sending.using(await stack.enter_async_context(bus))
            letters = DeadLetterFile(rejected) if rejected else letters
        pipe = Pipe(
            source=source,
            sink=sink,
            name="send",
            telemetry=telemetry,
            dead_letter_sink=letters,
            limits=Limits(max_wait=0.1),
            done="printed" if dry_run else "sent",
        )
        await run_pipe(pipe)
    dead = plural(telemetry.total(telemetry.dead), "line")
    if sending.forbidden:
        sent = plural(telemetry.total(telemetry.written), "line")
        raise DeniedError(f"{sent} sent, {dead} left out: {ForbiddenError(sending.forbidden)}")
    if telemetry.total(telemetry.dead):
        raise DataError(f"{dead} left out, reported above")


def _check(files: Sequence[str], rate: int) -> None:
    refuse_options(files)
    for file in files:
        if file != "-" and not Path(file).is_file():
            reason = "not a file" if Path(file).exists() else "no such file"
            raise MissingInputError(f"{file}: {reason}")
    if rate < 0:
        raise UsageError("--rate must be at least 0")


class _Printing(Sink[Lines]):
    """Prints lines with their subjects."""

    takes = Lines

    def __init__(self, codec: LineCodec, subjects: Subjects) -> None:
        self.codec = codec
        self.subjects = subjects

    async def write(self, records: Lines) -> None:
        for subject, payload in self.codec.encode(records, self.subjects, ONE_LINE):
            sys.stdout.buffer.write(data_for_stdout(subject.encode() + b" " + payload))
        sys.stdout.buffer.flush()


class _Sending(NatsSink):
    """Publishes lines and shows how many."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._sent = 0
        self.forbidden: set[str] = set()
        self._progress = Progress()

    async def write(self, records: Records) -> None:
        try:
            await super().write(records)
        except ForbiddenError as error:
            self.forbidden |= error.subjects
            raise
        except NoStreamError as error:
            raise DeniedError(f"{error}; {plural(self._sent, 'line')} sent before") from None
        self._sent += len(records)
        self._progress.show(f"{plural(self._sent, 'line')} sent")

    async def __aexit__(self, *exit_: object) -> None:
        self._progress.clear()
        await super().__aexit__(*exit_)
