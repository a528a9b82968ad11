"""Delivery of records to the sink: in portions, which are halved where it rejects or is slow.

Each write is bounded in time, and retried while the store is unavailable.
"""

import asyncio
import functools
import logging
import math
import random
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress

from ccpipe.errors import DataError, EncodeError, RejectedError, TimedOutError, UnavailableError
from ccpipe.pipeline.interfaces import A_contra, DeadLetterSink, Sink
from ccpipe.pipeline.limits import Limits
from ccpipe.pipeline.stages import Item
from ccpipe.process.background import wait_for_event
from ccpipe.records import DeadLetter, Records
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

FIRST_SECONDS = 0.1
"""Maximum pause after the first failure; it doubles with each further one."""
LAST_SECONDS = 2.0
"""Minimum time for a write that starts when the grace period is nearly or entirely over."""
REPEAT_SECONDS = 60.0
"""Interval at which the same failure reason is logged again."""
MAX_SECONDS = 240.0
"""Maximum that a limit grows to, unless it is configured larger."""
SPARE = 4
"""A raised limit is this many times what the latest write took."""
ROOM = 3
"""Writes may grow if the limit is at least this many times what the latest one took."""


def now() -> float:
    """Return the time of the clock that timers use, in seconds."""
    return asyncio.get_running_loop().time()


class TimedSink(Sink[A_contra]):
    """A sink whose store must give up too: it might store later what is sent again."""

    time_limit: float
    """Seconds after which a write raises TimedOutError.

    ``run()`` raises it while even small writes take longer, and resets it at the end.
    """


class TimeLimit:
    """The limit that ``run()`` sets, and the sink's own limit if it has one.

    A write that times out may be stored all the same, and is stored once more when it is repeated.
    Smaller writes alone do not help if the store needs its time for each: from the second timeout
    in a row on, both limits double with each.
    """

    def __init__(self, limits: Limits, sink: Sink[Records]) -> None:
        self.seconds = limits.write_timeout
        """The current limit set by ``run()``; 0 if unset."""
        self._sink = sink if isinstance(sink, TimedSink) else None
        self._configured = limits.write_timeout, self._sink.time_limit if self._sink else 0.0
        self._effective = min(filter(None, self._configured), default=0.0)
        self._largest = max(1.0, MAX_SECONDS / self._effective) if self._effective else 1.0
        self._factor = 1.0
        self._timeouts = 0  # in a row

    @property
    def is_largest(self) -> bool:
        """Whether it has grown as far as it can."""
        return self._factor >= self._largest

    def exceeded(self, error: TimedOutError) -> None:
        self._timeouts += 1
        if self._timeouts > 1 and self._factor < self._largest:
            self._set(2 * self._factor)
            key = "sink.timeout" if self._sink else "batch.write_timeout"
            seconds = self._effective * self._factor
            log.warning("%s; the time limit is now %g s: raise %s", error, seconds, key)

    def kept(self, seconds: float) -> bool:
        """Note a write that succeeded after `seconds`; return whether writes may be larger."""
        self._timeouts = 0
        if self._factor > 1:
            self._set(SPARE * seconds / self._effective)
        return not self._effective or ROOM * seconds <= self._effective * self._factor

    def _set(self, factor: float) -> None:
        self._factor = max(1.0, min(factor, self._largest))
        configured, own = self._configured
        self.seconds = configured * self._factor
        if self._sink:
            self._sink.time_limit = own * self._factor

    def reset(self) -> None:
        self._set(1.0)


