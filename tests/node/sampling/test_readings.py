"""``ccpipe.node.sampling.readings``: errors that are told once, and rates of counters."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.node.sampling.readings import SoftErrors, rates


def test_each_text_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Two of them with the same errors tell them both: each belongs to one collector."""
    one, other = SoftErrors(), SoftErrors()
    for errors in (one, one, other):
        errors.note("a")
        errors.note("b")
    assert [record.message for record in caplog.records] == ["a", "b", "a", "b"]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_an_unexpected_error_comes_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("no luck")
    except ValueError as error:
        SoftErrors().note("a", error)
    assert "test_readings.py" in caplog.text


def test_memory_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Texts that are never the same stop being told, rather than being remembered without end."""
    errors = SoftErrors()
    for number in range(5000):
        errors.note(str(number))
    assert len(caplog.records) == 1000


@given(
    st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)), max_size=5),
    st.floats(0.001, 1e6),
)
def test_counters_grow_by_their_difference_over_the_time(
    pairs: list[tuple[int, int]], elapsed: float
) -> None:
    before, now = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if any(new < old for old, new in pairs):
        assert rates(before, now, elapsed) == []
    else:
        assert rates(before, now, elapsed) == [(new - old) / elapsed for old, new in pairs]


@pytest.mark.parametrize(
    ("before", "elapsed"), [(None, 1.0), ([1], 0.0), ([1], -1.0), ([1, 2], 1.0)]
)
def test_no_rate_is_made_up(before: list[int] | None, elapsed: float) -> None:
    """Neither for a new device, nor without time, nor where its counters are others now."""
    assert rates(before, [3], elapsed) == []
