"""Sources, translators and sinks in memory, and a clock that never waits.

The pipe cannot distinguish them from real ones. Each records its events in a event_log that a test
shares between several of them, to check the order.
"""

import asyncio
import contextlib
import functools
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, ParamSpec, Self, TypeVar

from ccpipe.errors import CcpipeError
from ccpipe.formats.lineprotocol import Lines, RejectedLine, to_lines
from ccpipe.formats.lineprotocol.writer import original
from ccpipe.message import Message, metric
from ccpipe.pipeline import Batch, DeadLetter, DeadLetterSink, HoldingTranslator, Sink, Source, run
from ccpipe.records import Records

T = TypeVar("T")
P = ParamSpec("P")
EventLog = list[tuple[str, Any]]


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it.

    An hour passes at once, and the same timers always fire in the same order. If no task can
    continue it raises instead of hanging.
    """

    clock = 0.0

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self.clock

    def _run_once(self) -> None:
        timers = [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        if not self._ready:  # type: ignore[attr-defined]
            assert timers, f"all wait for ever: {asyncio.all_tasks(self)}"
            self.clock = max(self.clock, min(timers))
        super()._run_once()  # type: ignore[misc]


def play(main: Awaitable[T]) -> T:
    """Await something in virtual time; fail where it leaves tasks behind."""

    async def watched() -> T:
        try:
            return await main
        finally:
            assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(watched())


def virtual(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test in virtual time."""

    @functools.wraps(test)
    def played(*given: P.args, **options: P.kwargs) -> None:
        play(test(*given, **options))

    return played


def clock() -> float:
    return asyncio.get_running_loop().time()


def made(*numbers: int) -> Lines:
    """Make one metric for each number, which is its value."""
    tags = {"hostname": "n1", "type": "node"}
    return to_lines(metric("m", number, time=number * 10**9, tags=tags) for number in numbers)


def values(records: Iterable[Message]) -> list[Any]:
    return [record.value for record in records]


class Part:
    """A part that can be entered and left, and keeps a event_log."""

    def __init__(self, event_log: EventLog | None = None) -> None:
        self.event_log: EventLog = [] if event_log is None else event_log

    async def __aenter__(self) -> Self:
        self.event_log.append(("enter", type(self).__name__))
        return self

    async def __aexit__(self, *exit_: object) -> None:
        self.event_log.append(("leave", type(self).__name__))


class ListSource(Part, Source[Any]):
    """Hands over the records it was given, one batch each.

    With `upstream` its batches can be acknowledged: ``acked`` has their numbers. With `stay` it
    then waits to be stopped; `fails` is raised at the end. Each `delay` is waited for before the
    batch of that position.
    """

    gives: type[Records] = Lines

    def __init__(
        self,
        records: Iterable[Sequence[Message]],
        *,
        upstream: bool = True,
        stay: bool = False,
        fails: Exception | None = None,
        delays: Sequence[float] = (),
        event_log: EventLog | None = None,
    ) -> None:
        super().__init__(event_log)
        self.records = records
        self.upstream = upstream
        self.stay = stay
        self.fails = fails
        self.delays = delays
        self.handed = 0
        self.acked: list[int] = []
        self.stopped = asyncio.Event()

    def stop(self) -> None:
        self.event_log.append(("stop", clock()))
        self.stopped.set()

    async def batches(self) -> AsyncIterator[Batch[Any]]:
        try:
            for number, records in enumerate(self.records):
                if number < len(self.delays):
                    await asyncio.sleep(self.delays[number])
                if self.stopped.is_set():
                    return
                self.handed += 1
                yield self.batch(number, records)
            if self.fails is not None:
                raise self.fails
            if self.stay:
                await self.stopped.wait()
        finally:
            self.event_log.append(("closed", type(self).__name__))

    def batch(self, number: int, records: Sequence[Message]) -> Batch[Any]:
        async def ack() -> None:
            await asyncio.sleep(0)
            self.event_log.append(("ack", number))
            self.acked.append(number)

        origin = f"batch {number}"
        records = to_lines(records)
        return Batch(records, ack, origin) if self.upstream else Batch(records, origin=origin)


