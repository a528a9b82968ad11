"""Numbers that stand for none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.slurm_profile.missing import INFINITE_MEBIBYTES, find_missing

SENTINELS = [2**64 - 1, 2**64 - 2, 17_592_186_044_415]


@pytest.mark.parametrize("value", SENTINELS)
def test_sentinels_are_missing_as_integers_and_as_floating_point_numbers(value: int) -> None:
    """INFINITE64 and NO_VAL64, and INFINITE64 as MiB."""
    assert find_missing(np.array([0, value, 5], "<u8"), mebibytes=False).tolist() == [0, 1, 0]
    assert find_missing(np.array([0, value, 5], "<f8"), mebibytes=False).tolist() == [0, 1, 0]
    assert find_missing(np.array([float("nan"), float("inf")]), mebibytes=False).all()


def test_memory_that_was_never_set_is_missing() -> None:
    """A number of MiB above all bytes there can be, as Slurm 24.11 left it in GPUMemMB."""
    values = np.array([13_777_113_939_066_564_900, INFINITE_MEBIBYTES, 40_000], "<u8")
    assert find_missing(values, mebibytes=True).tolist() == [True, True, False]


@given(st.lists(st.integers(0, 2**43)), st.booleans())
def test_all_other_numbers_are_values(values: list[int], mebibytes: bool) -> None:
    """Nothing real is taken for a sentinel."""
    assert not find_missing(np.array(values, "<u8"), mebibytes=mebibytes).any()
    assert not find_missing(np.array(values, "<f8"), mebibytes=mebibytes).any()
