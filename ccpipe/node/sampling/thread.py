"""A thread for each collector, so that one that hangs blocks nothing else.

The threads are daemons, which those of ``concurrent.futures`` are not: a read that hangs in the
kernel cannot be ended, and must not keep the process from ending.
"""

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol


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
    """One collector and the thread in which it is read, which starts with the first reading."""

    def __init__(self, name: str, collector: Collector) -> None:
        """Prepare to read `collector`; `name` is its name in the log."""
        self.name = name
        self.collector = collector
        self.is_busy = False
        """Whether a reading that was asked for is not answered yet: another cannot be started."""
        self._slots: SimpleQueue[tuple[int, Answer | None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_reading = False

    def ask(self, slot: int) -> Answer:
        """Start a reading for a slot; the future carries its records or its error.

        It may be cancelled where the records are not wanted any more.
        """
        answer: Answer = asyncio.get_running_loop().create_future()
        self.is_busy = True
        self._start(slot, answer)
        return answer

    def prime(self, slot: int) -> None:
        """Start a reading whose records are dropped, so that the next one has rates.

        The collector does not count as busy meanwhile: the next reading is queued behind the first.
        """
        self._start(slot, None)

    def activity(self) -> str:
        """Return what it does instead of answering, as the log words it."""
        if not self._is_reading:
            return "still waits to be read"
        return "still runs" if self._is_runnable() else "still hangs"

    def end(self) -> None:
        """Let the thread end once it is free."""
        if self._thread is not None:
            self._slots.put(None)

    def _start(self, slot: int, answer: Answer | None) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="ccpipe-read", daemon=True)
            self._thread.start()
        self._slots.put((slot, answer))

    def _work(self) -> None:
        while (request := self._slots.get()) is not None:
            self._read(*request)
            del request  # records are not kept until the next slot

    def _read(self, slot: int, answer: Answer | None) -> None:
        records: list[Any] = []
        error: BaseException | None = None
        self._is_reading = True
        try:
            records = list(self.collector.collect(slot))
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - the others go on
            error = raised
        self._is_reading = False
        if answer is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                answer.get_loop().call_soon_threadsafe(self._deliver, answer, records, error)

    def _deliver(self, answer: Answer, records: list[Any], error: BaseException | None) -> None:
        self.is_busy = False
        if answer.done():  # nobody waits for it any more
            return
        if error is None:
            answer.set_result(records)
        else:
            answer.set_exception(error)

    def _is_runnable(self) -> bool:
        """Return whether the thread would go on if it only got a processor."""
        assert self._thread is not None
        try:
            stat = Path(f"/proc/self/task/{self._thread.native_id}/stat").read_text()
        except OSError:
            return False  # this system has no /proc
        return stat.rpartition(")")[2].split()[0] == "R"
