"""The ``job_log`` lines of the reporting file."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.gridengine import read
from ccpipe.formats.gridengine.reporting import parse_job_log, read_job_log
from tests.paths import TEST_DATA

REPORTING = (TEST_DATA / "gridengine" / "reporting.head").read_bytes()
LOGS = [log for line in REPORTING.splitlines() if (log := parse_job_log(line))]


def test_job_log_reader_reads_all_lines() -> None:
    """279 of the 400 lines; an empty project gives None."""
    assert len(LOGS) == 279
    assert {log.event for log in LOGS} >= {"pending", "sent", "delivered", "finished", "deleted"}
    assert (LOGS[0].project, LOGS[0].time) == ("astro", 1795170750 * 10**9)
    assert None in {log.project for log in LOGS}


def test_job_log_reader_accepts_colons_in_message() -> None:
    """The message is the last field and takes the rest of the line."""
    line = REPORTING.split(b"\n")[17]
    log = parse_job_log(line.replace(b"new job", b"a: b:c"))
    assert log is not None
    assert log.message == "a: b:c"


def test_job_log_has_start_of_every_run() -> None:
    """With or without ``delivered``, at the record's time."""
    starts: dict[tuple[int, int], int] = {}
    for log in LOGS:
        if log.is_start:
            starts.setdefault((log.job_number, log.task_number), log.time)
    ran = [r for r in read(REPORTING).records if r.start_time and r.pe_taskid is None]
    assert len(ran) > 30
    assert {(record.job_number, record.task_number) for record in ran} <= starts.keys()
    assert starts[2, 0] == next(r for r in ran if r.job_number == 2).start_time


def test_job_log_reader_raises_for_broken_line() -> None:
    """Lines of other types are not errors."""
    assert parse_job_log(b"1:queue:x") is None
    with pytest.raises(DataError, match="job_log"):
        parse_job_log(b"1:job_log:1:sent:x")


def test_job_log_reader_returns_starts_and_deletions_with_positions() -> None:
    """Other lines are skipped."""
    found, rejected = read_job_log(b"# x\n" + REPORTING, file="f", offset=100, line=7)
    assert rejected == []
    assert {log.event for log in found} == {"sent", "delivered", "deleted"}
    for log in found:
        text = (b"# x\n" + REPORTING)[log.origin.offset - 100 :].split(b"\n")[0]
        assert text.split(b":")[3:5] == [log.event.encode(), b"%d" % log.job_number]
        assert log.origin.file == "f"
        assert (b"# x\n" + REPORTING).split(b"\n")[log.origin.line - 7] == text


def test_job_log_reader_rejects_broken_line_with_position() -> None:
    """The next line is read."""
    good = next(
        line for line in REPORTING.split(b"\n") if b":job_log:" in line and b":sent:" in line
    )
    found, (bad,) = read_job_log(b"1:job_log:x\n" + good + b"\n", file="f", offset=5, line=2)
    assert (bad.line, bad.offset, bad.original) == (2, 5, b"1:job_log:x")
    assert [log.origin.offset for log in found] == [5 + 12]


@given(st.binary(max_size=80) | st.text(max_size=40).map(str.encode))
def test_job_log_reader_raises_only_data_error_for_any_bytes(payload: bytes) -> None:
    with contextlib.suppress(DataError):
        parse_job_log(b"1:job_log:" + payload)
