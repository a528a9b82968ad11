"""Records as bytes."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError, EncodeError
from ccpipe.node.gather.jobacct import JobacctInfo, TaskId, create, pack, unpack

COUNTS = st.integers(0, 2**64 - 1)
RESOURCES = st.sampled_from(["cpu", "mem", "energy", "fs/disk", "gres/gpumem"])


@st.composite
def records(draw: st.DrawFn) -> JobacctInfo:
    """Make a record as polling does."""
    info = create(TaskId(draw(st.none() | st.integers(0, 2**32)), draw(st.integers(0, 2**20))))
    info.user, info.system, info.pid = draw(COUNTS), draw(COUNTS), draw(st.integers(0, 2**22))
    for resource in draw(st.sets(RESOURCES)):
        info.update(resource, draw(COUNTS), out=draw(st.booleans()))
    return info


@given(records())
def test_a_record_comes_back_as_it_was(info: JobacctInfo) -> None:
    """With every count of 64 bits."""
    assert unpack(pack(info)) == info


def test_no_record_is_one_in_which_nothing_is_set() -> None:
    """As Slurm packs a null structure."""
    assert unpack(pack(None)) == create()


@given(st.binary(max_size=200) | records().map(pack).map(lambda data: data[:-3] + b"\xc1" * 3))
def test_any_bytes_are_a_record_or_a_named_error(data: bytes) -> None:
    """Nothing else is raised."""
    with contextlib.suppress(DataError):
        assert isinstance(unpack(data), JobacctInfo)


def test_a_record_of_another_version_is_refused_by_number() -> None:
    """It says which version it is."""
    data = msgspec.msgpack.encode([2, {"anything": 1}])
    with pytest.raises(DataError, match="version 2, this is 1"):
        unpack(data)


def test_a_field_of_a_later_release_is_ignored() -> None:
    """Fields may be added without a new version."""
    data = msgspec.msgpack.encode([1, {"user": 5, "later": [1]}])
    assert unpack(data) == JobacctInfo(user=5)


def test_negative_counts_are_refused() -> None:
    """No counter is below 0."""
    with pytest.raises(DataError, match="user"):
        unpack(msgspec.msgpack.encode([1, {"user": -5}]))


def test_a_count_beyond_64_bits_cannot_be_packed() -> None:
    """The error is a named one."""
    with pytest.raises(EncodeError):
        pack(JobacctInfo(user=2**64))
