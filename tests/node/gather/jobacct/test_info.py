"""Reading and setting parts of a record."""

import contextlib
import os
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError, EncodeError
from ccpipe.node.gather.jobacct import (
    DataType,
    JobacctError,
    JobacctInfo,
    Rusage,
    TaskId,
    create,
    get_info,
    pack,
    set_info,
    unpack,
)

NUMBERS = [kind for kind in DataType if kind.value.startswith(("max", "min", "tot_"))]


@pytest.mark.parametrize("kind", NUMBERS, ids=lambda kind: str(kind.value))
def test_each_part_is_read_as_it_was_set(kind: DataType) -> None:
    info = create()
    assert get_info(info, kind) is None
    value: Any = TaskId(3, 1) if kind.value.endswith("_id") else 12345
    set_info(info, kind, value)
    assert get_info(info, kind) == value


def test_total_is_a_copy_both_ways() -> None:
    info, other = create(TaskId(1, 0)), create()
    info.update("mem", 5)
    set_info(other, DataType.TOTAL, info)
    taken = get_info(info, DataType.TOTAL)
    info.update("mem", 9)
    assert get_info(other, DataType.MAX_RSS) == taken.usage_in["mem"].max == 5


def test_a_pipe_carries_a_record() -> None:
    info, other = create(TaskId(1, 0)), create()
    info.update("mem", 5)
    reader, writer = os.pipe()
    set_info(info, DataType.PIPE, writer)
    assert get_info(other, DataType.PIPE, reader) == info
    os.close(writer)
    with pytest.raises(JobacctError, match="ended within a record"):
        get_info(other, DataType.PIPE, reader)
    os.close(reader)


def test_rusage_raises_what_was_polled() -> None:
    info = create(TaskId(0, 0))
    info.user, info.system = 500_000, 400_000
    info.update("cpu", 900)
    info.update("mem", 50)
    set_info(info, DataType.RUSAGE, Rusage(1_500_000, 100_000, 70, 3))
    assert get_info(info, DataType.RUSAGE) == Rusage(1_500_000, 400_000)
    assert info.usage_in["cpu"].total == 1900
    assert (info.usage_in["mem"].max, info.usage_in["mem"].total) == (70, 50)
    assert info.usage_in["pages"].total == 3


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (DataType.TOTAL, 5),
        (DataType.RUSAGE, (1, 2)),
        (DataType.MAX_RSS, "5"),
        (DataType.MAX_RSS, -1),
        (DataType.MAX_RSS_ID, 3),
        (DataType.PIPE, None),
        (DataType.PIPE, 2**20),
    ],
)
def test_data_that_does_not_fit_is_a_named_error(kind: DataType, data: Any) -> None:
    info = create()
    with pytest.raises(JobacctError):
        set_info(info, kind, data)
    assert info == create()


def test_bytes_in_a_pipe_that_are_no_record_are_a_named_error() -> None:
    for data, reason in ((b"\x02\0\0\0xx", "not a packed record"), (b"\xff" * 4, "too long")):
        reader, writer = os.pipe()
        os.write(writer, data)
        with pytest.raises(JobacctError, match=reason):
            get_info(create(), DataType.PIPE, reader)
        os.close(writer)
        os.close(reader)


COUNTS = st.integers(0, 2**64 - 1)
RESOURCES = st.sampled_from(["cpu", "mem", "energy", "fs/disk", "gres/gpumem"])


@st.composite
def records(draw: st.DrawFn) -> JobacctInfo:
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


@pytest.mark.parametrize(
    ("packed", "reason"),
    [([2, {"anything": 1}], "version 2, this is 1"), ([1, {"user": -5}], "user")],
)
def test_another_version_and_negative_counts_are_refused(packed: object, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        unpack(msgspec.msgpack.encode(packed))


def test_a_field_of_a_later_release_is_ignored() -> None:
    """Fields may be added without a new version."""
    data = msgspec.msgpack.encode([1, {"user": 5, "later": [1]}])
    assert unpack(data) == JobacctInfo(user=5)


def test_a_count_beyond_64_bits_cannot_be_packed() -> None:
    with pytest.raises(EncodeError):
        pack(JobacctInfo(user=2**64))
