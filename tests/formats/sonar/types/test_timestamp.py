"""Times: the specification's form is written, what real programs write is read."""

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
def test_the_specifications_form(text: str) -> None:
    """Local time, offset, whole seconds, ``Z`` for +00:00; and it is the moment that it says."""
    assert timestamp.is_strict(text)
    assert timestamp.parse(text) == datetime.fromisoformat(text).timestamp() * 10**9


@pytest.mark.parametrize(
    "text",
    ["2025-04-07T11:53:24+00:00", "2025-04-07T11:53:24-00:00", "2025-04-07T11:53:24.000Z",
     "2025-04-07T11:53:24,5Z"],
)  # fmt: skip
def test_other_programs_times_are_read_but_are_not_strict(text: str) -> None:
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
def test_what_is_no_time(text: str) -> None:
    """Each is an error that shows the text, and neither strict nor readable."""
    assert not timestamp.is_strict(text)
    assert not timestamp.is_readable(text)
    with pytest.raises(DataError, match="not a time"):
        timestamp.parse(text)


def test_an_empty_time_is_missing() -> None:
    """It is no error and no moment."""
    assert timestamp.parse("") is None


@given(
    st.integers(-62135596800 + 86400, 253402300799 - 86400),
    st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m))),
)
def test_what_is_written_is_strict_and_reads_back(seconds: int, zone: timezone) -> None:
    """Any moment of the years 1 to 9999, in any zone."""
    text = timestamp.write(seconds * 10**9, zone)
    assert timestamp.is_strict(text)
    assert timestamp.parse(text) == seconds * 10**9


def test_the_offset_is_that_of_the_moment() -> None:
    """A time before a change of the clocks keeps the offset that held then."""
    summer = int(datetime(2025, 10, 26, 0, 59, 59, tzinfo=UTC).timestamp()) * 10**9
    assert timestamp.write(summer, OSLO) == "2025-10-26T02:59:59+02:00"
    assert timestamp.write(summer + 10**9, OSLO) == "2025-10-26T02:00:00+01:00"


def test_an_offset_with_seconds_is_written_as_utc() -> None:
    """The form has no place for them."""
    assert timestamp.write(-3 * 10**18, ZoneInfo("Europe/Amsterdam")).endswith("Z")


def test_a_fraction_is_cut_off() -> None:
    """Downwards, before 1970 as well."""
    assert timestamp.write(1_999_999_999) == "1970-01-01T00:00:01Z"
    assert timestamp.write(-1) == "1969-12-31T23:59:59Z"


def test_beyond_the_calendar() -> None:
    """What RFC 3339 cannot say is an error."""
    with pytest.raises(EncodeError, match="years 1 to 9999"):
        timestamp.write(10**21)
