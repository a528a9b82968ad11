"""Running a pipe, for ``publish`` and ``bridge``."""

import contextlib
import gc
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from ccpipe.pipeline import DeadLetterSink, Limits, Sink, Source, Stages, run
from ccpipe.pipeline.stages import AnyTranslator
from ccpipe.process.signals import stop_signals
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

GARBAGE_THRESHOLDS = 100_000, 50, 50
"""See ``gc.set_threshold``."""


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


async def run_pipe(
    source: Source[Any],
    sink: Sink[Any],
    *,
    name: str,
    telemetry: Telemetry,
    listen: str = "",
    translators: Sequence[AnyTranslator] | Stages = (),
    dead_letter_sink: DeadLetterSink | None = None,
    limits: Limits | None = None,
    seconds: float | None = None,
) -> None:
    """Run a pipe until its source ends, a signal arrives or `seconds` are over; log the totals."""
    server = telemetry.serve(listen) if listen else None
    try:
        async with stop_signals(seconds) as stop:
            with rare_garbage_collection():
                await run(
                    source,
                    sink,
                    translators=translators,
                    dead_letter_sink=dead_letter_sink,
                    limits=limits,
                    telemetry=telemetry,
                    stop=stop,
                )
    finally:
        if server is not None:
            server.close()
        log.info(
            "%s: %d records read, %d written, %d dead letters",
            name,
            telemetry.total(telemetry.read),
            telemetry.total(telemetry.written),
            telemetry.total(telemetry.dead),
        )
