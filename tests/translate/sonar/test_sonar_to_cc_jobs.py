"""Sonar's job records as events that cc-backend accepts, in order and once."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from ccpipe.config import Duration
from ccpipe.formats import sonar
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.pipeline import Scope
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc
from tests.translate.sonar.sonar_samples import META, START, at

PENDING = sonar.SlurmJob(
    job_id=1467074,
    job_name="ångström",
    job_state="PENDING",
    array_job_id=1467073,
    array_task_id=1,
    user_name="ann",
    account="nn1",
    submit_time=at(-50),
    time_limit=sonar.ExtendedUint(90),
    partition="gpu",
    requested_cpus=8,
    requested_memory_per_node=4096,
    requested_node_count=2,
)
RUNNING = sonar.SlurmJob(
    job_id=1467074,
    job_state="RUNNING",
    start_time=at(0),
    nodes=("c[1-2]",),
    allocated_resources="billing=8,cpu=16,gres/gpu=4,mem=8G,node=2",
)
COMPLETED = replace(RUNNING, job_state="COMPLETED", end_time=at(500))


def envelope(second: int, *jobs: sonar.SlurmJob, cluster: str = "fox") -> sonar.JobsEnvelope:
    return sonar.JobsEnvelope(META, sonar.JobsData(sonar.JobsAttributes(at(second), cluster, jobs)))


def reported(translator: SonarToCc, *envelopes: sonar.Envelope) -> list[tuple[str, dict[str, Any]]]:
    messages = [m for e in envelopes for m in translator.feed(Envelopes([e]))]
    assert all(not m.problems() for m in messages)
    return [(m.tags["function"], json.loads(str(m.value))) for m in messages if m.name == "job"]


@pytest.fixture
def translator() -> SonarToCc:
    return SonarToCc(envelopes=False, stop_delay=Duration(0))


def test_job_starts_and_stops_once(translator: SonarToCc) -> None:
    """With all fields known so far, despite repeated records."""
    assert reported(translator, envelope(-40, PENDING)) == []
    events = reported(
        translator,
        envelope(10, RUNNING),
        envelope(20, RUNNING),
        envelope(510, COMPLETED),
        envelope(520, COMPLETED),
        envelope(530, RUNNING),
    )
    assert events == [
        (
            "start_job",
            {
                "jobId": 1467074,
                "user": "ann",
                "cluster": "fox",
                "startTime": START,
                "numNodes": 2,
                "resources": [{"hostname": "c1"}, {"hostname": "c2"}],
                "project": "nn1",
                "partition": "gpu",
                "arrayJobId": 1467073,
                "numHwthreads": 16,
                "numAcc": 4,
                "walltime": 5400,
                "submitTime": START - 50,
                "requestedMemory": 4,
                "tags": [{"type": "source", "name": "ccpipe", "scope": "admin"}],
                "metaData": {
                    "jobName": "ångström",
                    "arrayTaskId": "1",
                    "requestedCpus": "8",
                    "requestedNodes": "2",
                    "allocatedResources": RUNNING.allocated_resources,
                },
            },
        ),
        (
            "stop_job",
            {
                "jobId": 1467074,
                "cluster": "fox",
                "startTime": START,
                "stopTime": START + 500,
                "jobState": "completed",
            },
        ),
    ]


def test_without_jobs_each_node_has_its_own_state() -> None:
    """Then no start and no stop is made, and several processes may share the nodes.

    With them each of two processes would start a job on nodes of both.
    """
    assert SonarToCc().scope == Scope.CLUSTER
    translator = SonarToCc(envelopes=False, jobs=False)
    assert reported(translator, envelope(600, replace(COMPLETED, user_name="ann"))) == []
    assert translator.scope == Scope.NODE


def test_job_that_never_ran_makes_no_event(translator: SonarToCc) -> None:
    """Cancelled while it was pending: it has no nodes, or none that are a list of nodes."""
    cancelled = replace(PENDING, job_state="CANCELLED by 1000", end_time=at(5))
    nowhere = replace(cancelled, start_time=at(5), nodes=("None assigned",))
    assert reported(translator, envelope(10, cancelled), envelope(20, nowhere)) == []


def test_later_record_overrides_earlier_by_field(translator: SonarToCc) -> None:
    """By the envelopes' times, in any order; fields missing in a record are kept."""
    newer = replace(PENDING, partition="big", user_name="")
    events = reported(
        translator, envelope(-30, newer), envelope(-40, PENDING), envelope(10, RUNNING)
    )
    assert (events[0][1]["partition"], events[0][1]["user"]) == ("big", "ann")


@pytest.mark.parametrize(
    ("state", "reported_as"),
    [
        ("CANCELLED by 1000", "cancelled"),
        ("OUT_OF_MEMORY", "out_of_memory"),
        ("TIMEOUT", "timeout"),
        ("DEADLINE", "deadline"),
        ("NODE_FAIL", "node_fail"),
        ("FAILED", "failed"),
    ],
)
def test_states_map_to_cc_backend_states(
    translator: SonarToCc, state: str, reported_as: str
) -> None:
    """In lower case, without what Slurm adds to them."""
    job = replace(COMPLETED, user_name="ann", job_state=state)
    assert reported(translator, envelope(600, job))[1][1]["jobState"] == reported_as


