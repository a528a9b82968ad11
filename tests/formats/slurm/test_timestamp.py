"""Times: local ones with the offset of their date, and absolute ones."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm.values import SECOND, TimeReader
from tests.formats.slurm.captured import OSLO

LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
KATHMANDU = ZoneInfo("Asia/Kathmandu")
ZONES = st.sampled_from([OSLO, LORD_HOWE, KATHMANDU, ZoneInfo("America/St_Johns"), ZoneInfo("UTC")])
SECONDS = st.integers(946684800, 2145916800)


def utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


def test_time_reader_applies_offset_of_date() -> None:
    read = TimeReader(OSLO)
    assert read("2026-07-01T12:00:00") == utc("2026-07-01T10:00:00")
    assert read("2026-01-01T12:00:00") == utc("2026-01-01T11:00:00")


def test_time_reader_reads_epoch_and_offset_without_zone() -> None:
    """``%s`` and ``%z`` of SLURM_TIME_FORMAT."""
    read = TimeReader()
    assert read("1795170748") == 1795170748 * SECOND
    assert read("2026-11-20T11:33:34+0100") == utc("2026-11-20T10:33:34")


def test_time_reader_requires_zone_for_local_time() -> None:
    with pytest.raises(DataError, match="without a zone to read it in"):
        TimeReader()("2026-11-20T10:32:28")


@pytest.mark.parametrize("text", ["", "Unknown", "None", "N/A", "0", "(null)"])
def test_time_reader_returns_none_for_placeholders(text: str) -> None:
    read = TimeReader(OSLO)
    assert read(text) is None
    assert read.column([text, "1795170748"]) == [None, 1795170748 * SECOND]


def test_time_reader_returns_first_of_ambiguous_times() -> None:
    """Clocks in Oslo were set back at 3:00 on 25 October 2026."""
    read = TimeReader(OSLO)
    text = "2026-10-25T02:30:00"
    assert read(text) == utc("2026-10-25T00:30:00")
    assert read.second(text) == utc("2026-10-25T01:30:00")
    assert read.has_repeats


def test_time_reader_finds_no_second_time_outside_repeated_hour() -> None:
    read = TimeReader(OSLO)
    for text in ("2026-10-25T01:59:59", "2026-10-25T03:00:00", "1795170748", "Unknown", ""):
        read(text)
        assert read.second(text) is None
    assert not read.has_repeats


def test_time_reader_handles_offset_change_within_hour() -> None:
    """Lord Howe sets clocks back by half an hour at 2:00: times repeat from 1:30 on."""
    read = TimeReader(LORD_HOWE)
    assert read("2026-04-05T01:15:00") == utc("2026-04-04T14:15:00")
    assert read("2026-04-05T01:45:00") == utc("2026-04-04T14:45:00")
    assert read.second("2026-04-05T01:15:00") is None
    assert read.second("2026-04-05T01:45:00") == utc("2026-04-04T15:15:00")
    assert read("2026-04-05T02:15:00") == utc("2026-04-04T15:45:00")


@given(ZONES, SECONDS)
def test_time_reader_round_trips_local_times(zone: ZoneInfo, seconds: int) -> None:
    """A time formatted in a zone reads as itself, or is the later of two."""
    read = TimeReader(zone)
    text = datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%dT%H:%M:%S")
    assert seconds * SECOND in (read(text), read.second(text))
    assert read(text) == read.column([text])[0]  # from the cache
    is_later = datetime.fromtimestamp(seconds, zone).fold
    assert (read.second(text) == seconds * SECOND) == bool(is_later)


@given(ZONES, st.lists(SECONDS, max_size=30))
def test_time_reader_reads_column_like_cells(zone: ZoneInfo, seconds: list[int]) -> None:
    cells = [datetime.fromtimestamp(s, zone).strftime("%Y-%m-%dT%H:%M:%S") for s in seconds]
    cells.append("Unknown")
    one, all_at_once = TimeReader(zone), TimeReader(zone)
    assert all_at_once.column(cells) == [one(cell) for cell in cells]


@pytest.mark.parametrize(
    "text",
    ["10:32:28", "2026-11-20", "2026-11-20T10:32", "2026-11-20T10:32:60", "2026-13-20T10:32:28",
     "2026-11-20 10.32", "2026-11-20T10:32:28.5", "20261120T103228", "tomorrow", "-5", "9" * 12],
)  # fmt: skip
def test_time_reader_rejects_invalid_times(text: str) -> None:
    """``SLURM_TIME_FORMAT=relative`` prints no date and is rejected, too."""
    with pytest.raises(DataError, match="not a time"):
        TimeReader(OSLO)(text)


@given(st.text(max_size=30) | st.datetimes().map(str) | st.datetimes().map(datetime.isoformat))
def test_time_reader_raises_only_data_error_for_any_text(text: str) -> None:
    for zone in (None, OSLO, ZoneInfo("Pacific/Kiritimati")):
        read = TimeReader(zone)
        with suppress(DataError):
            found = read(text)
            assert (
                found is None or abs(found) < timedelta(days=366 * 10**4).total_seconds() * SECOND
            )
            read.second(text)
