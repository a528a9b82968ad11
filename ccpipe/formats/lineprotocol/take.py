"""Selecting rows of columns, and checking whether lines stay whole."""

from array import array
from itertools import compress
from operator import not_
from typing import TypeVar

from ccpipe.formats.lineprotocol.kernel import KERNEL

Number = TypeVar("Number", int, float)


def kept(column: "array[Number]", flags: bytes) -> "array[Number]":
    """Return the cells whose flags are not 0; there is one flag per row."""
    if KERNEL is not None:
        found: array[Number] = KERNEL.kept(column, flags)
        return found
    return kept_in_python(column, flags)


def kept_in_python(column: "array[Number]", flags: bytes) -> "array[Number]":
    """Select without the compiled kernel: its twin."""
    return array(column.typecode, compress(column, flags))


def keeps_lines_whole(starts: "array[int]", flags: bytes) -> bool:
    """Return whether all rows of each line are kept or none; rows of a line share their start."""
    whole: bool | None = KERNEL.keeps_lines_whole(starts, flags) if KERNEL is not None else None
    return keeps_lines_whole_in_python(starts, flags) if whole is None else whole


def keeps_lines_whole_in_python(starts: "array[int]", flags: bytes) -> bool:
    """Check without the compiled kernel, or if lines are not in order."""
    dropped = set(compress(starts, map(not_, flags)))
    return dropped.isdisjoint(compress(starts, flags))
