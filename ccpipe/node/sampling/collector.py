"""The interface of collectors, and helpers to write them.

A collector declares its metrics in ``METRICS``; ``scripts/collector_pages.py`` generates
``docs/collectors/`` from it. A collector that reads many things has an attribute ``soft``, wraps
each reading in ``soft.noted()`` and calls ``soft.report()`` at the end: the sampler counts each
error, and each text is logged once. If every reading failed, ``report`` raises the first error.
"""

import contextlib
import importlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import metadata
from time import monotonic
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from ccpipe.errors import DataError
from ccpipe.formats.units import parse_unit
from ccpipe.message import Message
from ccpipe.node.linux import proc

log = logging.getLogger(__name__)


class Collector(Protocol):
    """Measures one thing. It may keep a reading, to report differences next time."""

    @abstractmethod
    def collect(self, time: int) -> Iterable[Any]:
        """Read once and return metrics of the slot `time`, in nanoseconds since the epoch.

        The messages carry the collector's own tags only (``type``, ``type-id``, ``stype``,
        ``stype-id``); Sonar's collectors return envelopes. It is called in any of several
        threads, never twice at once, and may block for a short time. One that reads many things
        has an attribute ``soft``, of `SoftErrors`, for errors of single readings.

        Raises
        ------
        OSError, MissingExtra
            if this machine has no such hardware or service: the collector pauses for a minute.

        """
        ...


class CollectorGroup(ABC):
    """Several collectors under one name and one set of options, each read by itself."""

    @abstractmethod
    def collectors(self) -> Mapping[str, Collector]:
        """Return the collectors by what follows the group's name and a dot in the log."""


AVERAGED = frozenset({"percent", "temperature", "hertz", "revolution", "volt"})
"""Quantities averaged over the parts of a node; the others are summed."""

POWERS = ("cpu_power", "mem_power", "nv_power_usage", "rocm_avg_power")
"""Metrics of a node's parts that add up to the energy of a job."""
PLATFORM_POWER = "platform_power"
"""The power of a whole node, which includes all others."""


def power_metrics(names: Collection[str]) -> list[str]:
    """Return those of some metrics that add up to a node's power."""
    if PLATFORM_POWER in names:
        return [PLATFORM_POWER]
    return [name for name in POWERS if name in names]


class Metric(NamedTuple):
    """One row of a collector's table ``METRICS``."""

    name: str
    unit: str
    """Empty for a plain number or count."""
    kind: type[float | str]
    """``int``, ``float`` or ``str``: the type of the value on the wire."""
    meaning: str
    types: tuple[str, ...] = ("node",)
    """Values of the tag ``type``."""
    stype: str = ""
    """Value of the tag ``stype``, or empty."""
    part: str = ""
    """The same for parts of the device, where these are reported too; else empty."""
    family: str = ""
    """The row of the pages for all metrics that differ only in a part of their names, such as
    ``nfs4_<operation>``; else empty."""

    @property
    def measure(self) -> str:
        """The quantity; empty for numbers without a unit and unknown units."""
        try:
            return parse_unit(self.unit).measure if self.unit else ""
        except DataError:
            return ""

    @property
    def is_averaged(self) -> bool:
        """Whether the metric is averaged over the parts of a node, as ratios are, not summed."""
        is_ratio = not self.unit and self.kind is float
        return is_ratio or self.measure in AVERAGED


def declared() -> list[Metric]:
    """Return the declared metrics of all collectors, plug-ins included."""
    modules = {entry.module for entry in metadata.entry_points(group="ccpipe.collectors")}
    rows: list[Metric] = []
    for name in sorted(modules):
        with contextlib.suppress(Exception):  # a broken plug-in is reported where it is constructed
            rows += getattr(importlib.import_module(name), "METRICS", ())
    return rows


def units() -> dict[str, str]:
    return {row.name: row.unit for row in declared() if row.unit}


_MAX_TEXTS = 1000  # remembered as already logged


class SoftErrors:
    """The errors so far, by their texts."""

    def __init__(self, collector: str = "") -> None:
        self._prefix = f"collector {collector}: " if collector else ""
        self._reported: set[str] = set()
        self._errors: list[Exception] = []
        self.count = 0  # number of errors, whether they were logged or not
        self.last: list[str] = []  # the errors of the last reading

    def note(self, text: str, error: BaseException | None = None, times: int = 1) -> None:
        """Log a text once, with the traceback of `error` if given.

        It counts as `times` errors.
        """
        self.count += times
        if text not in self._reported and len(self._reported) < _MAX_TEXTS:
            self._reported.add(text)
            log.warning("%s%s", self._prefix, text, exc_info=error)

    def noted(self) -> Self:
        """Return a context that records an error of one reading instead of raising it."""
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, OSError | DataError):
            return False
        self._errors.append(error)
        return True

    def add(self, errors: Iterable[OSError | DataError]) -> None:
        """Record errors of single readings that were not raised."""
        self._errors += errors

    def report(self, found: object) -> None:
        """Note the errors since the last call; raise the first one if nothing was found."""
        errors, self._errors = self._errors, []
        self.last = list(map(str, errors))
        if errors and not found:
            raise errors[0]
        for error in errors:
            self.note(str(error))


T = TypeVar("T")


class Previous(Generic[T]):
    """The reading before this one, by device or the like, and how long ago it was."""

    def __init__(self) -> None:
        self._reading: Mapping[str, T] = {}
        self._read_at = 0.0

    def swap(self, now: Mapping[str, T]) -> tuple[Mapping[str, T], float]:
        """Store a reading; return the previous one, and the seconds between them."""
        before, read_at = self._reading, monotonic()
        seconds = read_at - self._read_at
        self._reading, self._read_at = now, read_at
        return before, seconds


def rates(before: Sequence[int] | None, now: Sequence[int], seconds: float) -> list[float]:
    """Return the increase per second of each counter of a device.

    The list is empty if ``proc.gained`` returns None.
    """
    gains = proc.gained(before, now)
    return [gain / seconds for gain in gains] if gains is not None and seconds > 0 else []


def gains(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Return the increase of each counter that both readings of a device have.

    It is empty if ``proc.gained`` returns None.
    """
    names = [name for name in now if name in before]
    found = proc.gained([before[name] for name in names], [now[name] for name in names])
    return dict(zip(names, found or [], strict=False))


def rate_rows(rows: Iterable[Metric], suffix: str) -> tuple[Metric, ...]:
    """Return the table of the rates of counters: ``net_bytes_in_bw`` of ``net_bytes_in``."""
    return tuple(
        row._replace(name=row.name + suffix, unit=f"{row.unit}/s", kind=float) for row in rows
    )


def difference_rows(rows: Iterable[Metric]) -> tuple[Metric, ...]:
    return tuple(
        row._replace(name=f"{row.name}_diff", meaning=f"{row.meaning}, since the last sample")
        for row in rows
    )


def emit(
    rows: Sequence[Metric], values: Sequence[float], time: int, tags: Mapping[str, str]
) -> list[Message]:
    return [Message(row.name, tags, value, time) for row, value in zip(rows, values, strict=False)]
