"""Running a pipe, for ``publish`` and ``bridge``."""

import logging
from collections.abc import Sequence

from ccpipe.pipeline import DeadLetterSink, Limits, Sink, Source, Stages, run
from ccpipe.pipeline.signals import stop_signals
from ccpipe.pipeline.stages import AnyTranslator
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)


async def run_pipe(
    source: Source,
    sink: Sink,
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
