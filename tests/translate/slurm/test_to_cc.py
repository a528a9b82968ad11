"""Slurm's jobs and node states as ClusterCockpit's events."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ccpipe.config import Duration, Site
from ccpipe.errors import ConfigError
from ccpipe.formats.slurm.cluster import Cluster, Node
from ccpipe.formats.slurm.records import Allocation, LiveJob, SlurmId
from ccpipe.jobs import Job, JobNode, Jobs
from ccpipe.message import Message
from ccpipe.translate.slurm.jobs import job_of_live, pending_of_live
from ccpipe.translate.slurm.to_cc import SlurmToCc

SITE = Site(cluster="fox", hostname="master")
SECOND = 10**9
TIME = 1795170834 * SECOND
LIVE = LiveJob(
    SlurmId(7), state="RUNNING", user="alice", submit=TIME, start=TIME, node_list="g1", cpus=2,
    allocation=(Allocation(node_list="g1", cpu_ids="0-1", memory=2**30, gres="gpu:2(IDX:0,2)"),),
)  # fmt: skip
ENDED = replace(LIVE, state="COMPLETED", end=TIME + 5 * SECOND)


def jobs(*records: LiveJob, time: int = TIME) -> Jobs:
    return Jobs([job_of_live(record, "fox") for record in records], time=time)


def translator(**options: Any) -> SlurmToCc:
    return SlurmToCc(site=SITE, stop_delay=Duration(0), **options)


def functions(messages: Any) -> list[str]:
    return [message.tags["function"] for message in messages]


def test_translator_sends_start_and_stop_once() -> None:
    found = translator()
    assert functions(found.feed(jobs(LIVE))) == ["start_job"]
    assert functions(found.feed(jobs(LIVE))) == []
    assert functions(found.feed(jobs(ENDED))) == ["stop_job"]
    assert functions(found.feed(jobs(ENDED))) == []
    assert functions(translator().feed(jobs(ENDED))) == ["start_job", "stop_job"]


def test_translator_accepts_jobs_of_other_schedulers() -> None:
    job = Job(cluster="fox", id=7, state="completed", user="alice", submit=TIME, start=TIME,
              end=TIME + SECOND, nodes=(JobNode("g1"),))  # fmt: skip
    made = translator().feed(Jobs([job], time=TIME))
    assert functions(made) == ["start_job", "stop_job"]
    assert not made.rejected


def test_translator_repeats_no_events_after_restart(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    first = translator(state_file=state)
    start = list(first.feed(jobs(LIVE)))
    del first
    second = translator(state_file=state)
    assert list(second.feed(jobs(LIVE))) == start
    second.commit(1)
    del second
    assert functions(translator(state_file=state).feed(jobs(ENDED))) == ["stop_job"]


def test_events_have_poll_time_and_cluster_as_host() -> None:
    """By these ``cc_to_sonar`` recognises them."""
    (start,) = translator().feed(jobs(LIVE, time=TIME + SECOND))
    assert (start.time, start.tags["hostname"]) == (TIME + SECOND, "fox")


def test_gpus_have_configured_ids() -> None:
    (start,) = translator(gpu_ids={"g[1-2]": ["A", "B"]}).feed(jobs(LIVE))
    assert json.loads(str(start.value))["resources"] == [
        {"hostname": "g1", "hwthreads": [0, 1], "accelerators": ["A", "2"]}
    ]
    with pytest.raises(ConfigError, match="gpu_ids"):
        translator(gpu_ids={"g[": ["A"]})


def with_allocation(job: LiveJob, **changes: Any) -> LiveJob:
    return replace(job, allocation=(replace(job.allocation[0], **changes),))


LISTED = ("0000:49:00.0", "0000:4a:00.0")
WITH_COMMENT = with_allocation(LIVE, gres=None, comment_gpus=LISTED)
"""A job without indices of GPUs, whose comment names two."""


@pytest.mark.parametrize(
    ("record", "accelerators", "count"),
    [
        (WITH_COMMENT, list(LISTED), 2),
        (with_allocation(WITH_COMMENT, gres="gpu:2"), list(LISTED), 2),
        (with_allocation(WITH_COMMENT, gres="gpu:2(IDX:0,2)"), ["A", "2"], 2),
        (replace(WITH_COMMENT, node_list="g[1-2]"), None, 0),
    ],
)
def test_gpus_of_comment_are_used_for_job_on_one_node(
    record: LiveJob, accelerators: list[str] | None, count: int
) -> None:
    """Slurm's own indices take precedence."""
    (start,) = translator(gpu_ids={"g1": ["A"]}, comment_gpus=True).feed(jobs(record))
    found = json.loads(str(start.value))
    assert found["resources"][0].get("accelerators") == accelerators
    assert found.get("numAcc", 0) == count


