"""How times, tasks, groups and days are typed for ``ccpipe acct``."""

import contextlib
import grp
import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli.acct.gridengine import DAY, Filters, GridEngineTimes, group_name, task_ranges
from ccpipe.cli.acct.table import SECOND, parse_time
from ccpipe.errors import UsageError


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("202611201042", "2026-11-20 10:42:00"),
        ("202611201042.59", "2026-11-20 10:42:59"),
        ("2611201042", "2026-11-20 10:42:00"),
        ("6911201042", "2069-11-20 10:42:00"),
        ("7011201042", "1970-11-20 10:42:00"),
        ("202607201042", "2026-07-20 10:42:00"),
        ("01020304.05", f"{datetime.now():%Y}-01-02 03:04:05"),  # noqa: DTZ005
        ("2026-11-20", "2026-11-20 00:00:00"),
        ("2026-11-20T10:42", "2026-11-20 10:42:00"),
        ("2026-11-20T10:42:00Z", "2026-11-20 11:42:00"),
    ],
)
def test_times_are_read_in_qacct_and_iso_form(text: str, local: str) -> None:
    """Local time without a zone, this year without one; two digits of a year below 70: 20YY."""
    timestamp = datetime.fromtimestamp(parse_time(text, "--since") / SECOND)  # noqa: DTZ006
    assert str(timestamp) == local


@pytest.mark.parametrize("text", ["", "now", "20261320", "202611201060", "12345", "99999999999999"])
def test_invalid_time_is_rejected_with_flag(text: str) -> None:
    """The message has the flag, the text and the expected form."""
    with pytest.raises(UsageError, match=r"--until: not a time: .* \(expected e.g. 14:30, 2025"):
        parse_time(text, "--until")


@given(st.text())
def test_any_text_is_time_or_usage_error(text: str) -> None:
    """No other error is raised."""
    for parse in (lambda: parse_time(text, "-b"), lambda: task_ranges(text)):
        with contextlib.suppress(UsageError):
            assert parse() is not None


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("3", [3]),
        ("1-4", [1, 2, 3, 4]),
        ("2-7:2", [2, 4, 6]),
        ("2-7:0", [2, 3, 4, 5, 6, 7]),
        ("1,8-9", [1, 8, 9]),
    ],
)
def test_tasks_are_read_in_qsub_form(text: str, tasks: list[int]) -> None:
    """n[-m[:s]], and several with commas; a step of 0 is 1, as in qacct."""
    assert [task for found in task_ranges(text) for task in found] == tasks


@pytest.mark.parametrize("text", ["", "4-1", "-3", "1-", "1:2", "1-4:x", "1,,2"])
def test_invalid_tasks_are_rejected(text: str) -> None:
    """A range that runs backwards is refused rather than empty."""
    with pytest.raises(UsageError, match="tasks are given as n"):
        task_ranges(text)


def test_days_count_from_since_or_until() -> None:
    """After --since, before --until, before now; ignored with both, as in qacct."""
    begin, end = parse_time("202611010000", "-b"), parse_time("202611200000", "-e")
    after = Filters(times=GridEngineTimes(since="202611010000", days=3)).selection()
    assert (after.begin, after.end) == (begin, begin + 3 * DAY)
    before = Filters(times=GridEngineTimes(until="202611200000", days=3, ended=True)).selection()
    assert (before.begin, before.end, before.by_end) == (end - 3 * DAY, end, True)
    both = Filters(
        times=GridEngineTimes(since="202611010000", until="202611200000", days=3)
    ).selection()
    assert (both.begin, both.end) == (begin, end)
    last = Filters(times=GridEngineTimes(days=2)).selection()
    assert last.end is None
    assert abs((last.begin or 0) + 2 * DAY - time.time_ns()) < 60 * SECOND


def test_groups_match_by_number_or_name() -> None:
    """A group's number selects its name if this machine knows it."""
    known = grp.getgrall()[0]
    assert group_name(str(known.gr_gid)) == known.gr_name
    assert group_name("4294967294999") == "4294967294999"
    assert group_name("physics") == "physics"


def test_jobs_match_by_number_or_name() -> None:
    """Digits are a number; all else is a pattern for the name."""
    selection = Filters(job=("42", "sim*", "4x")).selection()
    assert (selection.jobs, selection.names) == ((42,), ("sim*", "4x"))


@pytest.mark.parametrize(
    ("filters", "reason"),
    [
        (Filters(times=GridEngineTimes(days=-1)), "--days -1"),
        (Filters(job=("9" * 30,)), "beyond 64 bits"),
        (Filters(slots=(2**70,)), "beyond 64 bits"),
        (Filters(ar=(-(2**70),)), "beyond 64 bits"),
    ],
)
def test_impossible_numbers_are_rejected(filters: Filters, reason: str) -> None:
    """No record has them, and they would fail later; days do not run backwards."""
    with pytest.raises(UsageError, match=reason):
        filters.selection()
