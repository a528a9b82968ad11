"""Starts and stops as cc-backend reads them."""

import contextlib
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.jobs import (
    RUNNING,
    Job,
    JobNode,
    JobReport,
    ReportedJobs,
    RunKey,
    is_complete,
    is_stop_of,
    message,
    read_event,
)
from ccpipe.message import Message, event

SECOND = 10**9
BASE = 1_795_170_000
JOB = Job(
    cluster="fox",
    id=7,
    array_id=5,
    array_task=0,
    het_id=6,
    het_offset=0,
    state="timeout",
    user="ann",
    project="nn1",
    partition="gpu a,b",
    sub_cluster="main",
    submit=(BASE + 90) * SECOND,
    start=(BASE + 100) * SECOND,
    end=(BASE + 160) * SECOND,
    nodes=(JobNode("n1", (0, 1), ("GPU-1",)), JobNode("n2")),
    requested_hwthreads=4,
    accelerators=1,
    memory=2000 * 10**6,
    shared="multi_user",
    walltime=60,
    exit_code=137,
    name="burn",
    metadata={"category": "-q all.q", "empty": ""},
)


def test_start_has_every_key() -> None:
    """Requested hardware threads are used if the allocated ones are unknown."""
    start = message("start_job", JOB)
    assert json.loads(str(start.value)) == {
        "jobId": 7, "user": "ann", "cluster": "fox", "startTime": BASE + 100, "numNodes": 2,
        "resources": [
            {"hostname": "n1", "hwthreads": [0, 1], "accelerators": ["GPU-1"]}, {"hostname": "n2"},
        ],
        "project": "nn1", "subCluster": "main", "partition": "gpu a,b", "arrayJobId": 5,
        "numHwthreads": 4, "numAcc": 1, "shared": "multi_user", "walltime": 60,
        "submitTime": BASE + 90, "requestedMemory": 2000, "jobState": "timeout",
        "metaData": {
            "jobName": "burn", "category": "-q all.q", "arrayTaskId": "0", "hetJobId": "6",
            "hetJobOffset": "0", "exitStatus": "137",
        },
        "tags": [{"type": "source", "name": "ccpipe", "scope": "admin"}],
    }  # fmt: skip
    assert (start.time, start.tags["hostname"]) == ((BASE + 100) * SECOND, "n1")


def test_start_has_its_own_metadata() -> None:
    """The batch script is among the metadata; empty values are omitted."""
    job = msgspec.structs.replace(JOB, start_metadata={"jobScript": "sleep 1\n", "slurmInfo": ""})
    metadata = json.loads(str(message("start_job", job).value))["metaData"]
    assert metadata["jobScript"] == "sleep 1\n"
    assert metadata["jobName"] == "burn"
    assert "slurmInfo" not in metadata


def test_stop_has_start_and_partition() -> None:
    """cc-energy-manager ignores a stop without the tag; commas and spaces are escaped."""
    stop = message("stop_job", JOB)
    assert json.loads(str(stop.value)) == {
        "jobId": 7, "cluster": "fox", "startTime": BASE + 100, "stopTime": BASE + 160,
        "jobState": "timeout",
    }  # fmt: skip
    assert (stop.time, stop.tags["partition"]) == ((BASE + 160) * SECOND, "gpu a,b")
    (again,) = decode(encode([stop], precision="ns"))
    assert again == stop
    assert "partition" not in message("stop_job", msgspec.structs.replace(JOB, partition="")).tags


def test_stop_is_never_before_its_start() -> None:
    """cc-backend refuses it; clocks may be wrong."""
    stop = message("stop_job", msgspec.structs.replace(JOB, end=1))
    assert json.loads(str(stop.value))["stopTime"] == BASE + 100


def test_event_has_given_time_and_hostname() -> None:
    """Messages made of an envelope have its time and its cluster's host name."""
    start = message("start_job", JOB, time=3, hostname="fox")
    assert (start.time, start.tags["hostname"]) == (3, "fox")


def test_invalid_utf_8_becomes_replacement_characters() -> None:
    """JSON cannot represent them; the rest of the event is sent."""
    start = message("start_job", msgspec.structs.replace(JOB, user="caf\udce9", project="ß"))
    payload = json.loads(str(start.value))
    assert (payload["user"], payload["project"]) == ("caf\ufffd", "ß")


def test_only_complete_job_has_both_events() -> None:
    """It began and ended."""
    assert is_complete(JOB)
    assert not is_complete(msgspec.structs.replace(JOB, state=RUNNING))
    assert not is_complete(msgspec.structs.replace(JOB, user=""))


