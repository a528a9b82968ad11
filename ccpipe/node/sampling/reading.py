"""The threads in which collectors are read."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Collection, Iterable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from ccpipe.node.sampling.collector import Collector
from ccpipe.process.background import wait_for_own_event

Reading = asyncio.Future[list[Any]]


class CollectorReader:
    """One collector as it is read by `ReadingThreads`."""

    def __init__(self, name: str, collector: Collector) -> None:
        """Prepare to read `collector`; `name` is its name in the log."""
        self.name = name
        self.collector = collector
        self.is_busy = False
        """Whether a reading is under way: another cannot be started."""
        self.thread: ReadingThread | None = None  # its own, after it blocked a shared one

    def end(self) -> None:
        """Let its own thread end, once it is free."""
        if self.thread is not None:
            self.thread.end()


class _Request(NamedTuple):
    reader: CollectorReader
    slot: int
    reading: Reading | None
    """None if the records are dropped."""


class ReadingThread:
    """A thread that reads collectors one after the other, and delivers them to the loop together.

    It is a daemon thread, unlike ``concurrent.futures`` has: a read that hangs in the kernel cannot
    be cancelled, and must not keep the process from exiting.
    """

    def __init__(self, delivered: asyncio.Event) -> None:
        """Prepare; `delivered` is set whenever results of readings have been set."""
        self.current: _Request | None = None
        self._delivered = delivered
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()
        self._done: deque[tuple[_Request, list[Any], BaseException | None]] = deque()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop

    def put(self, request: _Request) -> None:
        """Queue a reading; the first one starts the thread."""
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._work, name="ccpipe-read", daemon=True)
            self._thread.start()
        self._requests.put(request)

    def take_waiting(self) -> list[_Request]:
        """Return the requests that have not begun; they are not read here."""
        found: list[_Request] = []
        with contextlib.suppress(Empty):
            while (request := self._requests.get_nowait()) is not None:
                found.append(request)
        return found

    def end(self) -> None:
        """Let the thread end once it has read everything."""
        self._requests.put(None)

    def is_runnable(self) -> bool:
        """Return whether the thread only waits for a processor."""
        assert self._thread is not None
        try:
            stat = Path(f"/proc/self/task/{self._thread.native_id}/stat").read_text()
        except OSError:
            return False  # this system has no /proc
        return stat.rpartition(")")[2].split()[0] == "R"

    def deliver(self) -> None:
        """Set the results of finished readings; in the thread of the loop."""
        while self._done:
            (reader, _, reading), records, error = self._done.popleft()
            if reading is None:
                continue
            reader.is_busy = False
            if reading.done():  # cancelled
                continue
            if error is None:
                reading.set_result(records)
            else:
                reading.set_exception(error)
        self._delivered.set()

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            self.current = request
            self._done.append((request, *_read(request)))
            self.current = None
            del request  # records are not kept until the next slot
            if self._requests.empty():  # waking the loop for each would cost more than most reads
                self._wake_loop()
        self._wake_loop()

    def _wake_loop(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.deliver)


def _read(request: _Request) -> tuple[list[Any], BaseException | None]:
    try:
        return list(request.reader.collector.collect(request.slot)), None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - passed to the reading
        return [], error


_PATIENCE = 0.1  # seconds that a collector may block others


class ReadingThreads:
    """The threads of a sampler's collectors.

    Collectors share a thread until one of them blocks it: that one keeps the thread for itself
    from then on, and the others continue in a new one.
    """

    def __init__(self) -> None:
        self._delivered = asyncio.Event()
        self.shared = ReadingThread(self._delivered)

    def read(self, readers: Iterable[CollectorReader], slot: int) -> list[Reading]:
        """Start a reading of each for a slot; the future's result is its records.

        It may be cancelled if the records are no longer needed. A collector that is still read for
        an earlier slot blocks others.
        """
        current = self.shared.current
        if current is not None and current.slot < slot:
            self._separate(current)
        loop = asyncio.get_running_loop()
        requests = [_Request(reader, slot, loop.create_future()) for reader in readers]
        for reader in readers:
            reader.is_busy = True
        self._start(requests)
        return [request.reading for request in requests if request.reading is not None]

    def prime(self, readers: Iterable[CollectorReader], slot: int) -> None:
        """Start readings whose records are dropped, so that the next ones have rates.

        The collectors do not count as busy meanwhile: their next reading is queued behind.
        """
        self._start([_Request(reader, slot, None) for reader in readers])

    async def wait(self, readings: Collection[Reading], seconds: float) -> None:
        """Wait at most `seconds`; a collector that takes a quarter of them blocks others."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (now := loop.time()) < end and not all(reading.done() for reading in readings):
            before, deadline = self.shared.current, min(now + _PATIENCE, now + seconds / 4, end)
            self._delivered.clear()
            await wait_for_own_event(self._delivered, deadline)
            is_late = loop.time() >= deadline
            if is_late and before is not None and self.shared.current is before:
                self._separate(before)
        self.shared.deliver()

    def _separate(self, blocked: _Request) -> None:
        blocked.reader.thread = self.shared
        self.shared = ReadingThread(self._delivered)
        blocked.reader.thread.deliver()
        self._start(blocked.reader.thread.take_waiting())

    def _start(self, requests: Iterable[_Request]) -> None:
        for request in requests:
            (request.reader.thread or self.shared).put(request)

    def activity(self, reader: CollectorReader) -> str:
        """Return why a reading has not finished, for the log."""
        thread = reader.thread or self.shared
        current = thread.current
        if current is None or current.reader is not reader:
            return "has not started yet"
        return "still runs" if thread.is_runnable() else "still hangs"

    def close(self) -> None:
        """Let the shared thread end once it is free."""
        self.shared.end()
