"""Some rows of columns: the twin, and the kernel against it."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol.kernel import KERNEL
from ccpipe.formats.lineprotocol.take import (
    keeps_lines_whole,
    keeps_lines_whole_in_python,
    kept,
    kept_in_python,
)
from tests.conftest import needs_kernel

ROWS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0, 1, 1, 255])), max_size=30)


@given(ROWS, st.sampled_from("bBhiqd"))
def test_the_rows_with_a_flag_are_kept(rows: list[tuple[int, int]], typecode: str) -> None:
    """In their order, whatever the width of a cell; kernel and twin alike."""
    column, flags = array(typecode, [cell for cell, _ in rows]), bytes(flag for _, flag in rows)
    assert list(kept(column, flags)) == [cell for cell, flag in rows if flag]
    assert kept(column, flags) == kept_in_python(column, flags)
    assert kept(column, flags).typecode == typecode


@given(ROWS, st.booleans())
def test_a_line_is_whole_or_not(rows: list[tuple[int, int]], ascending: bool) -> None:
    """Rows of a line begin at the same byte; kernel and twin alike, in any order of lines."""
    starts = array("q", [cell for cell, _ in (sorted(rows) if ascending else rows)])
    flags = bytes(flag for _, flag in (sorted(rows) if ascending else rows))
    states = {(start, bool(flag)) for start, flag in zip(starts, flags, strict=True)}
    expected = len(states) == len(set(starts))
    assert keeps_lines_whole(starts, flags) is expected
    assert keeps_lines_whole_in_python(starts, flags) is expected


@needs_kernel
def test_there_is_a_flag_for_each_row() -> None:
    """The kernel reads no others."""
    assert KERNEL is not None
    for flags in (b"", b"123"):
        with pytest.raises(ValueError, match="flag"):
            KERNEL.kept(array("q", [1, 2]), flags)
        with pytest.raises(ValueError, match="flag"):
            KERNEL.keeps_lines_whole(array("q", [1, 2]), flags)
