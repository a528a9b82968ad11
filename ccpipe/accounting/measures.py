"""Measures of finished jobs beyond plain sums, as columns, and sketches of their distribution.

``SchedulerColumns`` is what they and ``Sums`` have to know of a scheduler's records.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ccpipe.errors import MissingExtra

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

OUTCOME = "outcome"
"""The column of ``measure`` with how a run ended; no record has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerColumns:
    """How tables of a scheduler's records are grouped, summed and measured."""

    keys: Mapping[str, str]
    """By name of a key to group by: its column; ``OUTCOME`` for how the run ended."""
    sums: Mapping[str, str]
    """By title of a sum: the column that is summed."""
    cpu: str
    """The title of the sum of CPU time, in seconds."""
    fields: tuple[str, ...]
    job_columns: Callable[[Any], dict[str, Any]]
    """Converts a table to the columns that ``measure`` takes."""
    good: frozenset[str]
    """Outcomes of runs that did not fail."""


MEASURES = ("wait", "wallclock", "memory")
"""Measures with percentiles: seconds waited and run, and peak memory in bytes."""

ACCURACY = 0.005
"""Largest error of a percentile, as a share of the exact value."""

_GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
_ZERO = -(2**31)
"""The bucket of values that are not greater than 0."""


def _float(number: float) -> Any:
    return pa.scalar(number, pa.float64())


_NOTHING, _ONE, _SECOND, _MAX = map(_float, (0.0, 1.0, 1e9, 1e300))
_NO_BUCKET = pa.scalar(_ZERO, pa.int64())
_UNKNOWN = pa.scalar(None, pa.float64())


def each(columns: Sequence[Any], function: Callable[..., Any], kind: pa.DataType) -> Any:
    """Apply a function to the values of each row; it is called once for equal rows."""
    codes: Any = None
    values_of = []
    for column in columns:
        encoded = pc.dictionary_encode(_whole(column), null_encoding="encode")
        indices = pc.cast(encoded.indices, pa.int64())
        values_of.append(encoded.dictionary.to_pylist())
        count = pa.scalar(len(values_of[-1]), pa.int64())
        codes = indices if codes is None else pc.add(pc.multiply(codes, count), indices)
    distinct = pc.dictionary_encode(codes)
    results = []
    for code in distinct.dictionary.to_pylist():
        row = []
        for values in reversed(values_of):
            code, index = divmod(code, len(values))  # noqa: PLW2901 - digit by digit
            row.append(values[index])
        results.append(function(*reversed(row)))
    return pa.array(results, kind).take(distinct.indices)


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def measure(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns with the contribution of each record to each sum.

    Takes ``is_master``, ``is_run``, ``slots``, ``submission_time`` and ``start_time`` (ns),
    ``wallclock`` (s), ``memory`` and ``requested_memory`` (bytes, of all slots together),
    ``outcome``, ``ends_job``. A
    task of a parallel job contributes nothing: its wait, slots and requests are those of its job.
    """
    is_master, memory = columns["is_master"], columns["memory"]
    slots = pc.cast(columns["slots"], pa.float64())
    wait = pc.subtract(columns["start_time"], columns["submission_time"])
    wait = pc.cast(wait, pa.float64(), safe=False)  # beyond 2**53 it is rounded
    wait = pc.divide(pc.if_else(pc.less(wait, _NOTHING), _NOTHING, wait), _SECOND)
    wait = pc.if_else(is_master, wait, _UNKNOWN)
    requested = columns["requested_memory"]
    has_request = pc.and_(is_master, pc.is_valid(requested))
    slot_seconds = pc.multiply(columns["wallclock"], slots)
    return {
        "wait": wait,
        "wallclock": columns["wallclock"],
        "memory": memory,
        "is_run": columns["is_run"],
        "slot_seconds": pc.if_else(is_master, slot_seconds, _NOTHING),
        "waited": wait,
        "started": pc.cast(pc.is_valid(wait), pa.int64()),
        "requested": pc.if_else(has_request, requested, _NOTHING),
        "used": pc.if_else(has_request, memory, _NOTHING),
        "requests": pc.cast(has_request, pa.int64()),
        "outcome": columns["outcome"],
        "ends_job": columns["ends_job"],
    }


_QUARTER = 15 * 60
"""Seconds; in every time zone a day starts at a multiple of it."""
_QUARTER_NS = pa.scalar(_QUARTER * 10**9, pa.int64())


def period(times: Any, form: str) -> Any:
    """Return the day or month of times in nanoseconds, in local time; null stays null."""

    def name(quarter: int | None) -> str | None:
        if quarter is None:
            return None
        return datetime.fromtimestamp(quarter * _QUARTER).strftime(form)  # noqa: DTZ006

    return each([pc.divide(times, _QUARTER_NS)], name, pa.string())


def buckets(values: Any) -> Any:
    """Return the number of a bucket for each value; values of one bucket are about equal.

    The bounds of a bucket are ``ACCURACY`` from its middle (DDSketch, VLDB 2019).
    """
    is_positive = pc.greater(values, _NOTHING)
    bounded = pc.if_else(pc.less(values, _MAX), values, _MAX)
    logarithm = pc.divide(pc.ln(pc.if_else(is_positive, bounded, _ONE)), _LOG_GAMMA)
    return pc.if_else(is_positive, pc.cast(pc.ceil(logarithm), pa.int64()), _NO_BUCKET)


_LOG_GAMMA = _float(math.log(_GAMMA))


def percentile(counts: Counter[int], percentage: float) -> float:
    """Return the percentile of the counted values, by nearest rank."""
    wanted = percentage / 100 * counts.total()
    so_far = 0
    for bucket in sorted(counts):
        so_far += counts[bucket]
        if so_far >= wanted:
            break
    return 0.0 if bucket == _ZERO else 2 * _GAMMA**bucket / (_GAMMA + 1)
