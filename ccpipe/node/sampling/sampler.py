"""Samples collectors in slots that all nodes share."""

import asyncio
import contextlib
import errno
import logging
import math
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from ccpipe.errors import CcpipeError, ConfigError, MissingExtra
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.lineprotocol.builder import MessageColumns, TaggedRecords
from ccpipe.message import Message
from ccpipe.node.sampling.collector import Collector, SoftErrors
from ccpipe.node.sampling.reading import CollectorReader, Reading, ReadingThreads
from ccpipe.pipeline import Batch, Source
from ccpipe.process.background import wait_for_own_event
from ccpipe.records import Records
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

_MIN_INTERVAL = 0.001  # seconds between two slots
_FIRST_PAUSE = 1.0  # seconds between the two readings that one sample of rates needs
_ONCE_TIMEOUT = 10.0  # seconds that a single sample waits for the slowest collector
_RETRY_SECONDS = 60  # seconds until a collector that is off is read again
_SECOND = 1_000_000_000

_ABSENT = frozenset(
    {
        errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.ENOSYS, errno.EOPNOTSUPP,
        errno.EACCES, errno.EPERM, errno.ENOEXEC,
    }
)  # fmt: skip
"""Error codes of missing hardware or rights; other errors may be temporary."""

MakeError = Callable[[int, str], Any]


@dataclass(slots=True)
class _ScheduledCollector:
    reader: CollectorReader
    interval: int
    retry_at: float = 0.0
    """Monotonic time before which it is not read: it found nothing to measure."""
    is_off: bool = False
    has_reported: bool = False  # whether it ever measured anything
    soft_errors: int = 0  # errors of single readings counted so far
    is_late: bool = False  # whether it was still busy at its next slot

    @property
    def state(self) -> Literal["on", "off", "late"]:
        return "late" if self.is_late else "off" if self.is_off else "on"


class _Pending(NamedTuple):
    """One reading that was started: its slot, and the tags and units of its records."""

    scheduled: _ScheduledCollector
    slot: int
    tags: Mapping[str, str] | None
    units: Mapping[str, str]


class SamplerSettings(msgspec.Struct, frozen=True):
    """Collectors and intervals; raises ConfigError if an interval or the jitter is invalid."""

    collectors: Mapping[str, Collector]  # by their names in the log
    interval: float  # seconds from one slot to the next, at least a millisecond
    tags: Mapping[str, str] | None
    """Tags of every message, such as ``cluster`` and ``hostname``; a collector's own take
    precedence. None leaves records unchanged."""
    jitter: float = 0.0
    """A sample is taken up to this many seconds after its slot, at random, so that the nodes
    of a cluster do not all publish at once; below every interval."""
    intervals: Mapping[str, float] = {}  # by name, of collectors with their own
    timeout: float | None = None
    """Seconds that a batch waits for its slowest collectors; None for a fortieth of the
    shortest interval."""
    units: Mapping[str, str] = {}
    """Values of the tag ``unit`` by metric, absent for others; see ``collector.units``."""

    def __post_init__(self) -> None:
        _check_interval(self.interval, "")
        for name in self.collectors:
            _check_interval(self.interval_of(name), f" of collector {name}")
        if not 0 <= self.jitter < self.min_interval:
            raise ConfigError(
                f"jitter is {self.jitter} s: it must be from 0 to below {self.min_interval} s"
            )

    def interval_of(self, name: str) -> float:
        return self.intervals.get(name, self.interval)

    @property
    def min_interval(self) -> float:
        return min([self.interval, *map(self.interval_of, self.collectors)])


def _check_interval(interval: float, of: str) -> None:
    if not _MIN_INTERVAL <= interval < math.inf:
        raise ConfigError(f"interval{of} is {interval} s: it must be at least {_MIN_INTERVAL} s")


