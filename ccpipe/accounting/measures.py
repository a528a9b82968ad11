"""What accounting records tell beyond what qacct sums, as columns and as sketches of them."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from ccpipe.errors import MissingExtra
from ccpipe.formats.gridengine import parse_category
from ccpipe.formats.gridengine.outcome import GRACE, classify, is_final

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

FIELDS = (
    "slots", "failed", "exit_status", "submission_time", "start_time", "pe_taskid", "category",
    "deleted_by", "maxvmem", "maxrss", "ru_maxrss", "ru_wallclock",
)  # fmt: skip
"""The columns of records that ``measure`` needs."""

MEASURES = ("wait", "wallclock", "memory")
"""Of what there are percentiles: seconds waited and run, and bytes of memory at the peak."""

ACCURACY = 0.005
"""How far a percentile may be from the exact one, as a share of it."""

NO_DATA = 2.0**64
"""What OCS before 9.1.4 can write for an unknown ``maxrss``; see ``Accounting.maxrss``."""

_GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
_ZERO = -(2**31)
"""The bucket of what is not greater than 0."""


def measure(table: pa.Table) -> dict[str, Any]:
    """Return columns, one value for each record: what it counts for in each sum.

    A PE task counts for nothing here: its wait, slots and requests are those of its job.
    """
    is_master = pc.is_null(table["pe_taskid"])
    slots = pc.cast(table["slots"], pa.float64())
    wallclock = pc.fill_null(table["ru_wallclock"], 0.0)
    memory = _memory(table)
    wait = pc.cast(pc.subtract(table["start_time"], table["submission_time"]), pa.float64())
    wait = pc.divide(pc.if_else(pc.less(wait, 0), 0.0, wait), 1e9)
    wait = pc.if_else(is_master, wait, None)
    asked = each([table["category"]], _requested_memory, pa.float64())
    has_asked = pc.and_(is_master, pc.is_valid(asked))
    return {
        "wait": wait,
        "wallclock": wallclock,
        "memory": memory,
        "is_run": pc.and_(is_master, pc.not_equal(table["exit_status"], -1)),
        "slot_seconds": pc.if_else(is_master, pc.multiply(wallclock, slots), 0.0),
        "waited": wait,
        "started": pc.cast(pc.is_valid(wait), pa.int64()),
        "requested": pc.if_else(has_asked, pc.multiply(asked, slots), 0.0),
        "used": pc.if_else(has_asked, memory, 0.0),
        "requests": pc.cast(has_asked, pa.int64()),
        **_outcomes(table, wallclock),
    }


def _memory(table: pa.Table) -> Any:
    """Return bytes at the peak: virtual memory, or resident memory where it was not measured."""
    vmem, rss, kib = (pc.fill_null(table[n], 0.0) for n in ("maxvmem", "maxrss", "ru_maxrss"))
    is_known = pc.and_(pc.greater(rss, 0), pc.less(rss, NO_DATA))
    rss = pc.if_else(is_known, rss, pc.multiply(kib, 1024.0))
    return pc.if_else(pc.greater(vmem, 0), vmem, rss)


def _requested_memory(category: str) -> float | None:
    return parse_category(category).h_vmem


def _outcomes(table: pa.Table, wallclock: Any) -> dict[str, Any]:
    """Return the outcome, and whether the job ends with the record."""
    told_by = [table["failed"], table["exit_status"], pc.is_valid(table["start_time"])]

    def outcome(
        failed: int, status: int, started: bool, who: str | None = None, is_late: bool = False
    ) -> str:
        limit = 0.0 if is_late else None
        return classify(
            failed=failed, exit_status=status, started=started, deleted_by=who or "", limit=limit
        )

    def ends_job(failed: int, status: int, started: bool) -> bool:
        return status != -1 and is_final(failed, started=started)

    deleter = table["deleted_by"]
    if deleter.null_count == table.num_rows:  # so are all classic records
        outcomes = each(told_by, outcome, pa.string())
    else:
        limit = each([table["category"]], lambda text: parse_category(text).h_rt, pa.float64())
        late = pc.greater_equal(wallclock, pc.subtract(limit, GRACE))
        outcomes = each([*told_by, deleter, pc.fill_null(late, False)], outcome, pa.string())
    return {"outcome": outcomes, "ends_job": each(told_by, ends_job, pa.bool_())}


def each(columns: Sequence[Any], function: Callable[..., Any], kind: pa.DataType) -> Any:
    """Apply a function to the values of each row; it is called once for equal ones."""
    codes: Any = None
    texts = []
    for column in columns:
        encoded = pc.dictionary_encode(_whole(column), null_encoding="encode")
        indices = pc.cast(encoded.indices, pa.int64())
        texts.append(encoded.dictionary.to_pylist())
        codes = indices if codes is None else pc.add(pc.multiply(codes, len(texts[-1])), indices)
    distinct = pc.dictionary_encode(codes)
    results = []
    for code in distinct.dictionary.to_pylist():
        values = []
        for text in reversed(texts):
            code, index = divmod(code, len(text))  # noqa: PLW2901 - digit by digit
            values.append(text[index])
        results.append(function(*reversed(values)))
    return pa.array(results, kind).take(distinct.indices)


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


_QUARTER = 15 * 60
"""Seconds; the days of every zone begin with one."""


def period(times: Any, form: str) -> Any:
    """Name the day or month of nanoseconds, as this place's clock has it; null stays null."""

    def name(quarter: int | None) -> str | None:
        if quarter is None:
            return None
        return datetime.fromtimestamp(quarter * _QUARTER).strftime(form)  # noqa: DTZ006

    return each([pc.divide(times, _QUARTER * 10**9)], name, pa.string())


def buckets(values: Any) -> Any:
    """Return for each value the number of a bucket; all in one bucket are about the same.

    A bucket is ``ACCURACY`` wide to both sides (the sketch is that of DDSketch, VLDB 2019).
    """
    logarithm = pc.divide(pc.ln(pc.if_else(pc.greater(values, 0), values, 1.0)), math.log(_GAMMA))
    number = pc.cast(pc.ceil(logarithm), pa.int64())
    return pc.if_else(pc.greater(values, 0), number, _ZERO)


def percentile(counts: Counter[int], percentage: float) -> float:
    """Return the value below or at which so much of the counted lies, by nearest rank."""
    wanted = percentage / 100 * counts.total()
    so_far = 0
    for bucket in sorted(counts):
        so_far += counts[bucket]
        if so_far >= wanted:
            break
    return 0.0 if bucket == _ZERO else 2 * _GAMMA**bucket / (_GAMMA + 1)
