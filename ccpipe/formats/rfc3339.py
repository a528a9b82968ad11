"""RFC 3339 times in UTC, with nanosecond resolution."""

import functools
import re
from datetime import UTC, datetime, timedelta

from ccpipe.errors import DataError, EncodeError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(nanoseconds: int) -> str:
    """Return a time as ``2025-02-20T05:05:51Z``, with nine decimals unless the second is whole.

    Raises EncodeError outside the years 1 to 9999, the range of RFC 3339.
    """
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{_second(seconds)}.{rest:09d}Z" if rest else f"{_second(seconds)}Z"


@functools.lru_cache(maxsize=1024)  # records of one batch share few seconds
def _second(seconds: int) -> str:
    try:
        return (_EPOCH + timedelta(seconds=seconds)).isoformat().removesuffix("+00:00")
    except OverflowError:
        raise EncodeError(f"time {seconds} s is outside the years 1 to 9999") from None


_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_LIMIT = 2**63


def parse_rfc3339(text: str) -> int:
    """Return a time in nanoseconds since the epoch.

    Raises DataError if the text is not an RFC 3339 time, has more than nine decimals, or its
    nanoseconds exceed 64 bits: before 1677 or after 2262.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise DataError(f"not an RFC 3339 time: {text!r:.60}")
    second, decimals, offset = found.groups()
    nanoseconds = _seconds(second + offset.upper()) * 10**9 + int(f"{decimals or '':0<9}")
    if not -_LIMIT < nanoseconds < _LIMIT:
        raise DataError(f"not a time between 1677 and 2262: {text!r}")
    return nanoseconds


@functools.lru_cache(maxsize=1024)
def _seconds(text: str) -> int:
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // timedelta(seconds=1)
    except (ValueError, OverflowError) as error:
        raise DataError(f"not an RFC 3339 time: {text!r:.60}: {error}") from None
