"""The compiled kernel gives what Python gives: columns, and the lines of jobs."""

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.gridengine.columns import (
    SCHEMA,
    read_compiled,
    read_in_python,
)
from ccpipe.formats.gridengine.kernel import KERNEL
from ccpipe.formats.gridengine.search import search_in_python
from tests.conftest import needs_kernel
from tests.formats.gridengine.accounting_samples import SAMPLES, mutated
from tests.formats.gridengine.test_search import JOBS, PAYLOADS

EVERYTHING = SCHEMA.names


@needs_kernel
@given(
    st.lists(st.sampled_from(SAMPLES).flatmap(mutated), min_size=1, max_size=3).map(b"".join),
    st.lists(st.sampled_from(EVERYTHING), min_size=1, max_size=6),
)
def test_kernel_and_python_give_one_answer_for_any_columns(
    payload: bytes, names: list[str]
) -> None:
    """Damaged lines of either format, whichever columns are read: same rows, same rejections."""
    compiled = read_compiled(payload, names, 10, 100)
    python = read_in_python(payload, names, 10, 100)
    assert compiled.table.equals(python.table)
    assert compiled.rejected == python.rejected
    assert (compiled.size, compiled.lines) == (python.size, python.lines)


@needs_kernel
@given(payload=PAYLOADS, jobs=JOBS)
def test_kernel_and_python_find_the_same_lines(payload: bytes, jobs: list[int]) -> None:
    """Whatever the bytes."""
    assert KERNEL is not None
    assert KERNEL.search(payload, jobs) == search_in_python(payload, jobs)
