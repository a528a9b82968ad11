"""The threads in which collectors are read, so that one that hangs blocks nothing else.

Most readings take a fraction of a millisecond, less than it costs to wake up a thread. One thread
therefore reads all collectors that are due, one after the other. One that takes long keeps the
thread to itself: what waits behind it goes on in another one, and next time it begins in a thread
of its own.
"""

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from queue import SimpleQueue
from time import monotonic
from typing import Any, Protocol

SLOW_SECONDS = 0.025
"""A reading that takes longer than this keeps its thread to itself."""


class Collector(Protocol):
    """Measures one thing. It may keep what it read, to report next time what changed."""

    @abstractmethod
    def collect(self, time: int) -> Iterable[Any]:
        """Read once and return metrics of the slot `time`, in nanoseconds since the epoch.

        The messages carry the collector's own tags only (``type``, ``type-id``, ``stype``,
        ``stype-id``); Sonar's collectors return envelopes. It is called in any of several
        threads, never twice at once, and may block for a short time. One that reads many things
        has an attribute ``soft``, of `SoftErrors`, for errors that cost single readings only.

        Raises
        ------
        OSError, MissingExtra
            if this machine has no such thing: it is not read again for a minute.

        """
        ...


class CollectorGroup(ABC):
    """Several collectors under one name and one set of options, each read by itself."""

    @abstractmethod
    def collectors(self) -> Mapping[str, Collector]:
        """Return the collectors by what follows the group's name and a dot in the log."""


Answer = asyncio.Future[list[Any]]