@pytest.mark.parametrize(
    ("known", "expected"), [({}, True), ({"id": 8}, False), ({"cluster": "wolf"}, False)]
)
def test_stop_belongs_to_start_of_its_job(known: dict[str, int], expected: bool) -> None:
    """Only such two must share a message."""
    other = message("stop_job", msgspec.structs.replace(JOB, **known))
    assert is_stop_of(message("start_job", JOB), other) is expected
    assert not is_stop_of(other, message("start_job", JOB))


def test_stop_created_later_does_not_belong_to_start() -> None:
    """Their order of arrival varies; a message that is sent again must be the same."""
    running = message("start_job", msgspec.structs.replace(JOB, state=RUNNING, end=0))
    assert "jobState" not in json.loads(str(running.value))
    assert not is_stop_of(running, message("stop_job", JOB))


def test_other_message_belongs_to_no_start() -> None:
    """A broken payload is reported by its reader."""
    start, stop = message("start_job", JOB), message("stop_job", JOB)
    broken = msgspec.structs.replace(stop, value="{")
    assert not is_stop_of(start, broken)
    assert not is_stop_of(start, msgspec.structs.replace(stop, name="jobs"))


def test_reader_returns_written_job() -> None:
    """All fields of a start and a stop; the event is the raw record."""
    start, stop = message("start_job", JOB), message("stop_job", JOB)
    written = msgspec.structs.replace(
        JOB, end=0, hwthreads=4, requested_hwthreads=0, metadata={"category": "-q all.q"}, raw=start
    )
    assert read_event(start) == written
    assert read_event(stop) == Job(
        cluster="fox", id=7, start=JOB.start, end=JOB.end, state="timeout", raw=stop
    )
    running = message("start_job", msgspec.structs.replace(JOB, state=RUNNING, end=0))
    assert read_event(running).state == RUNNING


def test_reader_accepts_events_of_other_writers() -> None:
    """Numbers in quotes; the cluster only in the tags; metadata that are not texts."""
    payload = '{"jobId": "7", "startTime": "5", "metaData": {"exitStatus": "x", "n": 1}}'
    found = read_event(event("job", "start_job", payload, time=0, tags={"cluster": "fox"}))
    assert (found.key, found.start, found.exit_code) == (("fox", 7), 5 * SECOND, None)
    assert found.metadata == {"exitStatus": "x", "n": "1"}


@given(
    st.text()
    | st.from_regex(r'\{"jobId": ?-?[0-9]{1,20}(, ?"startTime": ?-?[0-9]{1,20}(\.5)?)?\}'),
    st.sampled_from(["start_job", "stop_job", "hold_job", ""]),
)
def test_reader_returns_job_or_error_for_any_payload(payload: str, function: str) -> None:
    """Its numbers fit in 64 bits, as does its start in nanoseconds."""
    with contextlib.suppress(DataError):
        found = read_event(event("job", function, payload, time=0, tags={}))
        assert msgspec.msgpack.encode(found.run_key)


START, STOP = "start_job", "stop_job"


def report(function: str, number: int, start: int = 100) -> JobReport:
    payload = {"jobId": number, "cluster": "fox"} | ({"startTime": start} if start else {})
    return JobReport.of(event("job", function, json.dumps(payload), time=0, tags={}))


def key(number: int, start: int = 100) -> RunKey:
    return RunKey("fox", number, start * 10**9)


@pytest.mark.parametrize("start", [100, 0])
def test_reported_jobs_yield_missing_reports(tmp_path: Path, start: int) -> None:
    """A missing start, a stop of a job shown as running; also after a restart, and nothing else."""
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


def test_reported_jobs_ignore_start_repeated_after_stop() -> None:
    """A later run of the same id does."""
    jobs = ReportedJobs()
    for each in (report(START, 1), report(STOP, 1), report(START, 1)):
        jobs.add(each)
    assert list(jobs.differences(())) == []
    jobs.add(report(START, 1, 200))
    assert [each.key for each in jobs.differences(())] == [key(1, 200)]


def test_reported_jobs_ignore_late_stop_of_earlier_run() -> None:
    """Both runs have the same id."""
    jobs = ReportedJobs()
    for each in (report(START, 1), report(START, 1, 200), report(STOP, 1)):
        jobs.add(each)
    assert [each.key for each in jobs.differences({key(1, 200)})] == []
    assert jobs.start_of(key(1, 200)) == jobs.start_of(key(1, 0)) == report(START, 1, 200)
    assert jobs.start_of(key(1)) is None


@given(st.text() | st.from_regex(r'\{"jobId": ?-?[0-9]{1,20}, ?"cluster": ?"x"\}'))
def test_report_is_read_or_rejected_for_any_payload(payload: str) -> None:
    """And so is any event."""
    for made in (
        event("job", START, payload, time=0, tags={}),
        event("job", "hold_job", payload, time=0, tags={}),
        Message("job", {"function": STOP}, 1.0, 0),
    ):
        with contextlib.suppress(DataError):
            assert JobReport.of(made).payload == payload
