"""SIGTERM and SIGINT as an event that ends a pipe."""

import asyncio
import contextlib
import math
import os
import signal
from collections.abc import AsyncIterator

from ccpipe.process.background import failing

SAME_SECONDS = 0.5  # two SIGINT within this time count as one Ctrl-C


class StopEvent(asyncio.Event):
    """Is set when a process is to end: by a signal, or by its timer."""

    def __init__(self, after: float | None) -> None:
        """Start the timer of `after` seconds; None for no timer."""
        super().__init__()
        self._after = after
        self._timer: asyncio.TimerHandle | None = None
        self._is_requested = False
        self.restart_timer()

    def set(self) -> None:
        self._is_requested = True
        super().set()

    def restart_timer(self) -> None:
        """Start the timer again, also if it has set the event already."""
        self.cancel_timer()
        if self._after is not None and not self._is_requested:
            self.clear()
            self._timer = asyncio.get_running_loop().call_later(self._after, super().set)

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


@contextlib.asynccontextmanager
async def stop_signals(after: float | None = None) -> AsyncIterator[StopEvent]:
    """Yield an event that SIGTERM, SIGINT or `after` seconds set; a second SIGINT kills.

    A terminal sends SIGINT to all its foreground processes, and our parent may forward it as well:
    signals that arrive together count as one. A background task that fails sets it as well, and
    its error is raised at the end.
    """
    stop = StopEvent(after)
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
    try:
        with failing(stop.set):
            yield stop
    finally:
        stop.cancel_timer()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def has_terminal() -> bool:
    """Whether this process has a controlling terminal that is still open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY))
    except OSError:
        return False
    return True
