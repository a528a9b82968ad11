"""Running a pipe, for ``publish``, ``bridge`` and others, and where its dead letters go."""

import contextlib
import gc
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ccpipe.bus.nats.announcement import running
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.errors import ForbiddenError
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Site, state_directory
from ccpipe.pipeline import DeadLetter, DeadLetterSink, Limits, Sink, Source, Stages, run
from ccpipe.pipeline.stages import AnyTranslator
from ccpipe.process.signals import StopEvent, stop_signals
from ccpipe.sinks.dead_letter_file import DeadLetterFile
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

GARBAGE_THRESHOLDS = 100_000, 50, 50


@contextlib.contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Make garbage collection rare, and exclude objects that exist at startup.

    A pipe's batches consist of many objects without cycles, freed by reference counting. With
    Python's defaults every few hundred messages would trigger a scan of all of them and of all
    imported modules.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@dataclass(frozen=True, kw_only=True)
class Pipe:
    """A pipe of a command: the arguments of ``pipeline.run()``, and how it is reported."""

    source: Source[Any]
    sink: Sink[Any]
    name: str
    telemetry: Telemetry
    listen: str = ""
    """Address of ``/metrics`` and its neighbours; empty for none."""
    translators: Sequence[AnyTranslator] | Stages = ()
    dead_letter_sink: DeadLetterSink | None = None
    limits: Limits | None = None
    done: str = "written"
    """The log's word for what happens to records."""

    async def run(self, stop: StopEvent) -> None:
        """Carry everything until the source ends or `stop` is set; log the totals."""
        try:
            await run(
                self.source,
                self.sink,
                translators=self.translators,
                dead_letter_sink=self.dead_letter_sink,
                limits=self.limits,
                telemetry=self.telemetry,
                stop=stop,
                opened=stop.restart_timer,
            )
        finally:
            self._log_totals()

    def _log_totals(self) -> None:
        telemetry, letters = self.telemetry, self.dead_letter_sink
        log.info(
            "%s: %d records read, %d %s, %d %s",
            self.name,
            telemetry.total(telemetry.read),
            telemetry.total(telemetry.written),
            self.done,
            telemetry.total(telemetry.dead),
            "dead letters" if letters is None or letters.keeps else "left out",
        )


async def run_pipe(pipe: Pipe, *, seconds: float | None = None) -> None:
    """Run a pipe until its source ends, a signal arrives or `seconds` are over.

    The seconds count from when all parts are open, which may take as long before.
    """
    with contextlib.ExitStack() as stack:
        if pipe.listen:
            stack.callback(pipe.telemetry.serve(pipe.listen).close)
        async with stop_signals(seconds) as stop:
            with rare_garbage_collection():
                await pipe.run(stop)


def dead_letter_sink(
    source: Source[Any], sink: Sink[Any], site: Site, telemetry: Telemetry
) -> DeadLetterSink:
    """Choose the destination of dead letters: ``<cluster>.dead`` if there is a broker, else a file.

    A source may have its own destination; otherwise they use the connection of the sink, or, if it
    has none, a new one to the configured broker or to a running ``ccpipe up``.
    """
    path = state_directory() / "dead.lp"
    if own := source.dead_letter_sink:
        return _OrFile(own, path)
    if isinstance(sink, NatsSink):
        return _OrFile(NatsDeadLetterSink(sink.bus, site), path)
    if site.bus.servers or running():
        return _OrFile(ConnectedDeadLetterSink(site, telemetry), path)
    log.info("no broker is configured ([bus] servers): dead letters go to %s", path)
    return DeadLetterFile(path)


class _OrFile(DeadLetterSink):
    """Dead letters on the bus; in a file if the server does not permit publishing them."""

    def __init__(self, first: DeadLetterSink, path: Path) -> None:
        self.first = first
        self.file = DeadLetterFile(path)

    async def __aenter__(self) -> Self:
        await self.first.__aenter__()
        return self

    async def __aexit__(self, *exit_: object) -> None:
        await self.first.__aexit__(*exit_)

    async def write(self, letters: Sequence[DeadLetter]) -> None:
        try:
            await self.first.write(letters)
        except ForbiddenError as error:
            log.warning("%s; dead letters go to %s", error, self.file.path)
            await self.file.write(letters)


class Discarded(DeadLetterSink):
    """Bad lines and records that are not kept, which ``run()`` only logs."""

    keeps = False

    async def write(self, letters: Sequence[DeadLetter]) -> None:
        """Do nothing."""


class ConnectedDeadLetterSink(NatsDeadLetterSink):
    """Dead letters on ``<cluster>.dead``, over a separate connection."""

    def __init__(self, site: Site, telemetry: Telemetry) -> None:
        bus = Connection(site.bus, name="dead letters", telemetry=telemetry)
        super().__init__(bus, site)

    async def __aenter__(self) -> Self:
        """Connect; in the background if no server answers yet."""
        await self.bus.connect_in_background()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.bus.__aexit__(None, None, None)

    async def write(self, letters: Sequence[DeadLetter]) -> None:
        """Publish dead letters; raises UnavailableError while disconnected."""
        self.bus.require_connected()
        await super().write(letters)
