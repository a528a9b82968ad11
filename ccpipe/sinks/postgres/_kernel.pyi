# What ``_kernel.pyx`` offers.

from array import array
from collections.abc import Mapping, Sequence

from ccpipe.formats.lineprotocol import Lines

def unknown_pairs(lines: Lines, ids: Mapping[int, array[int]]) -> list[tuple[int, int]]: ...
def days(lines: Lines) -> set[int]: ...
def rows(lines: Lines, ids: Mapping[int, array[int]], texts: Sequence[bytes]) -> bytearray: ...
