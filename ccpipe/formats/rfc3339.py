"""Times by RFC 3339: in UTC, to the nanosecond."""

import functools
from datetime import UTC, datetime, timedelta

from ccpipe.errors import EncodeError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(nanoseconds: int) -> str:
    """Return a time as ``2025-02-20T05:05:51Z``, with nine decimals unless the second is whole.

    Raises
    ------
    EncodeError
        outside the years 1 to 9999, which are all that RFC 3339 can express.

    """
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{_second(seconds)}.{rest:09d}Z" if rest else f"{_second(seconds)}Z"


@functools.lru_cache(maxsize=1024)  # records of one batch have few different seconds
def _second(seconds: int) -> str:
    try:
        return (_EPOCH + timedelta(seconds=seconds)).isoformat().removesuffix("+00:00")
    except OverflowError:
        raise EncodeError(f"time {seconds} s is outside the years 1 to 9999") from None
