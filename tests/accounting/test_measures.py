"""Measures of jobs: waits, buckets of a distribution, days of the local clock."""

import math
from collections import Counter
from datetime import datetime

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.accounting.measures import ACCURACY, buckets, each, measure, percentile, period

TIMES = st.none() | st.integers(0, 2**63 - 1)
AMOUNTS = st.floats(allow_nan=False)

few = settings(max_examples=50)


@few
@given(value=st.floats(0, 1e300, exclude_min=True) | st.just(0.0) | st.floats(-1e9, 0))
def test_a_bucket_is_about_as_large_as_its_values(value: float) -> None:
    """Within half a percent, however large or small; what is not above 0 is 0."""
    (bucket,) = buckets(pa.array([value])).to_pylist()
    found = percentile(Counter({bucket: 1}), 50)
    assert math.isclose(found, max(value, 0.0), rel_tol=ACCURACY * 1.001)


@few
@given(
    counts=st.dictionaries(st.integers(-500, 500), st.integers(1, 5), min_size=1),
    low=st.floats(0, 100),
    high=st.floats(0, 100),
)
def test_percentiles_grow_with_the_percentage(
    counts: dict[int, int], low: float, high: float
) -> None:
    """And lie between the least and the greatest."""
    low, high = sorted((low, high))
    found = [percentile(Counter(counts), p) for p in (0, low, high, 100)]
    assert found == sorted(found)
    assert len({percentile(Counter({b: 1}), 50) for b in counts}) == len(counts)


@few
@given(seconds=st.lists(st.none() | st.integers(0, 2**33), max_size=10))
def test_periods_are_those_of_the_clock(seconds: list[int | None]) -> None:
    """The same day that Python's local time has; null stays null."""
    times = pa.array([None if s is None else s * 10**9 + 1 for s in seconds], pa.int64())
    wanted = [None if s is None else f"{datetime.fromtimestamp(s):%Y-%m-%d}" for s in seconds]  # noqa: DTZ006
    assert period(times, "%Y-%m-%d").to_pylist() == wanted


@given(start=TIMES, submission=TIMES, wallclock=AMOUNTS, memory=AMOUNTS, slots=st.integers(-9, 9))
def test_any_numbers_can_be_measured(
    start: int | None, submission: int | None, wallclock: float, memory: float, slots: int
) -> None:
    """Times of a wrong unit and amounts near the limits of a double raise no error."""
    columns = {
        "is_master": pa.array([True]),
        "is_run": pa.array([True]),
        "slots": pa.array([slots], pa.int64()),
        "submission_time": pa.array([submission], pa.int64()),
        "start_time": pa.array([start], pa.int64()),
        "wallclock": pa.array([wallclock], pa.float64()),
        "memory": pa.array([memory], pa.float64()),
        "requested_memory": pa.array([memory], pa.float64()),
        "outcome": pa.array(["completed"]),
        "ends_job": pa.array([True]),
    }
    measured = measure(columns)
    for name in ("wait", "wallclock", "memory"):
        for bucket in buckets(measured[name]).drop_null().to_pylist():
            percentile(Counter({bucket: 1}), 50)
    known = start is not None and submission is not None
    assert measured["started"].to_pylist() == [int(known)]


@few
@given(rows=st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 3))))
def test_each_row_gets_its_result_and_equal_rows_share_a_call(
    rows: list[tuple[str, int | None]],
) -> None:
    """Nulls are values like others; the function is asked once for each combination."""
    asked = []

    def describe(letter: str, number: int | None) -> str:
        asked.append((letter, number))
        return f"{letter}{number}"

    columns = [
        pa.array([letter for letter, _ in rows], pa.string()),
        pa.chunked_array([pa.array([number for _, number in rows], pa.int64())]),
    ]
    assert each(columns, describe, pa.string()).to_pylist() == [f"{a}{b}" for a, b in rows]
    assert sorted(map(str, asked)) == sorted(map(str, set(rows)))
