"""Times as RFC 3339 writes them: in UTC, with every nanosecond kept."""

import functools
from datetime import UTC, datetime, timedelta

from ccpipe.errors import EncodeError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(nanoseconds: int) -> str:
    """Write a moment: ``2025-02-20T05:05:51Z``, with nine decimals where the second is not whole.

    Raises
    ------
    EncodeError
        outside of the years 1 to 9999, which is all that RFC 3339 can say.

    """
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{_second(seconds)}.{rest:09d}Z" if rest else f"{_second(seconds)}Z"


@functools.lru_cache(maxsize=1024)  # records that travel together share their second
def _second(seconds: int) -> str:
    try:
        return (_EPOCH + timedelta(seconds=seconds)).isoformat().removesuffix("+00:00")
    except OverflowError:
        raise EncodeError(f"time {seconds} s is outside of the years 1 to 9999") from None
