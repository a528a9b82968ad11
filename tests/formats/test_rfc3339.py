"""``rfc3339``: times are exact, and other readers accept them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError, EncodeError
from ccpipe.formats.rfc3339 import parse_rfc3339, rfc3339


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1740027951 * 10**9, "2025-02-20T05:05:51Z"),
        (1740027951 * 10**9 + 7, "2025-02-20T05:05:51.000000007Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (2**63 - 1, "2262-04-11T23:47:16.854775807Z"),
        (-(2**63), "1677-09-21T00:12:43.145224192Z"),
        (253402300799 * 10**9, "9999-12-31T23:59:59Z"),
    ],
)
def test_formatter_writes_times(nanoseconds: int, text: str) -> None:
    assert rfc3339(nanoseconds) == text


@given(st.integers(-(2**63), 2**63 - 1))
def test_formatted_time_is_read_by_standard_library(nanoseconds: int) -> None:
    read = datetime.fromisoformat(rfc3339(nanoseconds)) - datetime(1970, 1, 1, tzinfo=UTC)
    microseconds = (read.days * 86400 + read.seconds) * 10**6 + read.microseconds
    assert microseconds == nanoseconds // 1000


@pytest.mark.parametrize("seconds", [253402300800, -62135596801, 10**30])
def test_formatter_rejects_years_outside_1_to_9999(seconds: int) -> None:
    with pytest.raises(EncodeError, match=f"time {seconds} s is outside"):
        rfc3339(seconds * 10**9)


@given(st.integers(1 - 2**63, 2**63 - 1))
def test_parser_reads_formatted_time(nanoseconds: int) -> None:
    assert parse_rfc3339(rfc3339(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01T00:00:00.5Z", 5 * 10**8),
        ("1970-01-01 01:00:00+01:00", 0),
        ("1970-01-01t00:00:01z", 10**9),
        ("1969-12-31T23:59:59.999999999Z", -1),
    ],
)
def test_parser_reads_other_notations(text: str, nanoseconds: int) -> None:
    assert parse_rfc3339(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        "", "now", "2025-02-20", "2025-02-20T05:05:51", "2025-02-30T05:05:51Z",
        "2025-02-20T05:05:51.0000000001Z", "1600-01-01T00:00:00Z", "9999-12-31T23:59:59-23:00",
        "2025-02-20T05:05:51+99:00", "0001-01-01T00:00:00+23:00", "\uff12025-02-20T05:05:51Z",
    ],
)  # fmt: skip
def test_parser_rejects_invalid_time(text: str) -> None:
    with pytest.raises(DataError, match="RFC 3339|between 1677 and 2262"):
        parse_rfc3339(text)
