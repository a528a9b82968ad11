"""SIGTERM and SIGINT as an event that ends a pipe."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator


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
