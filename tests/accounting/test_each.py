"""Python functions on columns: one call for each combination of values."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.accounting.each import each


@settings(max_examples=50)
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