class CollectorReader:
    """One collector and its readings, of which only one runs at a time."""

    def __init__(self, name: str, collector: Collector) -> None:
        """Prepare to read `collector`; `name` is its name in the log."""
        self.name = name
        self.collector = collector
        self.is_slow = False
        """Whether its last reading took long."""
        self._readings: deque[_Reading] = deque()
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether a reading still runs that somebody asked for: another cannot be started."""
        return any(
            reading.answer is not None and not reading.is_done for reading in self._readings.copy()
        )

    @property
    def is_running(self) -> bool:
        """Whether a thread is reading it now, and it does not wait for one."""
        return any(reading.has_begun and not reading.is_done for reading in self._readings.copy())

    def add(self, reading: "_Reading") -> bool:
        """Add a reading; return whether ``run`` must be called for it."""
        with self._lock:
            self._readings.append(reading)
            return len(self._readings) == 1

    def run(self) -> None:
        """Do all readings, in their order; called in a thread."""
        while True:
            reading, began = self._readings[0], monotonic()
            reading.has_begun = True
            try:
                reading.records = list(self.collector.collect(reading.time))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the others go on
                reading.error = error
            self.is_slow = monotonic() - began > SLOW_SECONDS
            reading.is_done = True
            with self._lock:
                self._readings.popleft()
                if not self._readings:
                    return


class _Reading:
    """One reading of a collector, and what came of it."""

    __slots__ = ("answer", "error", "has_begun", "is_done", "reader", "records", "time")

    def __init__(self, reader: CollectorReader, time: int, answer: Answer | None = None) -> None:
        self.reader = reader
        self.time = time
        self.answer = answer  # None if the records are dropped
        self.records: list[Any] = []
        self.error: BaseException | None = None
        self.has_begun = False
        self.is_done = False

    def deliver(self) -> None:
        """Answer whoever waits."""
        if self.answer is None or self.answer.done():
            return
        if self.error is None:
            self.answer.set_result(self.records)
        else:
            self.answer.set_exception(self.error)


class ReaderThreads:
    """The threads, as many as there are slow collectors at a time and one more."""

    def __init__(self, timeout: float) -> None:
        """Begin without threads."""
        self.timeout = timeout
        """Seconds within which collectors should be read though others are slow."""
        self._idle: list[_Thread] = []
        self._busy: set[_Thread] = set()
        self._unanswered: list[_Reading] = []
        self._look: asyncio.TimerHandle | None = None
        self._has_ended = False

    def ask(self, readers: Sequence[CollectorReader], time: int) -> list[Answer]:
        """Start readings for the slot `time`; each future carries its records or its error.

        A future may be cancelled where the records are not wanted any more.
        """
        loop = asyncio.get_running_loop()
        readings = [_Reading(reader, time, loop.create_future()) for reader in readers]
        self._unanswered += readings
        self._start(readings)
        return [reading.answer for reading in readings if reading.answer is not None]

    def prime(self, readers: Sequence[CollectorReader], time: int) -> None:
        """Start readings whose records are dropped, so that the next ones have rates.

        They do not count as busy meanwhile: the next reading is queued behind the first.
        """
        self._start([_Reading(reader, time) for reader in readers])

    def end(self) -> None:
        """Let each thread end once it is free."""
        self._has_ended = True
        if self._look is not None:
            self._look.cancel()
        for thread in self._idle:
            thread.end()
        self._idle.clear()

    def _start(self, readings: Sequence[_Reading]) -> None:
        waiting = [reading.reader for reading in readings if reading.reader.add(reading)]
        self._give(deque(reader for reader in waiting if not reader.is_slow))
        for reader in waiting:
            if reader.is_slow:
                self._give(deque((reader,)))
        self._look_soon()

    def _give(self, readers: deque[CollectorReader]) -> None:
        if readers:
            thread = self._idle.pop() if self._idle else _Thread(self._done)
            self._busy.add(thread)
            thread.give(readers)

    def _look_soon(self) -> None:
        if self._look is None and any(thread.readers for thread in self._busy):
            # A reading is slow if it spans two looks, which leaves others half of the time.
            seconds = min(SLOW_SECONDS, self.timeout / 4)
            self._look = asyncio.get_running_loop().call_later(seconds, self._relieve)

    def _relieve(self) -> None:
        """Give to other threads what waits behind a reading that takes long."""
        self._look = None
        self._answer()
        for thread in self._busy.copy():
            if thread.is_stuck():
                self._give(thread.take_rest())
        self._look_soon()

    def _done(self, thread: "_Thread") -> None:
        """Note that a thread has read all that it was given."""
        self._busy.remove(thread)
        if self._has_ended:
            thread.end()
            return
        self._idle.append(thread)
        if not self._busy and self._look is not None:
            self._look.cancel()
            self._look = None
        self._answer()

    def _answer(self) -> None:
        readings, self._unanswered = self._unanswered, []
        for reading in readings:
            if reading.is_done:
                reading.deliver()
            else:
                self._unanswered.append(reading)


class _Thread:
    """A thread, which starts with the first reading.

    It is a daemon: a read that hangs in the kernel cannot be ended, and must not keep the process
    from ending.
    """

    def __init__(self, done: Callable[["_Thread"], None]) -> None:
        self.readers: deque[CollectorReader] = deque()  # that wait for the one that is read
        self._done = done  # called in the loop
        self._loop = asyncio.get_running_loop()
        self._given: SimpleQueue[deque[CollectorReader] | None] = SimpleQueue()
        self._current: CollectorReader | None = None
        self._seen: CollectorReader | None = None
        threading.Thread(target=self._work, name="ccpipe-read", daemon=True).start()

    def give(self, readers: deque[CollectorReader]) -> None:
        """Read collectors, one after the other."""
        self._seen, self.readers = readers[0], readers
        self._given.put(readers)

    def is_stuck(self) -> bool:
        """Return whether it still reads what it read at the last call, or at the beginning."""
        seen, self._seen = self._seen, self._current
        return self._seen is not None and self._seen is seen

    def take_rest(self) -> deque[CollectorReader]:
        """Take away what it has not begun to read."""
        rest: deque[CollectorReader] = deque()
        with contextlib.suppress(IndexError):
            while True:
                rest.append(self.readers.popleft())
        return rest

    def end(self) -> None:
        """End once it is free."""
        self._given.put(None)

    def _work(self) -> None:
        while (readers := self._given.get()) is not None:
            with contextlib.suppress(IndexError):
                while True:
                    self._current = readers.popleft()
                    self._current.run()
            self._current = None
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._done, self)
