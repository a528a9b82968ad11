"""Chunks deflated at level 0."""

import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.slurm_profile.hdf5 import Array
from ccpipe.formats.slurm_profile.hdf5.stored import unpack_stored


def grid(chunks: list[bytes], level: int = 0) -> Array:
    """Return deflated chunks of one size, one in each row."""
    rows = [np.frombuffer(zlib.compress(chunk, level), np.uint8) for chunk in chunks]
    return np.stack(rows)


@given(st.integers(1, 200), st.integers(1, 5), st.integers(0, 2**32))
def test_stored_chunks_are_joined(size: int, count: int, seed: int) -> None:
    """The contents are what was deflated, in order."""
    data = np.random.default_rng(seed).bytes(size * count)
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    assert unpack_stored(grid(chunks)) == data


def test_other_chunks_are_left_to_zlib() -> None:
    """Compressed ones, and any with a changed byte: in the head, the records or the checksum."""
    assert unpack_stored(grid([bytes(100)], level=6)) is None
    chunks = grid([b"first record", b"other record"])
    for column in range(chunks.shape[1]):
        changed = chunks.copy()
        changed[1, column] ^= 1
        assert unpack_stored(changed) is None