def test_gpus_of_comment_are_allocated_on_node() -> None:
    found = translator(comment_gpus=True)
    found.feed(jobs(WITH_COMMENT))
    (event,) = found.feed(Jobs(time=TIME, cluster=Cluster([Node("g1", ("MIXED",))])))
    assert json.loads(str(event.value))["nodes"][0]["gpusAllocated"] == 2


def test_comments_are_ignored_by_default() -> None:
    """Users write them: one could name the GPUs of another job."""
    (start,) = translator().feed(jobs(WITH_COMMENT))
    assert "accelerators" not in json.loads(str(start.value))["resources"][0]


def test_node_states_include_resources_used_by_jobs() -> None:
    """Zero where a node is idle; nothing where its jobs are not known."""
    found = translator()
    found.feed(jobs(LIVE))
    cluster = Cluster([Node("g1", ("MIXED",)), Node("g2", ("IDLE",)), Node("g3", ("DOWN",))])
    (event,) = found.feed(Jobs(time=TIME, cluster=cluster))
    assert event.tags["hostname"] == "fox"
    assert json.loads(str(event.value)) == {
        "cluster": "fox",
        "nodes": [
            {"hostname": "g1", "states": ["mixed"], "cpusAllocated": 2, "memoryAllocated": 1024,
             "gpusAllocated": 2, "jobsRunning": 1},
            {"hostname": "g2", "states": ["idle"], "cpusAllocated": 0, "memoryAllocated": 0,
             "gpusAllocated": 0, "jobsRunning": 0},
            {"hostname": "g3", "states": ["down"]},
        ],
    }  # fmt: skip


def test_numbers_of_nodes_are_metrics_by_option() -> None:
    """Zero where a node is idle; none where its jobs are not known."""
    found = translator(node_metrics=True)
    found.feed(jobs(LIVE))
    cluster = Cluster([Node("g1", ("MIXED",)), Node("g2", ("IDLE",)), Node("g3", ("DOWN",))])
    event, *metrics = found.feed(Jobs(time=TIME, cluster=cluster))
    assert event.name == "nodestate"
    assert {(m.name, m.tags["hostname"]): m.value for m in metrics} == {
        ("cpus_allocated", "g1"): 2, ("gpus_allocated", "g1"): 2, ("jobs_running", "g1"): 1,
        ("mem_allocated", "g1"): 2**20, ("cpus_allocated", "g2"): 0, ("gpus_allocated", "g2"): 0,
        ("jobs_running", "g2"): 0, ("mem_allocated", "g2"): 0,
    }  # fmt: skip
    assert {(m.field, m.time, m.tags["type"], m.tags["cluster"]) for m in metrics} == {
        ("value", TIME, "node", "fox")
    }


