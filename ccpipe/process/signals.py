"""SIGTERM and SIGINT as an event that ends a pipe."""

import asyncio
import contextlib
import math
import os
import signal
from collections.abc import AsyncIterator

from ccpipe.process.background import failing

SAME_SECONDS = 0.5  # two SIGINT within this time count as one Ctrl-C


@contextlib.asynccontextmanager
async def stop_signals(after: float | None = None) -> AsyncIterator[asyncio.Event]:
    """Yield an event that SIGTERM, SIGINT or `after` seconds set; a second SIGINT kills.

    A terminal sends SIGINT to all its foreground processes, and our parent may forward it as well:
    signals that arrive together count as one. A background task that fails sets it as well, and
    its error is raised at the end.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    interrupted = -math.inf

    def on_signal(number: int) -> None:
        nonlocal interrupted
        if number == signal.SIGINT:
            if stop.is_set() and loop.time() - interrupted > SAME_SECONDS:
                loop.remove_signal_handler(number)
                signal.raise_signal(number)
            interrupted = loop.time() if math.isinf(interrupted) else interrupted
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    timer = loop.call_later(after, stop.set) if after is not None else None
    try:
        with failing(stop.set):
            yield stop
    finally:
        if timer is not None:
            timer.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def has_terminal() -> bool:
    """Whether this process has a controlling terminal that is still open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY))
    except OSError:
        return False
    return True