def test_steps_make_no_event(translator: SonarToCc) -> None:
    """Step "" is the job; step "0" is not, nor is "batch"."""
    steps = [replace(RUNNING, user_name="ann", job_step=step) for step in ("0", "batch", "extern")]
    assert reported(translator, envelope(10, *steps)) == []


def test_components_of_heterogeneous_job_are_jobs(translator: SonarToCc) -> None:
    """Each has its own id; their shared data is in the metadata."""
    parts = [
        replace(RUNNING, user_name="ann", job_id=1467921 + i, het_job_id=1467921, het_job_offset=i)
        for i in (0, 1)
    ]
    events = reported(translator, envelope(10, *parts))
    assert [payload["jobId"] for _, payload in events] == [1467921, 1467922]
    assert [payload["metaData"]["hetJobOffset"] for _, payload in events] == ["0", "1"]


@pytest.mark.parametrize(("array", "index"), [(7, "0"), (0, None)])
def test_task_zero_counts_in_array_only(
    translator: SonarToCc, array: int, index: str | None
) -> None:
    """A record without an array has the same 0."""
    job = replace(RUNNING, user_name="ann", array_job_id=array, array_task_id=0)
    [(_, payload)] = reported(translator, envelope(10, job))
    assert payload["metaData"].get("arrayTaskId") == index


def test_unlimited_job_has_no_walltime(translator: SonarToCc) -> None:
    """Neither 0 nor 2⁶⁴ seconds."""
    job = replace(RUNNING, user_name="ann", time_limit=sonar.INFINITE, priority=sonar.INFINITE)
    assert "walltime" not in reported(translator, envelope(10, job))[0][1]


def test_resources_are_read_from_sacct_data(translator: SonarToCc) -> None:
    """Sonar 0.16 has them only there; numbers with a unit are not counts."""
    job = replace(
        RUNNING,
        user_name="ann",
        allocated_resources="",
        sacct=sonar.SacctData(AllocTRES="cpu=4,gres/gpu=2,mem=1G"),
    )
    payload = reported(translator, envelope(10, job))[0][1]
    assert (payload["numHwthreads"], payload["numAcc"]) == (4, 2)


DETAILED = replace(
    RUNNING,
    gres_detail=(
        "OverSubscribe=OK",
        "Nodes=c1 CPU_IDs=0-3,8 Mem=600 GRES=gpu:a100:2(IDX:0,2)",
        "Nodes=c2 CPU_IDs= Mem= GRES=",
    ),
)


def test_resources_have_threads_and_accelerators() -> None:
    """A node's CPUs and GPUs by Slurm are in its resource; GPU ids are configured by the site."""
    translator = SonarToCc(envelopes=False, gpu_ids={"c[1,7]": ["A0", "A1"]})
    [(_, start)] = reported(translator, envelope(0, PENDING_AND_DETAILED))
    assert start["resources"] == [
        {"hostname": "c1", "hwthreads": [0, 1, 2, 3, 8], "accelerators": ["A0", "2"]},
        {"hostname": "c2"},
    ]


PENDING_AND_DETAILED = replace(DETAILED, user_name="ann", submit_time=at(-50))


@pytest.mark.parametrize(
    ("text", "default", "shared"),
    [
        ("OverSubscribe=NO", "multi_user", None), ("OverSubscribe=USER", "none", "single_user"),
        ("OverSubscribe=YES", "none", "multi_user"), ("gpu:2", "single_user", "single_user"),
    ],
)  # fmt: skip
def test_shared_is_taken_from_record_or_recipe(text: str, default: Any, shared: str | None) -> None:
    translator = SonarToCc(envelopes=False, shared=default)
    job = replace(PENDING_AND_DETAILED, gres_detail=(text,))
    [(_, start)] = reported(translator, envelope(0, job))
    assert start.get("shared") == shared


def test_invalid_details_are_ignored(translator: SonarToCc) -> None:
    """The job starts without them."""
    job = replace(PENDING_AND_DETAILED, gres_detail=("Nodes=c[1 CPU_IDs=x", "Nodes=c1 GRES=:"))
    [(_, start)] = reported(translator, envelope(0, job))
    assert start["resources"] == [{"hostname": "c1"}, {"hostname": "c2"}]


def test_requeued_job_starts_once_and_stops_at_its_real_end(translator: SonarToCc) -> None:
    """REQUEUED is the end of a run, not of the job."""
    requeued = replace(PENDING_AND_DETAILED, job_state="REQUEUED", end_time=at(100))
    pending = replace(requeued, start_time="", end_time="", nodes=(), submit_time=at(100))
    again = replace(PENDING_AND_DETAILED, submit_time=at(100), start_time=at(200))
    done = replace(again, job_state="COMPLETED", end_time=at(330))
    records = enumerate((PENDING_AND_DETAILED, requeued, pending, again, done))
    events = reported(translator, *(envelope(200 + second, job) for second, job in records))
    assert [event["startTime"] for _, event in events] == [START, START]
    assert (events[1][1]["stopTime"], events[1][1]["jobState"]) == (START + 330, "completed")