class Attempts:
    """Retries operations while a part is unavailable; after shutdown, for the grace period only."""

    def __init__(self, limits: Limits, telemetry: Telemetry) -> None:
        """Use the pauses, the timeout and the grace period of `limits`."""
        self.limits = limits
        self.telemetry = telemetry
        self.ending = asyncio.Event()
        self._grace_end = math.inf
        self._current: asyncio.Timeout | None = None
        self._reported = "", -math.inf

    @property
    def is_over(self) -> bool:
        """Whether the grace period is over, so that nothing is retried."""
        return now() >= self._grace_end

    def begin_shutdown(self) -> None:
        """Start the grace period; a write that takes longer is abandoned."""
        self.ending.set()
        self._grace_end = now() + self.limits.stop_timeout
        if self._current is not None:
            when = self._current.when()
            self._current.reschedule(
                min(math.inf if when is None else when, self._latest_deadline())
            )

    async def retry(
        self,
        attempt: Callable[[], Awaitable[None]],
        part: object,
        *,
        limit: TimeLimit | None = None,
    ) -> None:
        """Retry until it succeeds.

        Raises
        ------
        TimedOutError
            immediately if there is a `limit`, to which the caller reports it.
        UnavailableError
            if the grace period is over.

        """
        pause = min(FIRST_SECONDS, self.limits.max_backoff)
        while True:
            try:
                await self.bounded(attempt, limit.seconds if limit else self.limits.write_timeout)
            except UnavailableError as error:
                if self.is_over or (limit and isinstance(error, TimedOutError)):
                    raise
                self.telemetry.failed(part)
                self._report(str(error))
                wanted = error.retry_after
            else:
                return
            await self.pause(max(wanted, random.uniform(0, pause)))  # noqa: S311 - no secret
            pause = min(2 * pause, self.limits.max_backoff)

    def _report(self, reason: str) -> None:
        """Log why a write failed; the same reason at most once a minute."""
        before, at = self._reported
        if reason != before or now() - at >= REPEAT_SECONDS:
            self._reported = reason, now()
            log.warning("%s; retrying", reason)

    async def bounded(
        self, attempt: Callable[[], Awaitable[None]], seconds: float, last: float = LAST_SECONDS
    ) -> None:
        """Try once for `seconds`, 0 being no limit; at least `last` after the grace period.

        Raises
        ------
        TimedOutError
            if it takes longer.

        """
        limit = asyncio.timeout_at(self._deadline(seconds, last))
        try:
            async with limit:
                self._current = limit if seconds else None
                await attempt()
        except TimeoutError:
            if not limit.expired():
                raise  # not our timeout
            raise TimedOutError("the write timed out") from None
        finally:
            self._current = None

    def _deadline(self, seconds: float, last: float) -> float | None:
        deadline = min(now() + seconds, self._latest_deadline(last)) if seconds else math.inf
        return None if deadline == math.inf else deadline

    def _latest_deadline(self, last: float = LAST_SECONDS) -> float:
        return max(self._grace_end, now() + last)

    async def pause(self, seconds: float) -> None:
        """Sleep, but only briefly once shutdown has begun."""
        if self.ending.is_set():
            await asyncio.sleep(min(seconds, 0.1))
        else:
            await wait_for_event(self.ending, seconds)


WRITE_SECONDS = 300.0
"""A write that takes longer counts as stuck in ``/ready``; sinks give up earlier by themselves."""
AT_ONCE = 500
"""Maximum number of dead letters in one write."""
LOGGED = 10
"""Dead letters of one write that are logged singly."""


class DeadLetterWriter:
    """Logs, counts and stores dead letters."""

    def __init__(
        self, sink: DeadLetterSink | None, source: object, attempts: Attempts, telemetry: Telemetry
    ) -> None:
        """Without a sink, log and count them; `source` is the part that counters name."""
        self.sink = sink
        self.source = source
        self.attempts = attempts
        self.telemetry = telemetry

    async def write(self, letters: Sequence[DeadLetter]) -> None:
        """Write dead letters; raises UnavailableError after the grace period."""
        is_kept = self.sink is None or self.sink.keeps
        for letter in letters[:LOGGED]:
            log.warning("%s", letter if is_kept else f"left out: {letter.description}")
        if rest := sum(letter.lines for letter in letters[LOGGED:]):
            log.warning("… and %d more %s", rest, "dead letters" if is_kept else "left out")
        for first in range(0, len(letters), AT_ONCE):
            portion = letters[first : first + AT_ONCE]
            if self.sink is not None:
                await self._write(portion, self.sink)
            lines = sum(letter.lines for letter in portion)
            self.telemetry.count(self.telemetry.dead, self.source, lines)
            self.telemetry.ready = True

    async def _write(self, letters: Sequence[DeadLetter], sink: DeadLetterSink) -> None:
        """Write dead letters, one by one if the sink rejects them together."""
        try:
            await self.attempts.retry(functools.partial(sink.write, letters), sink)
        except DataError as error:
            if len(letters) > 1:
                for letter in letters:
                    await self._write([letter], sink)
            else:
                log.error("%s; this dead letter is lost: %s", letters[0], error)  # noqa: TRY400


