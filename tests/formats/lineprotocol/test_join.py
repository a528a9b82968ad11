"""Payloads that are decoded together."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol.join import (
    join,
    join_in_python,
    rows_before,
    rows_before_in_python,
)

payloads = st.lists(
    st.lists(st.sampled_from([b"m v=1 5", b"\n", b'"', b"\\", b"\0", b"x"]), max_size=4).map(
        b"".join
    ),
    max_size=6,
)


@given(payloads)
def test_kernel_and_python_join_alike(payloads: list[bytes]) -> None:
    """Both give the same bytes and ends, or both leave the payloads alone."""
    assert join(payloads) == join_in_python(payloads)


@given(payloads)
def test_every_payload_is_found_again_at_its_end(payloads: list[bytes]) -> None:
    """Each keeps its bytes, and ends in one LF, its own or one that was added."""
    joined = join(payloads)
    if any(b'"' in payload or payload.endswith(b"\\") for payload in payloads):
        assert joined is None
        return
    assert joined is not None
    whole, ends = joined
    starts = [0, *ends[:-1]]
    for payload, start, end in zip(payloads, starts, ends, strict=False):
        assert whole[start:end] == (payload if payload.endswith(b"\n") else payload + b"\n")
    assert len(whole) == (ends[-1] if ends else 0)


columns = st.lists(st.integers(0, 20)).map(lambda found: array("q", sorted(found)))


@given(columns, columns)
def test_rows_before_each_end(starts: "array[int]", ends: "array[int]") -> None:
    """Kernel and twin count the rows of the payloads up to each end, some without any."""
    expected = [sum(start < end for start in starts) for end in ends]
    assert list(rows_before(starts, ends)) == expected
    assert rows_before_in_python(starts, ends) == rows_before(starts, ends)
