"""Some rows of columns, and whether those of a line stay together."""

from array import array
from itertools import compress
from operator import not_
from typing import TypeVar

from ccpipe.formats.lineprotocol.kernel import KERNEL

Number = TypeVar("Number", int, float)


def kept(column: "array[Number]", flags: bytes) -> "array[Number]":
    """Return the cells whose flags are not 0; there is one for each row."""
    if KERNEL is not None:
        found: array[Number] = KERNEL.kept(column, flags)
        return found
    return kept_in_python(column, flags)


def kept_in_python(column: "array[Number]", flags: bytes) -> "array[Number]":
    """Do it without the compiled kernel: its twin."""
    return array(column.typecode, compress(column, flags))


def keeps_lines_whole(starts: "array[int]", flags: bytes) -> bool:
    """Return whether of each line all rows are kept or none; its rows begin at the same byte."""
    whole: bool | None = KERNEL.keeps_lines_whole(starts, flags) if KERNEL is not None else None
    return keeps_lines_whole_in_python(starts, flags) if whole is None else whole


def keeps_lines_whole_in_python(starts: "array[int]", flags: bytes) -> bool:
    """Say it without the compiled kernel, and where lines do not stand in their order."""
    dropped = set(compress(starts, map(not_, flags)))
    return dropped.isdisjoint(compress(starts, flags))
