"""What ``publish`` and ``bridge`` share: running a pipe until it ends or is told to."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Sequence

from ccpipe.pipeline import Cemetery, Limits, Sink, Source, Translator, run
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def stop_signals(after: float | None = None) -> AsyncIterator[asyncio.Event]:
    """Yield an event that SIGTERM, SIGINT or `after` seconds set; a second SIGINT kills."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def asked(number: int) -> None:
        if stop.is_set() and number == signal.SIGINT:
            loop.remove_signal_handler(number)
            signal.raise_signal(number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked, number)
    timer = loop.call_later(after, stop.set) if after is not None else None
    try:
        yield stop
    finally:
        if timer is not None:
            timer.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def run_pipe(
    source: Source,
    sink: Sink,
    *,
    name: str,
    telemetry: Telemetry,
    listen: str = "",
    translators: Sequence[Translator] = (),
    cemetery: Cemetery | None = None,
    limits: Limits | None = None,
    seconds: float | None = None,
) -> None:
    """Run a pipe until its source ends, a signal comes or `seconds` are over; say what it did."""
    server = telemetry.serve(listen) if listen else None
    try:
        async with stop_signals(seconds) as stop:
            await run(
                source,
                sink,
                translators=translators,
                cemetery=cemetery,
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