class Sampler(Source[Any]):
    """Reads collectors once a slot, and yields their records as one batch.

    Slots are the multiples of the interval since the epoch, and every message carries exactly its
    slot's time, so that the series of all nodes align. Each collector may have its own interval,
    and all are read in threads: a batch waits for slow ones only for `timeout`; later records are
    in the next batch. A collector that is still busy at its own next slot is cut off: it is not
    read again meanwhile, and the records of that reading are dropped.
    """

    def __init__(
        self,
        settings: SamplerSettings,
        *,
        once: bool = False,
        at_start: Collection[str] = (),
        gives: type[Records] = Lines,
        pack: Callable[[list[TaggedRecords]], Records] | None = None,
        record: type[Any] = Message,
        make_error: MakeError | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Sample according to `settings`, which ``reload`` can change; with `once`, one batch.

        Collectors named in `at_start` are also read at the start. `record` is the class of
        collectors' records, of which `pack` makes a batch, by default the ``Lines`` of messages;
        `make_error` makes a record of a failure.
        """
        self.gives = gives
        self._pack = pack or MessageColumns()
        self._record = record
        self.armed = asyncio.Event()  # set when waiting for the first slot
        self.expected = math.inf
        """Monotonic time by which it continues at the latest; infinite while a batch is being
        processed."""
        self._once = once
        self._at_start = at_start
        self._make_error = make_error
        self._telemetry = telemetry or Telemetry()
        self._telemetry.declare(self._telemetry.missed, self)
        self._stopped = asyncio.Event()
        self._awake = asyncio.Event()  # ends a sleep early
        self._soft = SoftErrors()
        self._threads = ReadingThreads()
        self._scheduled: dict[str, _ScheduledCollector] = {}
        self._pending: dict[Reading, _Pending] = {}
        self._errors: list[Any] = []
        self._absent: list[str] = []
        self._last: dict[int, tuple[int, float]] = {}  # slot and monotonic time, by interval
        self._began = False
        self.reload(settings)
        self._awake.clear()

    def reload(self, settings: SamplerSettings) -> None:
        """Change collectors or intervals from the next slot on.

        Collectors that are the same objects as before continue. Pending readings of removed ones
        are still yielded. New ones are read once immediately, without yielding the records, so
        that they have rates in their first slot.
        """
        self._settings = settings
        timeout = settings.timeout
        self._timeout = settings.min_interval / 40 if timeout is None else timeout
        ticks = {name: _ticks(settings.interval_of(name)) for name in settings.collectors}
        self._intervals = sorted(set(ticks.values())) or [_ticks(settings.interval)]
        self._last = {every: last for every, last in self._last.items() if every in self._intervals}
        self._schedule(settings.collectors, ticks)
        self._awake.set()

    def _schedule(self, collectors: Mapping[str, Collector], ticks: Mapping[str, int]) -> None:
        before, self._scheduled = self._scheduled, {}
        new = []
        for name, collector in collectors.items():
            each = before.get(name)
            if each is not None and each.reader.collector is collector:
                each.interval = ticks[name]
            else:
                each = _ScheduledCollector(CollectorReader(name, collector), ticks[name])
                new.append(each)
            self._scheduled[name] = each
        for name, each in before.items():
            if self._scheduled.get(name) is not each:
                each.reader.end()
        if self._began and new:
            first = [each for each in new if each.reader.name in self._at_start]
            self._start_readings(first, _whole_second())
            others = [each.reader for each in new if each.reader.name not in self._at_start]
            self._threads.prime(others, time.time_ns())

    def states(self) -> dict[str, dict[str, Any]]:
        """Return each collector's interval in seconds, and its state: on, off or late."""
        return {
            name: {"interval": each.interval / _SECOND, "state": each.state}
            for name, each in self._scheduled.items()
        }

    def stop(self) -> None:
        self._stopped.set()
        self._awake.set()

    async def batches(self) -> AsyncIterator[Batch[Any]]:
        self._began = True
        try:
            async with contextlib.aclosing(
                self._single_sample() if self._once else self._slots()
            ) as all_:
                async for parts in all_:
                    if parts:
                        self.expected = math.inf
                        yield Batch(self._pack(parts), origin="sampler")
        finally:
            for reading in self._pending:
                reading.cancel()
            for each in self._scheduled.values():
                each.reader.end()
            self._threads.close()

    async def _slots(self) -> AsyncGenerator[list[TaggedRecords]]:
        """Yield the records of `at_start`, then of each slot."""
        if first := [each for name, each in self._scheduled.items() if name in self._at_start]:
            now = time.time_ns()
            pending = self._start_readings(first, _whole_second())
            until_slot = (self._after(now) - now) / _SECOND
            yield await self._collect(pending, min(self._timeout, until_slot))
        while (slot := await self._next_slot()) is not None:
            self._count_missed(slot)
            yield await self._collect(self._read_due(slot), self._timeout)
        yield await self._collect([], 0)

    async def _single_sample(self) -> AsyncGenerator[list[TaggedRecords]]:
        """Take both readings of the only sample; yield nothing if stopped between them."""
        interval = self._intervals[0]
        self.armed.set()
        await self._collect(self._read_due(0, every=True), _ONCE_TIMEOUT)
        await self._pause(min(_FIRST_PAUSE, interval / _SECOND))
        if self._stopped.is_set():
            return
        slot = time.time_ns() // interval * interval
        parts = await self._collect(self._read_due(slot, every=True), _ONCE_TIMEOUT)
        for each, *_ in self._pending.values():
            log.warning("collector %s timed out, not in the sample", each.reader.name)
        yield parts

    async def _next_slot(self) -> int | None:
        """Wait for the next slot of any collector to begin; return None at the end.

        A sleep does not follow the wall clock when it is set or corrected, so the clock is
        checked afterwards: outside the slot, wait for another one. The same happens after a
        reload; a slot that had begun by then is sampled normally.
        """
        while True:
            now, min_interval = time.time_ns(), self._intervals[0]
            slot = self._after(now)
            late = random.uniform(0, self._settings.jitter)  # noqa: S311 - no secret
            wait = (slot - now) / _SECOND
            self.expected = time.monotonic() + wait + late + self._timeout
            self.armed.set()
            if not await self._pause(wait + late):
                return None
            if slot <= time.time_ns() < slot + min_interval:
                return slot

    def _after(self, now: int) -> int:
        return min((now // interval + 1) * interval for interval in self._intervals)

    async def _pause(self, seconds: float) -> bool:
        """Sleep until something changes, at most `seconds`; return whether to go on."""
        if not self._stopped.is_set():
            self._awake.clear()
            now = asyncio.get_running_loop().time()
            await wait_for_own_event(self._awake, now + seconds)
        return not self._stopped.is_set()

    def _count_missed(self, slot: int) -> None:
        """Count the slots between two samples of each interval.

        Slots that the wall clock jumped over do not count: at most as many as fit the elapsed time.
        """
        for interval in self._intervals:
            if slot % interval == 0:
                last, timestamp = self._last.get(interval), time.monotonic()
                self._last[interval] = slot, timestamp
                if last is not None:
                    passed = math.ceil((timestamp - last[1]) * _SECOND / interval)
                    if (missed := min((slot - last[0]) // interval, passed) - 1) > 0:
                        self._telemetry.count(self._telemetry.missed, self, missed)
                        log.warning("%d slots passed without a sample", missed)

    def _read_due(self, slot: int, *, every: bool = False) -> list[Reading]:
        """Start reading the collectors that are due, except for those that are busy or off."""
        self._forget_removed()
        now, due = time.monotonic(), []
        for each in self._scheduled.values():
            if not (every or slot % each.interval == 0):
                continue
            if each.reader.is_busy:
                self._cut_off(each, slot)
            elif now >= each.retry_at:
                if each.is_late:
                    log.info("collector %s responds again", each.reader.name)
                each.is_late = False
                due.append(each)
        return self._start_readings(due, slot)

    def _start_readings(self, due: Sequence[_ScheduledCollector], slot: int) -> list[Reading]:
        readings = self._threads.read([each.reader for each in due], slot)
        for reading, each in zip(readings, due, strict=True):
            self._pending[reading] = _Pending(each, slot, self._settings.tags, self._settings.units)
        return readings

    def _cut_off(self, scheduled: _ScheduledCollector, slot: int) -> None:
        name = scheduled.reader.name
        self._telemetry.count(self._telemetry.missed, name)
        self._drop(
            [
                reading
                for reading, pending in self._pending.items()
                if pending.scheduled is scheduled
            ]
        )
        what = self._threads.activity(scheduled.reader)
        self._report(slot, f"collector {name} {what}: no sample of this slot")
        if not scheduled.is_late:
            scheduled.is_late = True
            log.warning("collector %s %s at its next slot: cut off", name, what)

    def _forget_removed(self) -> None:
        """Stop waiting for collectors that a reload removed a slot ago."""
        stay = {id(each) for each in self._scheduled.values()}
        self._drop(
            [
                reading
                for reading, pending in self._pending.items()
                if id(pending.scheduled) not in stay and not reading.done()
            ]
        )

    def _drop(self, readings: list[Reading]) -> None:
        for reading in readings:
            del self._pending[reading]
            reading.cancel()

    async def _collect(self, pending: list[Reading], seconds: float) -> list[TaggedRecords]:
        """Wait for the readings just started, at most `seconds`; return all records so far."""
        await self._threads.wait(pending, seconds)
        parts = []
        for reading in [reading for reading in self._pending if reading.done()]:
            each, slot, tags, units = self._pending.pop(reading)
            self._count_soft(each)
            error = reading.exception()
            if error is not None:
                self._note(each, slot, error)
                continue
            try:
                _check(records := reading.result(), self._record)
            except WrongRecordError as wrong:
                self._note(each, slot, wrong)
                continue
            parts += [TaggedRecords(records, tags, units)] if records else []
            if each.is_off:
                log.info("collector %s is on again", each.reader.name)
            each.is_off, each.has_reported = False, True
        self._log_absent()
        if self._errors:
            parts.append(TaggedRecords(self._errors))
            self._errors = []
        return parts

    def _count_soft(self, scheduled: _ScheduledCollector) -> None:
        soft = getattr(scheduled.reader.collector, "soft", None)
        if isinstance(soft, SoftErrors) and soft.count > scheduled.soft_errors:
            count, scheduled.soft_errors = soft.count - scheduled.soft_errors, soft.count
            self._telemetry.count(self._telemetry.failed_reads, scheduled.reader.name, count)

    def _note(self, scheduled: _ScheduledCollector, slot: int, error: BaseException) -> None:
        name = scheduled.reader.name
        self._report(slot, f"collector {name}: {error}")
        absent = isinstance(error, OSError) and error.errno in _ABSENT
        if absent or isinstance(error, MissingExtra | WrongRecordError):
            scheduled.retry_at = time.monotonic() + _RETRY_SECONDS
            if not scheduled.is_off:
                scheduled.is_off = True
                # Missing hardware is normal; missing rights or packages are not.
                is_normal = isinstance(error, OSError) and not isinstance(error, PermissionError)
                if is_normal and not scheduled.has_reported:
                    log.debug("collector %s is off: %s", name, error)
                    self._absent.append(name)
                else:
                    log.warning("collector %s is off: %s", name, error)
        else:
            self._telemetry.count(self._telemetry.failed_reads, name)
            expected = isinstance(error, CcpipeError | OSError)
            text = f"collector {name}: {type(error).__name__}: {error}"
            self._soft.note(text, None if expected else error)

    def _log_absent(self) -> None:
        if self._absent:
            names = ", ".join(sorted(self._absent))
            log.info("collectors without data on this machine: %s", names)
            self._absent = []

    def _report(self, slot: int, text: str) -> None:
        if self._make_error is not None:
            self._errors.append(self._make_error(slot, text))


class WrongRecordError(TypeError):
    """A collector returned a record of the wrong type."""


def _check(records: list[Any], wanted: type[Any]) -> None:
    for kind in set(map(type, records)):
        if not issubclass(kind, wanted):
            record = next(each for each in records if type(each) is kind)
            raise WrongRecordError(f"expected {wanted.__name__}, got {record!r:.80}")


def _whole_second() -> int:
    """Return the time of a sample outside the slots."""
    return time.time_ns() // _SECOND * _SECOND


def _ticks(interval: float) -> int:
    return round(interval * _SECOND)
