"""Times as Sonar writes them: local time with its offset, in whole seconds.

Source: Sonar JSON format output specification, *Type: Timestamp*; RFC 3339.
"""

import functools
import re
from datetime import UTC, datetime, timedelta, tzinfo

from ccpipe.errors import DataError, EncodeError

PATTERN = (
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d"
    r"(Z|[+-](?!00:00)([01]\d|2[0-3]):[0-5]\d)$"
)
"""The specification's format, without the check of a month's days."""

_STRICT = re.compile(PATTERN.replace("$", r"\Z"), re.ASCII)
_READABLE = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:[0-5]\d)\Z", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_strict(text: str) -> bool:
    return _STRICT.match(text) is not None and is_readable(text)


def is_sonar_time(text: str) -> bool:
    """Return whether a time is as Sonar writes it: ``+00:00`` for ``Z``, otherwise conforming."""
    return is_strict(text) or (text.endswith("+00:00") and is_strict(text[:-6] + "Z"))


def is_readable(text: str) -> bool:
    return _nanoseconds(text) is not None


def parse(text: str) -> int | None:
    """Return a time in nanoseconds since the epoch; None for an empty one, which means missing.

    Fractions of a second and ``+00:00`` are accepted too: real programs write them.

    Raises DataError for anything but a time with an offset.
    """
    if not text:
        return None
    found = _nanoseconds(text)
    if found is None:
        raise DataError(f"{text!r:.60} is not an RFC 3339 time with an offset")
    return found


@functools.lru_cache(maxsize=1024)  # all times of one operation are the same
def _nanoseconds(text: str) -> int | None:
    found = _READABLE.match(text)
    if found is None:
        return None
    second, fraction, offset = found.groups()
    try:
        at = datetime.fromisoformat(second + offset)
    except ValueError:
        return None
    whole = (at - _EPOCH) // timedelta(seconds=1)
    return whole * 10**9 + int((fraction or "")[:9].ljust(9, "0"))


def write(nanoseconds: int, zone: tzinfo = UTC) -> str:
    """Format a time as the specification requires, truncated to whole seconds.

    The offset is the one of `zone` at that time, so that times around a daylight-saving change are
    right; +00:00 is written as ``Z``. Historical offsets with seconds are written as UTC.

    Raises EncodeError outside of the years 1 to 9999.
    """
    if zone is UTC:
        minute, rest = divmod(nanoseconds, _MINUTE)
        return _minute_text(minute) + _SECONDS[rest // 10**9]
    try:
        local = (_EPOCH + timedelta(seconds=nanoseconds // 10**9)).astimezone(zone)
        offset = local.utcoffset() or timedelta()
        if offset % timedelta(minutes=1):
            local = local.astimezone(UTC)
    except OverflowError:
        raise EncodeError(f"time {nanoseconds} ns is outside of the years 1 to 9999") from None
    text = local.isoformat()
    return text[:-6] + "Z" if text.endswith("+00:00") else text


_MINUTE = 60 * 10**9
_SECONDS = tuple(f"{second:02}Z" for second in range(60))


@functools.lru_cache(maxsize=2**14)
def _minute_text(minute: int) -> str:
    """Return the beginning of a time, by its minute since 1970; raises EncodeError."""
    try:
        return (_EPOCH + timedelta(minutes=minute)).isoformat()[: -len("00+00:00")]
    except OverflowError:
        raise EncodeError(f"minute {minute} is outside of the years 1 to 9999") from None
