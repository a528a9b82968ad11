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


def test_every_job_log_line_is_read() -> None:
    """279 of the 400 lines; an empty project is None."""
    assert len(LOGS) == 279
    assert {log.event for log in LOGS} >= {"pending", "sent", "delivered", "finished", "deleted"}
    assert (LOGS[0].project, LOGS[0].time) == ("astro", 1795170750 * 10**9)
    assert None in {log.project for log in LOGS}


def test_a_message_may_hold_colons() -> None:
    """It is the last field and takes the rest of the line."""
    line = REPORTING.split(b"\n")[17]
    log = parse_job_log(line.replace(b"new job", b"a: b:c"))
    assert log is not None
    assert log.message == "a: b:c"


def test_every_run_has_a_start() -> None:
    """Whether or not ``delivered`` was written, and at the time that the record has."""
    starts: dict[tuple[int, int], int] = {}
    for log in LOGS:
        if log.is_start:
            starts.setdefault((log.job_number, log.task_number), log.time)
    ran = [r for r in read(REPORTING).records if r.start_time and r.pe_taskid is None]
    assert len(ran) > 30
    assert {(record.job_number, record.task_number) for record in ran} <= starts.keys()
    assert starts[2, 0] == next(r for r in ran if r.job_number == 2).start_time


def test_a_broken_job_log_line_is_an_error() -> None:
    """A line of another type is not."""
    assert parse_job_log(b"1:queue:x") is None
    with pytest.raises(DataError, match="job_log"):
        parse_job_log(b"1:job_log:1:sent:x")


def test_starts_and_deletions_are_read_with_their_places() -> None:
    """Other lines are skipped; file, offset and line say where each was."""
    found, rejected = read_job_log(b"# x\n" + REPORTING, file="f", offset=100, line=7)
    assert rejected == []
    assert {log.event for log in found} == {"sent", "delivered", "deleted"}
    for log in found:
        text = (b"# x\n" + REPORTING)[log.origin.offset - 100 :].split(b"\n")[0]
        assert text.split(b":")[3:5] == [log.event.encode(), b"%d" % log.job_number]
        assert log.origin.file == "f"
        assert (b"# x\n" + REPORTING).split(b"\n")[log.origin.line - 7] == text


def test_a_broken_line_is_rejected_with_its_place() -> None:
    """The next one is read."""
    good = next(
        line for line in REPORTING.split(b"\n") if b":job_log:" in line and b":sent:" in line
    )
    found, (bad,) = read_job_log(b"1:job_log:x\n" + good + b"\n", file="f", offset=5, line=2)
    assert (bad.line, bad.offset, bad.original) == (2, 5, b"1:job_log:x")
    assert [log.origin.offset for log in found] == [5 + 12]


@given(st.binary(max_size=80) | st.text(max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    """No bytes raise anything but the named error."""
    with contextlib.suppress(DataError):
        parse_job_log(b"1:job_log:" + payload)
