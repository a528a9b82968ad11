"""Sums of accounting records equal a plain loop, whatever the block size.

Measures of jobs: waits, buckets of a distribution, days of the local clock.
"""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.accounting import sums as accounting_sums
from ccpipe.accounting.gridengine import GRID_ENGINE, KEYS, SUMS
from ccpipe.accounting.sums import ACCURACY, GroupTotal, buckets, each, measure, percentile, period
from ccpipe.formats.gridengine import Accounting, Outcome
from ccpipe.formats.gridengine.columns import from_records
from tests.accounting.accounting_records import RECORDS, SECOND, START

Sums = partial(accounting_sums.Sums, scheduler=GRID_ENGINE)


def added(
    found: Sequence[Accounting], sums: accounting_sums.Sums, *, parts: int = 1
) -> list[GroupTotal]:
    size = max(1, math.ceil(len(found) / parts))
    for begin in range(0, len(found), size):
        sums.add(from_records(found[begin : begin + size], sums.columns))
    return sums.totals()


def run(seconds: float, **fields: object) -> Accounting:
    usage = {
        "rusage": {"ru_wallclock": seconds, "ru_utime": seconds, "ru_stime": 0.0},
        "eusage": {"cpu": seconds, "mem": 0.0, "io": 0.0, "iow": 0.0},
    }
    known = {"job_number": 1, "slots": 1, "submission_time": START, "start_time": START}
    return Accounting(**{**known, "usage": usage, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [1, 7, 2**16])
@given(found=st.lists(RECORDS, max_size=40), parts=st.integers(1, 5))
def test_sums_equal_plain_loop_bitwise(found: list[Accounting], parts: int, batch: int) -> None:
    """Each sum is added record by record, in order."""
    wanted: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: dict.fromkeys(SUMS, 0.0))
    for record in found:
        row = wanted[record.owner, record.project or "NONE"]
        for title, name in SUMS.items():
            container = "rusage" if name.startswith("ru_") else "eusage"
            row[title] += record.amount(container, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounting_sums, "_BATCH", batch)
        totals = added(found, Sums(["user", "project"]), parts=parts)
    assert {(t.key["user"], t.key["project"]): t.sums for t in totals} == wanted
    assert [tuple(t.key.values()) for t in totals] == sorted(wanted)


@given(found=st.lists(RECORDS, max_size=40))
def test_sums_count_runs_jobs_and_outcomes_like_records(found: list[Accounting]) -> None:
    """Counting by columns equals counting records."""
    (total,) = added(found, Sums()) or [GroupTotal(key={}, sums={})]
    masters = [record for record in found if record.pe_taskid is None]
    runs = [record for record in masters if not record.is_intermediate]
    assert total.records == len(found)
    assert total.runs == len(runs)
    assert total.outcomes == Counter(record.outcome for record in runs)
    assert total.jobs == sum(record.is_final for record in runs)
    asked = [record for record in masters if record.requests.h_vmem]
    assert total.requests == len(asked)
    assert total.requested == sum(r.slots * (r.requests.h_vmem or 0) for r in asked)
    assert total.used == sum(record.maxvmem or record.maxrss for record in asked)
    assert total.slot_seconds == sum(record.wallclock * record.slots for record in masters)
    waits = [
        max(0, record.start_time - record.submission_time)
        for record in masters
        if record.start_time is not None and record.submission_time is not None
    ]
    assert total.started == len(waits)
    assert total.waited == pytest.approx(sum(waits) / SECOND)


@given(found=st.lists(RECORDS, min_size=1, max_size=40))
def test_short_sums_equal_full_sums(found: list[Accounting]) -> None:
    """Omitting measures does not change qacct's sums."""
    whole = added(found, Sums(["queue", "slots"]))
    short = added(found, Sums(["queue", "slots"], only_qacct=True))
    assert [(t.key, t.sums, t.records) for t in short] == [
        (t.key, t.sums, t.records) for t in whole
    ]


@given(found=st.lists(RECORDS, min_size=1, max_size=30), by=st.permutations(list(KEYS)))
def test_groups_add_up_to_total(found: list[Accounting], by: list[str]) -> None:
    """Whatever the keys, each record counts once."""
    totals = added(found, Sums(by[:3]))
    (whole,) = added(found, Sums())
    # A group by outcome has PE tasks too: they have one as well, and count as no run.
    assert sum(total.records for total in totals) == whole.records
    assert sum(total.runs for total in totals) == whole.runs
    assert len({tuple(total.key.items()) for total in totals}) == len(totals)


