"""One thread that polls several things, each at its own interval."""

import logging
import threading
from collections.abc import Callable
from time import monotonic

log = logging.getLogger(__name__)

FIRST_POLL = 1.0  # seconds after the start, or the interval if that is shorter


class PollTimer:
    """Calls functions from one thread. Suspended time does not count, as in Slurm.

    A function that raises is logged, and called again at its next time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._condition = threading.Condition()
        self._polls: list[_Poll] = []
        self._thread: threading.Thread | None = None
        self._suspended = self._stopped = False
        self._last = 0.0

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def add(self, interval: float, poll: Callable[[], object]) -> None:
        """Call `poll` every `interval` seconds; 0 disables it."""
        if interval > 0:
            with self._condition:
                self._polls.append(_Poll(interval, poll))
                self._condition.notify()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for a poll that is under way."""
        with self._condition:
            self._stopped = True
            self._condition.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None

    def suspend(self) -> None:
        with self._condition:
            self._suspended = True
            self._condition.notify()

    def resume(self) -> None:
        """Go on as if no time had passed."""
        with self._condition:
            self._suspended = False
            self._condition.notify()

    def _run(self) -> None:
        self._last = monotonic()
        while not self._stopped:
            for poll in self._wait():
                poll.run()

    def _wait(self) -> "list[_Poll]":
        """Wait until something changes or is due; return what is due."""
        with self._condition:
            if self._is_idle():
                if not self._stopped:
                    self._condition.wait()
                self._last = monotonic()
                return []
            self._condition.wait(max(0.0, min(poll.remaining for poll in self._polls)))
            passed, self._last = monotonic() - self._last, monotonic()
            for poll in self._polls:
                poll.remaining -= passed
            return [] if self._is_idle() else [p for p in self._polls if p.remaining <= 0]

    def _is_idle(self) -> bool:
        return self._stopped or self._suspended or not self._polls


class _Poll:
    def __init__(self, interval: float, call: Callable[[], object]) -> None:
        self._interval, self._call = interval, call
        self.remaining = min(FIRST_POLL, interval)

    def run(self) -> None:
        self.remaining += self._interval
        if self.remaining <= 0:  # took longer than the interval: skip missed calls
            self.remaining = self._interval
        try:
            self._call()
        except Exception:
            log.exception("poll failed")
