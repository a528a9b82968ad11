"""What collectors share: errors that cost one reading, and rates of counters.

A collector that reads many things surrounds each reading with ``noted()`` and calls ``report()``
once they are done, in an attribute ``soft``, from which the sampler counts them: each error is
counted, and logged once. Only what can be read at all makes an error one of a single reading: with
nothing read, ``report`` raises it.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Generic, TypeVar

from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.metrics import Metric

log = logging.getLogger(__name__)

_MAX_TEXTS = 1000  # that are remembered as logged


class SoftErrors:
    """The errors so far, by their texts."""

    def __init__(self, collector: str = "") -> None:
        self._prefix = f"collector {collector}: " if collector else ""
        self._reported: set[str] = set()
        self._errors: list[Exception] = []
        self.count = 0  # number of errors, whether they were logged or not
        self.last: list[str] = []  # the errors of the last reading

    def note(self, text: str, error: BaseException | None = None, times: int = 1) -> None:
        """Log a text that was not logged before, with the traceback of `error` if there is one.

        It counts as `times` errors.
        """
        self.count += times
        if text not in self._reported and len(self._reported) < _MAX_TEXTS:
            self._reported.add(text)
            log.warning("%s%s", self._prefix, text, exc_info=error)

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Go on after an error of one reading."""
        try:
            yield
        except (OSError, DataError) as error:
            self._errors.append(error)

    def report(self, found: object) -> None:
        """Note the errors since the last call; raise the first one if nothing was found."""
        errors, self._errors = self._errors, []
        self.last = list(map(str, errors))
        if errors and not found:
            raise errors[0]
        for error in errors:
            self.note(str(error))


def new_errors(collector: object, before: int) -> int:
    """Return how many errors of single readings a collector has had beyond `before`."""
    soft = getattr(collector, "soft", None)
    return soft.count - before if isinstance(soft, SoftErrors) else 0


T = TypeVar("T")


class Previous(Generic[T]):
    """The reading before this one, by device or the like, and how long ago it was."""

    def __init__(self) -> None:
        self._reading: Mapping[str, T] = {}
        self._read_at = 0.0

    def swap(self, now: Mapping[str, T]) -> tuple[Mapping[str, T], float]:
        """Keep what was read just now; return what was read before, and the seconds between."""
        before, read_at = self._reading, monotonic()
        seconds = read_at - self._read_at
        self._reading, self._read_at = now, read_at
        return before, seconds


def rates(before: Sequence[int] | None, now: Sequence[int], seconds: float) -> list[float]:
    """Return by how much each counter of a device grew in a second.

    None is known, and the list empty, where ``proc.gained`` has no answer.
    """
    gains = proc.gained(before, now)
    return [gain / seconds for gain in gains] if gains is not None and seconds > 0 else []


def rate_rows(rows: Iterable[Metric], suffix: str) -> tuple[Metric, ...]:
    """Return the table of the rates of counters: ``net_bytes_in_bw`` of ``net_bytes_in``."""
    return tuple(
        row._replace(name=row.name + suffix, unit=f"{row.unit}/s", kind=float) for row in rows
    )


def emit(
    rows: Sequence[Metric], values: Sequence[float], time: int, tags: Mapping[str, str]
) -> Iterator[Message]:
    for row, value in zip(rows, values, strict=False):
        yield metric(row.name, value, time=time, tags=tags)