@given(
    seconds=st.lists(st.integers(0, 10**6), min_size=1, max_size=60),
    percentage=st.sampled_from([0.0, 5.0, 50.0, 95.0, 99.9, 100.0]),
)
def test_percentiles_are_accurate(seconds: list[int], percentage: float) -> None:
    """By nearest rank, within half a percent; memory does not grow with the records."""
    (total,) = added([run(s) for s in seconds], Sums(percentages=[percentage]), parts=3)
    rank = max(1, math.ceil(percentage / 100 * len(seconds)))
    exact = sorted(seconds)[rank - 1]
    assert total.percentiles["wallclock"][percentage] == pytest.approx(exact, rel=0.0051)


def test_efficiency_is_cpu_time_over_slot_time() -> None:
    """PE tasks add CPU time; slots and wall-clock time are the master's."""
    usage = {"rusage": {"ru_wallclock": 10}, "eusage": {"cpu": 12.0}}
    task = run(9, slots=4, pe_taskid="1.n1", usage=usage)
    (total,) = added([task, run(10, slots=4)], Sums())
    assert total.efficiency == (12 + 10) / 40
    assert total.slot_seconds == 40


def test_sums_have_no_shares_and_means_without_records() -> None:
    (total,) = added([run(0, start_time=None, slots=0)], Sums())
    assert (total.efficiency, total.wait, total.memory_share) == (None, None, None)
    assert added([], Sums()) == []


def test_failed_runs_exclude_requeued() -> None:
    """A requeued run has not failed; a failed start has."""
    outcomes = [run(1), run(1, exit_status=1), run(1, failed=25), run(1, failed=8, start_time=None)]
    (total,) = added(outcomes, Sums())
    assert (total.failed, total.runs, total.failed_share) == (2, 4, 0.5)
    assert total.outcomes[Outcome.REQUEUED] == 1


def test_days_and_months_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the job's end; without an end the key is ``NONE``."""
    monkeypatch.setenv("TZ", "Asia/Kathmandu")  # 05:45 before UTC
    time.tzset()
    try:
        midnight = int(datetime(2026, 11, 20).astimezone().timestamp()) * SECOND
        assert midnight % (3600 * SECOND) == 900 * SECOND
        found = [run(1, end_time=midnight), run(1, end_time=midnight - SECOND), run(1)]
        assert [t.key["day"] for t in added(found, Sums(["day"]))] == [
            "2026-11-19",
            "2026-11-20",
            "NONE",
        ]
        assert [t.key["month"] for t in added(found, Sums(["month"]))] == ["2026-11", "NONE"]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_host_names_are_case_insensitive() -> None:
    """The first spelling is shown, like in qacct."""
    found = [run(1, hostname="Node1"), run(1, hostname="node1"), run(1, hostname="node2")]
    assert [(t.key["node"], t.records) for t in added(found, Sums(["node"]))] == [
        ("Node1", 2),
        ("node2", 1),
    ]


TIMES = st.none() | st.integers(0, 2**63 - 1)
AMOUNTS = st.floats(allow_nan=False)


@given(value=st.floats(0, 1e300, exclude_min=True) | st.just(0.0) | st.floats(-1e9, 0))
def test_buckets_are_accurate(value: float) -> None:
    """Within half a percent, for any magnitude; values up to 0 are 0."""
    (bucket,) = buckets(pa.array([value])).to_pylist()
    found = percentile(Counter({bucket: 1}), 50)
    assert math.isclose(found, max(value, 0.0), rel_tol=ACCURACY * 1.001)


@given(
    counts=st.dictionaries(st.integers(-500, 500), st.integers(1, 5), min_size=1),
    low=st.floats(0, 100),
    high=st.floats(0, 100),
)
def test_percentiles_are_monotonic(counts: dict[int, int], low: float, high: float) -> None:
    """And lie between minimum and maximum."""
    low, high = sorted((low, high))
    found = [percentile(Counter(counts), p) for p in (0, low, high, 100)]
    assert found == sorted(found)
    assert len({percentile(Counter({b: 1}), 50) for b in counts}) == len(counts)


@given(seconds=st.lists(st.none() | st.integers(0, 2**33), max_size=10))
def test_period_equals_local_time(seconds: list[int | None]) -> None:
    """Like Python's local time; null stays null."""
    times = pa.array([None if s is None else s * 10**9 + 1 for s in seconds], pa.int64())
    wanted = [None if s is None else f"{datetime.fromtimestamp(s):%Y-%m-%d}" for s in seconds]  # noqa: DTZ006
    assert period(times, "%Y-%m-%d").to_pylist() == wanted


@given(start=TIMES, submission=TIMES, wallclock=AMOUNTS, memory=AMOUNTS, slots=st.integers(-9, 9))
def test_measure_accepts_any_numbers(
    start: int | None, submission: int | None, wallclock: float, memory: float, slots: int
) -> None:
    """Times in a wrong unit and amounts near the limits of a double raise no error."""
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


@given(rows=st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 3))))
def test_each_calls_function_once_for_equal_rows(
    rows: list[tuple[str, int | None]],
) -> None:
    """Nulls are values like others."""
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
