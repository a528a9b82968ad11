"""What must be reported again follows from what was reported."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.jobs import JobReport, ReportedJobs, RunKey
from ccpipe.message import Message, event

START, STOP = "start_job", "stop_job"


def report(function: str, number: int, start: int = 100) -> JobReport:
    payload = {"jobId": number, "cluster": "fox"} | ({"startTime": start} if start else {})
    return JobReport.of(event("job", function, json.dumps(payload), time=0, tags={}))


def key(number: int, start: int = 100) -> RunKey:
    return RunKey("fox", number, start * 10**9)


@pytest.mark.parametrize("start", [100, 0])
def test_a_job_is_reported_again_as_it_should_be(tmp_path: Path, start: int) -> None:
    """A start that is missing, a stop of what runs; also after a restart, and nothing else."""
    first = ReportedJobs(str(tmp_path / "state"))
    first.state.open()
    for each in (report(START, 1), report(START, 2), report(STOP, 2, start), report(START, 3)):
        first.add(each)
    first.state.commit(is_durable=True)
    first.state.close()
    again = ReportedJobs(str(tmp_path / "state"))
    again.state.open()
    assert list(again.differences({key(1), key(3), key(9)})) == []
    found = [(each.function, each.key) for each in again.differences({key(2), key(3)})]
    assert found == [(START, key(1)), (STOP, key(2))]


def test_a_start_that_is_repeated_after_its_stop_does_not_start_the_job_again() -> None:
    """A later run of the same id does."""
    jobs = ReportedJobs()
    for each in (report(START, 1), report(STOP, 1), report(START, 1)):
        jobs.add(each)
    assert list(jobs.differences(())) == []
    jobs.add(report(START, 1, 200))
    assert [each.key for each in jobs.differences(())] == [key(1, 200)]


def test_a_late_stop_of_an_earlier_run_does_not_end_the_later_one() -> None:
    """They have the same id."""
    jobs = ReportedJobs()
    for each in (report(START, 1), report(START, 1, 200), report(STOP, 1)):
        jobs.add(each)
    assert [each.key for each in jobs.differences({key(1, 200)})] == []
    assert jobs.start_of(key(1, 200)) == jobs.start_of(key(1, 0)) == report(START, 1, 200)
    assert jobs.start_of(key(1)) is None


@given(st.text() | st.from_regex(r'\{"jobId": ?-?[0-9]{1,20}, ?"cluster": ?"x"\}'))
def test_any_payload_is_a_report_or_an_error(payload: str) -> None:
    """And so is any event."""
    for message in (
        event("job", START, payload, time=0, tags={}),
        event("job", "hold_job", payload, time=0, tags={}),
        Message("job", {"function": STOP}, 1.0, 0),
    ):
        with contextlib.suppress(DataError):
            assert JobReport.of(message).payload == payload
