"""Reading and setting parts of a record."""

import os
from typing import Any

import pytest

from ccpipe.node.gather.jobacct import (
    DataType,
    JobacctError,
    Rusage,
    TaskId,
    create,
    get_info,
    set_info,
)

NUMBERS = [kind for kind in DataType if kind.value.startswith(("max", "min", "tot_"))]


@pytest.mark.parametrize("kind", NUMBERS, ids=lambda kind: str(kind.value))
def test_each_part_is_read_as_it_was_set(kind: DataType) -> None:
    """And is unset before."""
    info = create()
    assert get_info(info, kind) is None
    value: Any = TaskId(3, 1) if kind.value.endswith("_id") else 12345
    set_info(info, kind, value)
    assert get_info(info, kind) == value


def test_total_is_a_copy_both_ways() -> None:
    """Neither record changes with the other."""
    info, other = create(TaskId(1, 0)), create()
    info.update("mem", 5)
    set_info(other, DataType.TOTAL, info)
    taken = get_info(info, DataType.TOTAL)
    info.update("mem", 9)
    assert get_info(other, DataType.MAX_RSS) == taken.usage_in["mem"].max == 5


def test_a_pipe_carries_a_record() -> None:
    """What is written to one end is read at the other."""
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
    """It knows of what ended between two polls; it lowers nothing."""
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
    """The record stays as it was."""
    info = create()
    with pytest.raises(JobacctError):
        set_info(info, kind, data)
    assert info == create()


def test_bytes_in_a_pipe_that_are_no_record_are_a_named_error() -> None:
    """Also a length that nobody writes."""
    for data, reason in ((b"\x02\0\0\0xx", "not a packed record"), (b"\xff" * 4, "too long")):
        reader, writer = os.pipe()
        os.write(writer, data)
        with pytest.raises(JobacctError, match=reason):
            get_info(create(), DataType.PIPE, reader)
        os.close(writer)
        os.close(reader)
