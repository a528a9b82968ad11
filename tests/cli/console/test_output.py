"""Tables that fit the terminal."""

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli.console.output import MIN_WIDTH, fit


def test_columns_fit_line() -> None:
    """The longest texts are cut first, then the last columns are left out."""
    assert fit([4, 30, 20], [True, False, False], 80) == [4, 30, 20]
    assert fit([4, 30, 20], [True, False, False], 50) == [4, 22, 20]
    assert fit([4, 30, 20], [True, False, False], 24) == [4, 8, 8]
    assert fit([4, 30, 20], [True, False, False], 23) == [4, 17]
    assert fit([30, 5], [True, False], 20) == [30]


@given(st.lists(st.tuples(st.integers(1, 10**6), st.booleans()), min_size=1), st.integers(20, 200))
def test_columns_fit_line_of_any_length(columns: list[tuple[int, bool]], room: int) -> None:
    """Numbers are never cut, and texts not below their minimum."""
    widths, is_number = [list(part) for part in zip(*columns, strict=True)]
    kept = fit(widths, is_number, room)
    assert kept
    assert len(kept) == 1 or sum(kept) + 2 * (len(kept) - 1) <= room
    for width, (full, number) in zip(kept, columns, strict=False):
        assert width == full if number else min(full, MIN_WIDTH) <= width <= full
