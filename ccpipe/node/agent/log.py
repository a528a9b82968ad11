"""The publisher's own log as log lines, published like its metrics.

It must neither block the code that logs nor feed itself: a failure to publish a log line is logged
too. So each call site may log a limited number of lines per minute; further ones are counted and
summarised in one line. Dead letters of log lines are not logged.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from time import monotonic, time_ns
from typing import Literal, Self

from ccpipe.config import Site
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.message import Message
from ccpipe.message import log as log_line
from ccpipe.pipeline import Batch, DeadLetter, Source, wait_for_event
from ccpipe.telemetry import Telemetry

COMPONENT = "ccpipe"
"""The name of our log lines, published on ``<cluster>.log.ccpipe``."""

Level = Literal["debug", "info", "warn", "error", "off"]

MAX_LINES = 1000
"""Maximum number of buffered lines; beyond it, the oldest are dropped and counted."""
MAX_TEXT = 4000
"""Maximum length of a line; longer ones, such as tracebacks, are cut in the middle."""
ALLOWED = 60  # maximum number of lines per call site and period
PERIOD = 60.0  # seconds

_ORIGIN = "log"
_NUMBERS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
_CLOSE = 1_000_000  # nanoseconds within which times are made to differ


@dataclass(slots=True)
class _CallSite:
    """A call site of the logging module."""

    since: float
    reported: int = 0
    suppressed: int = 0
    level: str = ""
    text: str = ""  # its last line


class LogSource(logging.Handler, Source[Lines]):
    """The log of this process, as log lines of its node.

    It is both a handler and a source. While it is entered it is attached to the root logger;
    records below that logger's own level do not arrive here.
    """

    gives = Lines

    def __init__(
        self, *, site: Site, level: Level = "info", telemetry: Telemetry | None = None
    ) -> None:
        super().__init__()
        self._telemetry = telemetry or Telemetry()
        self.change(level)
        self._tags = {"cluster": site.cluster, "hostname": site.hostname, "type": "node"}
        self._lines: deque[Message] = deque(maxlen=MAX_LINES)
        self._lost = 0
        self._last = 0  # the time of the latest line
        self._call_sites: dict[tuple[str, int], _CallSite] = {}  # by path and line number
        self._loop: asyncio.AbstractEventLoop | None = None
        self._arrived = asyncio.Event()
        self._stopped = False

    def change(self, level: str) -> None:
        if level not in _NUMBERS:
            raise ConfigError(f"log is {level!r}, not one of {', '.join(_NUMBERS)}")
        self.setLevel(_NUMBERS[level])

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        logging.getLogger().addHandler(self)
        return self

    async def __aexit__(self, *exit_: object) -> None:
        logging.getLogger().removeHandler(self)

    def stop(self) -> None:
        """End after the lines received so far."""
        self._stopped = True
        self._arrived.set()

    async def batches(self) -> AsyncIterator[Batch[Lines]]:
        while True:
            self._arrived.clear()
            has_ended = self._stopped
            if lines := self._take():
                yield Batch(to_lines(lines), origin=_ORIGIN)
            if has_ended:
                return
            if not self._stopped:
                await wait_for_event(self._arrived, PERIOD)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record as a line; called by the logging module, in any thread, under our lock."""
        if _is_own_dead_letter(record):
            return
        level, text = _level(record.levelno), self._text(record)
        key, now = (record.pathname, record.lineno), monotonic()
        call_site = self._call_sites.get(key)
        if call_site is None or now - call_site.since >= PERIOD:
            if call_site is not None:
                self._log_suppressed(call_site)
            call_site = self._call_sites[key] = _CallSite(now)
        call_site.level, call_site.text = level, text
        if call_site.reported < ALLOWED:
            call_site.reported += 1
            self._keep(level, text, int(record.created * 1e9))
        else:
            call_site.suppressed += 1
            self._telemetry.count(self._telemetry.dropped_log_lines, self)

    def _keep(self, level: str, text: str, time: int) -> None:
        """Add a line and wake the reader. Times are made unique, as stores keep one per time."""
        if 0 <= self._last - time < _CLOSE:
            time = self._last + 1
        self._last = time
        if len(self._lines) == MAX_LINES:
            self._lost += 1
            self._telemetry.count(self._telemetry.dropped_log_lines, self)
        self._lines.append(log_line(COMPONENT, level, text, time=time, tags=self._tags))
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(self._arrived.set)

    def _log_suppressed(self, call_site: _CallSite) -> None:
        if call_site.suppressed:
            text = f"{call_site.suppressed} more lines suppressed here, last: {call_site.text}"
            self._keep(call_site.level, _cut(text), time_ns())
            call_site.suppressed = 0

    def _take(self) -> list[Message]:
        self.acquire()
        try:
            now = monotonic()
            for key, call_site in list(self._call_sites.items()):
                if self._stopped or now - call_site.since >= PERIOD:
                    self._log_suppressed(call_site)
                    del self._call_sites[key]
            lines = list(self._lines)
            self._lines.clear()
            if self._lost:
                text = f"{self._lost} log lines lost: logged faster than they could be published"
                self._lost = 0
                self._keep("warn", text, time_ns())
                lines.append(self._lines.pop())
            return lines
        finally:
            self.release()

    def _text(self, record: logging.LogRecord) -> str:
        try:
            text = self.format(record)
        except Exception as error:  # noqa: BLE001 - logging must not raise
            text = f"{record.msg!r:.200} cannot be formatted: {type(error).__name__}"
        return _cut(text.encode(errors="backslashreplace").decode())


def _is_own_dead_letter(record: logging.LogRecord) -> bool:
    """Return whether a record is about a log line that could not be published."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    return any(isinstance(part, DeadLetter) and part.origin == _ORIGIN for part in arguments)


def _level(number: int) -> str:
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warn"
    return "info" if number >= logging.INFO else "debug"


def _cut(text: str) -> str:
    """Cut the middle of a long text: the ends of a traceback matter most."""
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters … {text[-half:]}"
