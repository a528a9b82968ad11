"""Decoding many plain lines at once, in pure Python: it makes the kernel's twin fast.

A plain line is a known series, one float with a known field key, and a timestamp, separated by
single spaces. All of them pass through a few loops that run in C.
"""

from collections.abc import Callable
from itertools import accumulate
from math import inf
from operator import add

from ccpipe.formats.lineprotocol.grammar import STAMP
from ccpipe.formats.lineprotocol.lines import Lines

CHUNK = 2**16
"""Bytes processed at once."""
MIN_CHUNK = 500
"""Size in bytes below which line by line is faster."""


def add_plain_lines(
    lines: Lines, start: int, end: int, time_of: Callable[[bytes], int | None]
) -> bool:
    """Add the lines of a part of the payload, which ends in LF; false if one is not plain.

    `time_of` returns nanoseconds for a timestamp, None if it is out of range.
    """
    part = lines.payload[start:end]
    # One flat list of words; each third one includes the line end, which verifies the structure.
    words = part.replace(b"\n", b"\n ").split(b" ")
    count = len(words) // 3
    keys, fields, stamps = words[:-1:3], words[1::3], words[2::3]
    pairs = b"\n".join(fields).replace(b"\n", b"\n=").split(b"=")  # and so do theirs
    if len(words) != 3 * count + 1 or len(pairs) != 2 * count or part.count(b"\n") != count:
        return False
    names, tokens = pairs[::2], pairs[1::2]
    try:
        numbers = list(map(float, tokens))
    except ValueError:
        return False
    series = list(map(lines.table.codes.get, keys))
    field_codes = list(map(lines.table.field_codes.get, names))
    digits = b",%b," % b",".join(tokens).replace(b"\n", b"")
    # float() accepts more than the grammar does: +1, 1_0, inf.
    is_plain = not digits.translate(None, b"0123456789.eE+-,") and b",+" not in digits
    if not is_plain or None in series or None in field_codes or inf in map(abs, numbers):
        return False
    times: dict[bytes, int] = {}
    for stamp in set(stamps):
        digits = stamp.removesuffix(b"\n")
        time = time_of(digits) if digits != stamp and STAMP.fullmatch(digits) else None
        if time is None:
            return False
        times[stamp] = time
    sizes = list(map(len, part.split(b"\n")[:-1]))
    starts = list(accumulate([size + 1 for size in sizes[:-1]], initial=start))
    lines.series.extend(series)  # type: ignore[arg-type] # there is no None in it
    lines.fields.extend(field_codes)  # type: ignore[arg-type]
    lines.numbers.extend(numbers)
    lines.times.extend(map(times.__getitem__, stamps))
    lines.starts.extend(starts)
    lines.ends.extend(map(add, starts, sizes))
    lines.types.frombytes(bytes(count))  # FLOAT is 0
    lines.exact.frombytes(bytes(8 * count))
    lines.bare_points |= any(bare in digits for bare in (b",.", b",-.", b".,", b".e", b".E"))
    return True
