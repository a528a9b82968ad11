"""Joining payloads for decoding: each call costs far more than a few of its lines."""

from array import array
from bisect import bisect_left
from itertools import accumulate

from ccpipe.formats.lineprotocol.kernel import KERNEL


def join(payloads: list[bytes]) -> "tuple[bytes, array[int]] | None":
    """Join payloads, each ending in LF; return that and where each ends.

    None if they cannot be decoded together: a string may hold line ends, and an open one would
    swallow the payloads that follow, as would an open escape. So there is no quotation mark in
    any of them, and no backslash at the end.
    """
    if KERNEL is not None:
        joined: tuple[bytes, array[int]] | None = KERNEL.join(payloads)
        return joined
    return join_in_python(payloads)


def join_in_python(payloads: list[bytes]) -> "tuple[bytes, array[int]] | None":
    """Join without the compiled kernel: its twin."""
    parts = [each if each.endswith(b"\n") else each + b"\n" for each in payloads]
    whole = b"".join(parts)
    if b'"' in whole or any(each.endswith(b"\\") for each in payloads):
        return None
    return whole, array("q", accumulate(map(len, parts)))


def rows_before(starts: "array[int]", ends: "array[int]") -> "array[int]":
    """Return the number of rows that start before each of `ends`; both columns ascend."""
    if KERNEL is not None:
        counts: array[int] = KERNEL.rows_before(starts, ends)
        return counts
    return rows_before_in_python(starts, ends)


def rows_before_in_python(starts: "array[int]", ends: "array[int]") -> "array[int]":
    """Count without the compiled kernel: its twin."""
    return array("q", [bisect_left(starts, end) for end in ends])
