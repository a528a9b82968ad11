"""``ccpipe send``: lines from files or standard input onto the bus."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.errors import ForbiddenError
from ccpipe.bus.nats.publisher import NoStreamError
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.cli.console.options import Lenient, Rate, SiteOptions
from ccpipe.cli.recipe.pipe import Discarded, run_pipe
from ccpipe.errors import DataError, DeniedError, MissingInputError, UsageError
from ccpipe.pipeline import DeadLetterSink, Limits
from ccpipe.records import Records
from ccpipe.sinks.dead_letter_file import DeadLetterFile
from ccpipe.sources.file import FileSource
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import Progress, plural


async def send(
    *files: Annotated[str, Parameter(allow_leading_hyphen=True)],
    precision: Literal["auto", "s", "ms", "us", "ns"] = "auto",
    lenient: Lenient = False,
    rate: Rate = 0,
    rejected: Path | None = None,
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
        Dead-letter file for lines left out, readable by `ccpipe dead`.
    """
    _check(files, rate)
    site, telemetry = where.site(), Telemetry()
    source = FileSource(
        paths=list(files) or ["-"], format="line", lenient=lenient, rate=rate, precision=precision
    )
    letters: DeadLetterSink = DeadLetterFile(rejected) if rejected else Discarded()
    async with Connection(site.bus, name="send", telemetry=telemetry, forever=False) as bus:
        sink = _Sending(site=site, telemetry=telemetry, codec=LineCodec(precision=precision))
        await run_pipe(
            source,
            sink.using(bus),
            name="send",
            telemetry=telemetry,
            dead_letter_sink=letters,
            limits=Limits(max_wait=0.1),
        )
    dead = plural(telemetry.total(telemetry.dead), "line")
    if sink.forbidden:
        sent = plural(telemetry.total(telemetry.written), "line")
        raise DeniedError(f"{sent} sent, {dead} left out: {ForbiddenError(sink.forbidden)}")
    if telemetry.total(telemetry.dead):
        raise DataError(f"{dead} left out, reported above")


def _check(files: Sequence[str], rate: int) -> None:
    for file in files:
        if file != "-" and not Path(file).is_file():
            reason = "not a file" if Path(file).exists() else "no such file"
            raise MissingInputError(f"{file}: {reason}")
    if rate < 0:
        raise UsageError("--rate must be at least 0")


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