def test_excluded_nodes_have_no_states_and_their_jobs_are_not_reported() -> None:
    """A job that also has other nodes is reported with all of them; so is one that waits."""
    found = translator(exclude_nodes=["g[1-2]", "login1"])
    assert functions(found.feed(jobs(LIVE))) == []
    assert functions(found.feed(jobs(ENDED))) == []
    both = replace(LIVE, id=SlurmId(8), node_list="g[1,3]", allocation=())
    (start,) = found.feed(jobs(both))
    hosts = [each["hostname"] for each in json.loads(str(start.value))["resources"]]
    assert hosts == ["g1", "g3"]
    cluster = Cluster([Node("g1", ("DOWN",), "no reason"), Node("g3", ("IDLE",))])
    (event,) = found.feed(Jobs(time=TIME, cluster=cluster))
    assert [row["hostname"] for row in json.loads(str(event.value))["nodes"]] == ["g3"]
    with pytest.raises(ConfigError, match=r"exclude_nodes: .*g\[1-"):
        translator(exclude_nodes=["g[1-"])


def test_reasons_of_nodes_are_event_of_their_own() -> None:
    """The keys of nodestate have no place for them; without a reason there is none."""
    down = Node("g3", ("DOWN",), "bad DIMM" + 300 * "!")
    states, reasons = translator().feed(
        Jobs(time=TIME, cluster=Cluster([Node("g1", ("IDLE",)), down]))
    )
    assert (states.name, reasons.name) == ("nodestate", "nodereason")
    payload = json.loads(str(reasons.value))
    assert payload["cluster"] == "fox"
    [row] = payload["nodes"]
    assert (row["hostname"], row["reason"][:10], len(row["reason"])) == ("g3", "bad DIMM!!", 255)


def test_errors_become_log_lines_of_polling_node() -> None:
    found = translator().feed(Jobs(time=TIME, errors=["sacct: timed out"]))
    tags = {"cluster": "fox", "hostname": "master", "type": "node", "loglevel": "error"}
    assert list(found) == [Message("sonar", tags, "sacct: timed out", TIME, "log")]


def test_translator_rejects_job_that_cannot_be_reported() -> None:
    found = translator()
    wrong = replace(ENDED, id=SlurmId(8), user=None)
    made = found.feed(jobs(wrong, LIVE))
    assert functions(made) == ["start_job"]
    (rejected,) = made.rejected
    assert rejected.reason == "job 8: it has ended, but its user is unknown"
    assert b'"job":8' in rejected.original
    assert not found.feed(jobs()).rejected


QUEUED = LiveJob(SlurmId(9), state="PENDING", user="alice", nodes=2, reason="Resources")


def poll(*records: LiveJob) -> Jobs:
    queue = [pending_of_live(each, "fox") for each in records if each.state == "PENDING"]
    return Jobs([job_of_live(each, "fox") for each in records], time=TIME, queue=queue)


def test_pending_job_is_reported_until_it_starts_or_is_cancelled() -> None:
    found = translator()
    other = replace(QUEUED, id=SlurmId(10))
    (waiting,) = found.feed(poll(QUEUED, other))
    assert (waiting.name, waiting.tags["hostname"], waiting.time) == ("jobpending", "fox", TIME)
    started = replace(LIVE, id=SlurmId(9))
    start, left = found.feed(poll(started, replace(other, state="CANCELLED", end=TIME)))
    assert start.tags["function"] == "start_job"
    assert json.loads(str(left.value))["left"] == [
        {"jobId": 9, "jobState": "running"}, {"jobId": 10, "jobState": "cancelled"},
    ]  # fmt: skip


def test_failed_squeue_ends_no_pending_job() -> None:
    found = translator()
    found.feed(poll(QUEUED))
    assert list(found.feed(Jobs(time=TIME))) == []


def test_pending_jobs_are_not_repeated_after_restart(tmp_path: Path) -> None:
    """If they were stored; else they are sent again as they were."""
    state = str(tmp_path / "state")
    first = translator(state_file=state)
    sent = list(first.feed(poll(QUEUED)))
    del first
    second = translator(state_file=state)
    assert list(second.feed(poll(QUEUED))) == sent
    second.commit(1)
    del second
    assert list(translator(state_file=state).feed(poll(QUEUED))) == []


def test_pending_jobs_are_not_reported_if_disabled() -> None:
    assert list(translator(pending_jobs=False).feed(poll(QUEUED))) == []
