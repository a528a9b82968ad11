"""A collector in its own thread, so that one that hangs blocks nothing else."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Protocol


class Collector(Protocol):
    """Measures one thing. It may keep what it read, to report next time what changed."""

    def collect(self, time: int) -> Iterable[Any]:
        """Read once and return metrics of the slot `time`, in nanoseconds since the epoch.

        The messages carry the collector's own tags only (``type``, ``type-id``, ``stype``,
        ``stype-id``); Sonar's collectors return envelopes. It is called in a thread, never twice
        at once, and may block for a short time.

        Raises
        ------
        OSError, MissingExtra
            where this machine has no such thing: it is not read again for a minute.

        """
        ...


class CollectorGroup(ABC):
    """Several collectors under one name and one set of options, each with a thread of its own."""

    @abstractmethod
    def collectors(self) -> Mapping[str, Collector]:
        """Return the collectors by what follows the group's name and a dot in the log."""


Answer = Future[list[Any]]


class CollectorThread:
    """Reads one collector, in a thread that starts with the first reading.

    The thread is a daemon: a read that hangs in the kernel cannot be ended, and must not keep
    the process from ending.
    """

    def __init__(self, name: str, collector: Collector) -> None:
        """Prepare to read `collector`; `name` is its name in the log."""
        self.name = name
        self.collector = collector
        self._questions: SimpleQueue[tuple[int, Answer] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._answer: Answer | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the last reading still runs: another cannot be started."""
        return self._answer is not None and not self._answer.done()

    def ask(self, time: int) -> "asyncio.Future[list[Any]]":
        """Start a reading for the slot `time`; the future carries its records or its error.

        The future may be cancelled where the records are not wanted any more.
        """
        assert not self.is_busy
        self._answer = self._put(time)
        return asyncio.wrap_future(self._answer)

    def prime(self, time: int) -> None:
        """Start a reading whose records are dropped, so that the next one has rates.

        It does not count as busy meanwhile: the next reading is queued behind it.
        """
        self._put(time)

    def _put(self, time: int) -> Answer:
        answer = Answer()
        answer.set_running_or_notify_cancel()  # from here on it cannot be cancelled
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
            self._thread.start()
        self._questions.put((time, answer))
        return answer

    def end(self) -> None:
        """Let the thread end once it is free."""
        self._questions.put(None)
        self._thread = None

    def _work(self) -> None:
        while (question := self._questions.get()) is not None:
            time, answer = question
            try:
                answer.set_result(list(self.collector.collect(time)))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the others go on
                answer.set_exception(error)
            # A thread that waits must hold no sample: it would live until the next question.
            del question, answer