class Rows:
    """The item of each record of a write."""

    def __init__(self, items: Sequence[Item]) -> None:
        """Take the items whose records are written together, in order."""
        self.items = items
        self._ends = list(accumulate(len(item.records) for item in items))

    def item(self, row: int) -> Item:
        return self.items[bisect_right(self._ends, row)]


@dataclass(slots=True)
class Portion:
    """Records for one write."""

    records: Records
    rows: Rows
    numbers: Sequence[int]
    """Row of each record among those that were joined for one write."""

    @classmethod
    def of(cls, items: Sequence[Item]) -> "Portion":
        """Join the records of items, of which none is empty."""
        parts = [item.records for item in items]
        records = type(parts[0]).concat(parts) if len(parts) > 1 else parts[0]
        return cls(records, Rows(items), range(len(records)))

    def item(self, index: int) -> Item:
        return self.rows.item(self.numbers[index])

    def dead_letter(self, index: int, reason: str) -> DeadLetter:
        """Return one record as a dead letter."""
        provenance = self.records.provenance
        origin = provenance.origin(index) if provenance else ""
        return DeadLetter(self.records.original(index), reason, origin or self.item(index).origin)

    def without(self, bad: Sequence[int]) -> "list[Portion]":
        """Return the portion without some records."""
        keep = bytearray(b"\1") * len(self.records)
        for index in bad:
            keep[index] = 0
        numbers = list(compress(self.numbers, keep))
        return [Portion(self.records.take(keep), self.rows, numbers)] if numbers else []

    @property
    def has_ids(self) -> bool:
        """Whether any of its messages can be recognized when it is redelivered."""
        known = self.records.provenance
        return known is not None and known.has_ids

    @property
    def is_one_message(self) -> bool:
        """Whether halves would divide a message that can be recognized when it is redelivered.

        The first of them has no id: after a crash in between it would be stored twice.
        """
        known = self.records.provenance
        return known is not None and self.has_ids and known.is_inside(self._middle())

    def _middle(self) -> int:
        half = len(self.records) // 2
        known = self.records.provenance
        return known.split_point(half) if known else half

    def halves(self) -> "list[Portion]":
        """Return two portions, the first half last."""
        half = self._middle()
        first, second = self.records[:half], self.records[half:]
        if known := self.records.provenance:
            first.provenance, second.provenance = known.split(half)
        return [
            Portion(second, self.rows, self.numbers[half:]),
            Portion(first, self.rows, self.numbers[:half]),
        ]