class ListSink(Part, Sink[Any]):
    """Keeps what is written; `answer` is called first and may raise. A write takes `seconds`."""

    takes = Lines

    def __init__(
        self,
        answer: Callable[[Sequence[Message]], object] = lambda _: None,
        *,
        seconds: float = 0,
        event_log: EventLog | None = None,
    ) -> None:
        super().__init__(event_log)
        self.answer = answer
        self.seconds = seconds
        self.tries: list[float] = []
        self.sizes: list[int] = []
        self.written: list[Message] = []

    async def write(self, records: Sequence[Message]) -> None:
        self.tries.append(clock())
        self.event_log.append(("try", values(records)))
        await asyncio.sleep(self.seconds)
        self.answer(records)
        self.sizes.append(len(records))
        self.written.extend(records)
        self.event_log.append(("written", values(records)))


class ListDeadLetterSink(Part, DeadLetterSink):
    """Keeps dead letters; `answer` is called first and may raise."""

    def __init__(
        self,
        answer: Callable[[Sequence[DeadLetter]], object] = lambda _: None,
        *,
        event_log: EventLog | None = None,
    ) -> None:
        super().__init__(event_log)
        self.answer = answer
        self.letters: list[DeadLetter] = []

    async def write(self, letters: Sequence[DeadLetter]) -> None:
        await asyncio.sleep(0)
        self.answer(letters)
        self.letters.extend(letters)
        self.event_log.append(("dead", [letter.original for letter in letters]))

    @property
    def numbers(self) -> list[int]:
        return [
            int(letter.original.split(b" ")[1].split(b"=")[1].rstrip(b"i"))
            for letter in self.letters
        ]


class Failing:
    """An answer that raises an error the first few times that it is called."""

    def __init__(self, error: CcpipeError, times: float) -> None:
        self.error = error
        self.left = times

    def __call__(self, _: object) -> None:
        if self.left > 0:
            self.left -= 1
            raise self.error


class Delay(HoldingTranslator[Lines, Lines]):
    """Keeps the records of so many feeds, or for so many seconds where that is less."""

    takes = gives = Lines

    def __init__(self, feeds: int, seconds: float = math.inf) -> None:
        self.feeds = feeds
        self.seconds = seconds
        self.feeds_seen = 0
        self.held: list[tuple[float, list[Message]]] = []

    def oldest_held(self) -> int | None:
        return self.feeds_seen - len(self.held) + 1 if self.held else None

    def feed(self, records: Lines) -> Lines:
        """Keep records; return those kept long enough. Numbers below 0 are rejected."""
        self.feeds_seen += 1
        good = [r for r in records if not (isinstance(r.value, int) and r.value < 0)]
        rejected = [
            RejectedLine(0, 0, 0, "below zero", original(r)) for r in records if r not in good
        ]
        self.held.append((clock(), good))
        ready: list[Message] = []
        while self.held and (
            len(self.held) > self.feeds or clock() - self.held[0][0] >= self.seconds
        ):
            ready += self.held.pop(0)[1]
        return to_lines(ready, rejected)

    def flush(self) -> Lines:
        ready = [message for _, held in self.held for message in held]
        self.held.clear()
        return to_lines(ready)


class CommitRecorder(HoldingTranslator[Lines, Lines]):
    """Passes everything on, and writes down which feeds are committed, and when."""

    takes = gives = Lines

    def __init__(self, event_log: EventLog) -> None:
        self.event_log = event_log

    def feed(self, records: Lines) -> Lines:
        return records

    def oldest_held(self) -> int | None:
        return None

    def flush(self) -> Lines:
        return Lines()

    def commit(self, feed: int) -> None:
        self.event_log.append(("noted", feed))


async def run_until(seconds: float, *parts: Any, **options: Any) -> None:
    """Run a pipe that is stopped at a time."""
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, stop.set)
    await run(*parts, stop=stop, **options)


@contextlib.asynccontextmanager
async def running(*parts: Any, **options: Any) -> AsyncIterator["asyncio.Task[None]"]:
    """Run a pipe while the block runs, and to its end."""
    stop = asyncio.Event()
    task = asyncio.create_task(run(*parts, stop=stop, **options))
    try:
        yield task
    finally:
        stop.set()
        await task
