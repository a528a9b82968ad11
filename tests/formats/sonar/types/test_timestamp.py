"""Times: the specification's format is written, that and others are read."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError, EncodeError
from ccpipe.formats.sonar import timestamp

OSLO = ZoneInfo("Europe/Oslo")


@pytest.mark.parametrize(
    "text", ["2025-04-07T13:53:24+02:00", "2025-04-07T11:53:24Z", "2024-02-29T00:00:00-11:30"]
)
def test_time_of_specification_is_strict(text: str) -> None:
    """Local time, offset, whole seconds, ``Z`` for +00:00; parsed to the correct time."""
    assert timestamp.is_strict(text)
    assert timestamp.parse(text) == datetime.fromisoformat(text).timestamp() * 10**9


@pytest.mark.parametrize(
    "text",
    ["2025-04-07T11:53:24+00:00", "2025-04-07T11:53:24-00:00", "2025-04-07T11:53:24.000Z",
     "2025-04-07T11:53:24,5Z"],
)  # fmt: skip
def test_time_of_other_programs_is_readable_but_not_strict(text: str) -> None:
    """Sonar itself writes +00:00; fractions are RFC 3339."""
    assert not timestamp.is_strict(text)
    whole = int(datetime(2025, 4, 7, 11, 53, 24, tzinfo=UTC).timestamp()) * 10**9
    assert timestamp.parse(text) == whole + (500_000_000 if ",5" in text else 0)


@pytest.mark.parametrize(
    "text",
    ["yesterday", "2025-04-07 11:53:24Z", "2025-04-07T11:53:24", "2025-04-07T11:53:24+0100",
     "2025-02-30T00:00:00Z", "2025-04-07T24:00:00Z", "2025-04-07T11:53:60Z", "2025-4-7T1:2:3Z",
     "2025-04-07t11:53:24z", "2025-04-07T11:53:24+25:00", "2025-04-07T11:53:24Z\n",
     "0000-01-01T00:00:00Z", "٢٠٢٥-04-07T11:53:24Z"],
)  # fmt: skip
def test_parser_rejects_invalid_time(text: str) -> None:
    """It is neither strict nor readable; the error shows the text."""
    assert not timestamp.is_strict(text)
    assert not timestamp.is_readable(text)
    with pytest.raises(DataError, match="is not an RFC 3339 time"):
        timestamp.parse(text)


def test_empty_time_is_missing() -> None:
    assert timestamp.parse("") is None


@given(
    st.integers(-62135596800 + 86400, 253402300799 - 86400),
    st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m))),
)
def test_formatted_time_is_strict_and_read_back(seconds: int, zone: timezone) -> None:
    """Any time of the years 1 to 9999, in any zone."""
    text = timestamp.write(seconds * 10**9, zone)
    assert timestamp.is_strict(text)
    assert timestamp.parse(text) == seconds * 10**9


def test_offset_is_valid_at_time() -> None:
    """A time before a change of the clocks has the offset from before."""
    summer = int(datetime(2025, 10, 26, 0, 59, 59, tzinfo=UTC).timestamp()) * 10**9
    assert timestamp.write(summer, OSLO) == "2025-10-26T02:59:59+02:00"
    assert timestamp.write(summer + 10**9, OSLO) == "2025-10-26T02:00:00+01:00"


def test_offset_with_seconds_is_written_as_utc() -> None:
    """The format does not allow it."""
    assert timestamp.write(-3 * 10**18, ZoneInfo("Europe/Amsterdam")).endswith("Z")


def test_fraction_is_truncated() -> None:
    """Rounded down, also before 1970."""
    assert timestamp.write(1_999_999_999) == "1970-01-01T00:00:01Z"
    assert timestamp.write(-1) == "1969-12-31T23:59:59Z"


def test_formatter_rejects_years_outside_1_to_9999() -> None:
    with pytest.raises(EncodeError, match="years 1 to 9999"):
        timestamp.write(10**21)
