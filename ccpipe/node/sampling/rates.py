"""Rates of counters, from one reading to the next."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Generic, TypeVar

from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.metrics import Metric

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
