"""ClusterCockpit's events to records of jobs, clusters and nodes."""

import json
from pathlib import Path

import pytest

from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.lineprotocol.writer import original
from ccpipe.formats.sonar import JobsData, SacctData, SlurmJob
from ccpipe.message import Message, event
from ccpipe.pipeline.state import StateStore
from ccpipe.translate.sonar.cc_to_sonar import CcToSonar
from ccpipe.translate.sonar.cc_to_sonar_events import JobEvents
from tests.translate.sonar.sonar_samples import START, at
from tests.translate.sonar.test_cc_to_sonar import load, translator


def job_event(function: str, at_second: int = 0, **payload: object) -> Message:
    text = json.dumps({"jobId": 7, "cluster": "fox"} | payload)
    tags = {"cluster": "fox", "hostname": "c1"}
    return event("job", function, text, time=(START + at_second) * 10**9, tags=tags)


START_7 = job_event(
    "start_job", user="ann", startTime=START, submitTime=START - 60, numNodes=1,
    resources=[{"hostname": "c1"}],
)  # fmt: skip


def record(there: CcToSonar, message: Message) -> SlurmJob:
    (only,) = there.feed(to_lines([message]))
    assert isinstance(only.data, JobsData)
    (made,) = only.data.attributes.slurm_jobs
    return made


def test_an_end_says_what_the_start_of_the_same_run_said() -> None:
    """slurm-monitor refuses a record without submit_time; another run's start says nothing."""
    there = translator()
    record(there, START_7)
    stop = job_event("stop_job", 90, startTime=START, stopTime=START + 90, jobState="failed")
    made = record(there, stop)
    assert (made.submit_time, made.user_name, made.nodes) == (at(-60), "ann", ("c1",))
    assert (made.job_state, made.sacct) == ("FAILED", SacctData(ElapsedRaw=90))
    assert record(there, stop) == made
    other = job_event("stop_job", 90, startTime=START + 5, stopTime=START + 90)
    assert record(there, other).submit_time == ""


def test_without_a_start_time_an_end_is_of_the_start_that_is_known() -> None:
    """Of no start at all there is no time that has passed."""
    stop = job_event("stop_job", 90, stopTime=START + 90)
    assert record(translator(), stop).sacct is None
    there = translator()
    record(there, START_7)
    assert record(there, stop).sacct == SacctData(ElapsedRaw=90)


def test_scripts_of_starts_are_not_remembered(tmp_path: Path) -> None:
    """They may be large, and no record has them; other metadata is in the record of the end."""
    state = StateStore(str(tmp_path / "starts.state"))
    events = JobEvents(state)
    state.open()
    metadata = {"jobName": "cfd", "jobScript": "#!/bin/sh\n", "slurmInfo": "JobId=7 "}
    start = job_event(
        "start_job", user="ann", startTime=START, numNodes=1, resources=[{"hostname": "c1"}],
        metaData=metadata,
    )  # fmt: skip
    events.record(start)
    state.commit(is_durable=True)
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"cfd" in kept
    assert b"#!/bin/sh" not in kept
    assert b"JobId=7" not in kept
    stop = job_event("stop_job", 90, startTime=START, stopTime=START + 90)
    assert events.record(stop)[1].job_name == "cfd"


def test_events_of_others_become_envelopes() -> None:
    """cc-slurm-adapter tells the cluster in the payload only, and no state of a start."""
    payload = json.dumps(
        {
            "jobId": 398759, "user": "k1", "cluster": "fritz", "startTime": START, "numNodes": 1,
            "resources": [{"hostname": "f0726", "hwthreads": [0, 1]}], "walltime": 86401,
            "energyFootprint": None, "subCluster": "", "shared": "none",
        }
    )  # fmt: skip
    line = event("job", "start_job", payload, time=START * 10**9, tags={"hostname": "mngmt02"})
    (only,) = translator().feed(to_lines([line]))
    assert isinstance(only.data, JobsData)
    assert only.data.attributes.cluster == "fritz"
    (record,) = only.data.attributes.slurm_jobs
    assert (record.job_state, record.nodes, record.time_limit.value) == (
        "RUNNING",
        ("f0726",),
        1441,
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (event("job", "start_job", "{", time=5, tags={}), "the event's payload"),
        (event("job", "pause_job", "{}", time=5, tags={}), "has the function 'pause_job'"),
        (event("nodestate", "nodestate", '{"cluster":1}', time=5, tags={}), "$.cluster"),
        (event("sonar", "sample", '{"meta":{}}', time=5, tags={}), "must have data or errors"),
        (event("sonar", "sample", "", time=5, tags={}), "holds no envelope"),
        (Message("job", {"function": "stop_job"}, "{}", None, "event"), "timestamp is missing"),
    ],
)
def test_events_that_cannot_be_read_are_refused(line: Message, reason: str) -> None:
    """With the reason; the others are turned all the same."""
    there = translator()
    lines = [line, load(0)]
    found = there.feed(to_lines(lines))
    assert len(found + there.flush()) == 1
    [bad] = found.rejected
    assert bad.original == original(line)
    assert reason in bad.reason