class SinkWriter:
    """Writes items to the sink, and finds the records that it rejects."""

    def __init__(self, sink: Sink[Records], letters: DeadLetterWriter, attempts: Attempts) -> None:
        """Write with the limits of `attempts`; rejected records become dead letters."""
        self.sink = sink
        self.letters = letters
        self.attempts = attempts
        self.limits, self.telemetry = attempts.limits, attempts.telemetry
        self.time_limit = TimeLimit(self.limits, sink)
        self.unwritten: list[Portion] = []  # the next one last
        self.since = math.inf
        """When the earliest successful write began of those since this was reset."""
        self._rejected: dict[int, Item] = {}  # with dead letters that are not written yet
        self._max_records = math.inf  # per write, reduced while the sink is slow
        self._began = 0.0  # the latest attempt

    def take(self, items: Sequence[Item]) -> None:
        """Take the items to write next, when all before are written."""
        self.unwritten = portions(items)

    async def write(self) -> None:
        """Write the next portion; halve rejected ones until the bad records are found.

        A portion that times out is halved as well, unless it is one message, and later writes are
        limited to that size for a while.
        """
        if not self.unwritten:
            return
        portion = self.unwritten[-1]
        total = len(portion.records)
        smaller: list[Portion] = []
        self.telemetry.expect(self.sink, WRITE_SECONDS)
        try:
            if total > self._max_records and not self._stays_whole(portion):
                smaller = portion.halves()
            else:
                if self._rejected and portion.has_ids:
                    # The source does not redeliver a message once the store has it.
                    await self.write_dead_letters_of(list(self._rejected.values()))
                write = functools.partial(self._attempt, portion)
                await self.attempts.retry(write, self.sink, limit=self.time_limit)
        except TimedOutError as error:
            if self.attempts.is_over:
                raise
            self.telemetry.failed(self.sink)
            self.time_limit.exceeded(error)
            smaller = await self._after_timeout(portion, error)
        except (RejectedError, EncodeError) as error:
            smaller = self._after_rejection(portion, error)
        else:
            if not smaller:
                seconds = now() - self._began
                self.telemetry.wrote(self.sink, total, seconds)
                self.since = min(self.since, self._began)
                if self.time_limit.kept(seconds):
                    self._allow_more(total)
        self.telemetry.expect_nothing(self.sink)
        self.unwritten[-1:] = smaller

    async def _attempt(self, portion: Portion) -> None:
        self._began = now()
        await self.sink.write(portion.records)

    async def _after_timeout(self, portion: Portion, error: TimedOutError) -> list[Portion]:
        """Return what to write instead of a portion that timed out."""
        total = len(portion.records)
        if total == 1 or self._stays_whole(portion):
            log.warning("%s: %s; retrying", type(self.sink).__name__, error)
            await self.attempts.pause(min(1.0, self.limits.max_backoff))
            return [portion]
        log.warning("%s: %s; retrying with half", type(self.sink).__name__, error)
        self._max_records = total // 2
        return portion.halves()

    def _stays_whole(self, portion: Portion) -> bool:
        """Return whether a slow sink gets the same records again, instead of half of them.

        One does that limits its own steps and goes on where it was; others get a message whole
        until the time limit cannot grow.
        """
        if self.sink.limits.write_timeout == math.inf:
            return True
        return portion.is_one_message and not self.time_limit.is_largest

    def _after_rejection(
        self, portion: Portion, error: RejectedError | EncodeError
    ) -> list[Portion]:
        """Make dead letters of bad records, if they are known; return what is left to write."""
        bad = _bad_records(error, len(portion.records))
        for i in bad:
            item = portion.item(i)
            item.letters.append(portion.dead_letter(i, str(error)))
            self._rejected[id(item)] = item
        return portion.without(bad) if bad else portion.halves()

    def _allow_more(self, written: int) -> None:
        """After a write that succeeded in good time, allow larger ones again."""
        if 2 * written >= self._max_records:
            self._max_records *= 2
        if self._max_records > self.limits.max_records:
            self._max_records = math.inf

    def complete(self, items: Sequence[Item]) -> int:
        """Return how many of the first items are written completely."""
        if not self.unwritten:
            return len(items)
        next_item = self.unwritten[-1].item(0)
        return next(place for place, item in enumerate(items) if item is next_item)

    async def write_dead_letters_of(self, items: Sequence[Item]) -> None:
        """Write the dead letters of items, once."""
        await self.letters.write([letter for item in items for letter in item.letters])
        for item in items:
            item.letters.clear()
            self._rejected.pop(id(item), None)


def portions(items: Sequence[Item]) -> list[Portion]:
    """Join items for one write; empty if they contain no records."""
    filled = [item for item in items if len(item.records)]
    return [Portion.of(filled)] if filled else []


def _bad_records(error: RejectedError | EncodeError, total: int) -> list[int]:
    """Return the indices of the records that an error is about; empty if unknown."""
    if total == 1:
        return [0]
    named = error.indices if isinstance(error, RejectedError) else None
    return sorted({i for i in named or () if 0 <= i < total})
