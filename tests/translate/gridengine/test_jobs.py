"""Job events: accepted by cc-backend, key by key, and no start twice."""

import json
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.config import Duration, Site
from ccpipe.formats.gridengine import Accounting, Origin, read
from ccpipe.formats.gridengine.status import Share, parse_xml, read_shares
from ccpipe.formats.lineprotocol import decode, encode, to_lines
from ccpipe.formats.lineprotocol.writer import original
from ccpipe.jobs import Job, JobNode
from ccpipe.jobs import message as job_message
from ccpipe.message import Message, event, metric
from ccpipe.translate.gridengine.export import events
from ccpipe.translate.gridengine.jobs import (
    MEASURES,
    JobRuns,
    Mapping,
    job_of,
    metrics,
    running_jobs,
    state_of,
    to_event,
)
from ccpipe.translate.gridengine.translator import AccountingJobs
from tests.translate.gridengine.test_assembler import DATA, NOW, SECOND, job, record

SITE = Site(cluster="fox", hostname="master")
START_KEYS = {
    "jobId": int, "user": str, "cluster": str, "subCluster": str, "partition": str,
    "project": str, "startTime": int, "submitTime": int, "walltime": int, "numNodes": int,
    "numHwthreads": int, "numAcc": int, "smt": int, "shared": str, "monitoringStatus": int,
    "resources": list, "metaData": dict, "arrayJobId": int, "requestedMemory": int, "jobState": str,
    "tags": list,
}  # fmt: skip
"""Keys of cc-lib's ``schema.Job``, as Go decodes it with DisallowUnknownFields."""
STOP_KEYS = {"jobId": int, "cluster": str, "startTime": int, "stopTime": int, "jobState": str}
STATES = {
    "boot_fail", "cancelled", "completed", "deadline", "failed", "node_fail", "out_of_memory",
    "pending", "preempted", "running", "suspended", "timeout",
}  # fmt: skip


class Backend:
    """The rules of cc-backend's ``internal/api/nats.go``."""

    def __init__(self) -> None:
        self.running: dict[tuple[int, str], int] = {}
        self.starts: dict[tuple[int, str], int] = {}

    def take(self, message: Message) -> None:
        assert (message.name, message.field) == ("job", "event")
        payload = json.loads(str(message.value))
        known = {"start_job": START_KEYS, "stop_job": STOP_KEYS}[message.tags["function"]]
        for key, value in payload.items():
            assert isinstance(value, known[key]), key
        name = payload["jobId"], payload["cluster"]
        if message.tags["function"] == "start_job":
            self.start(name, payload)
        else:
            assert self.running.pop(name) == payload["startTime"] <= payload["stopTime"]
            assert payload["jobState"] in STATES

    def start(self, name: tuple[int, str], payload: dict[str, Any]) -> None:
        assert payload["user"]
        assert payload["numNodes"] == len(payload["resources"]) >= 1
        assert all(set(node) == {"hostname"} and node["hostname"] for node in payload["resources"])
        assert all(isinstance(text, str) for text in payload.get("metaData", {}).values())
        before = self.starts.get(name)
        assert before is None or payload["startTime"] - before >= 86400
        self.running[name] = self.starts[name] = payload["startTime"]


def translated(records: list[Accounting], **options: Any) -> list[Message]:
    wire = encode([to_event(each, cluster="fox") for each in records], precision="auto")
    translator = AccountingJobs(site=SITE, live=True, **options)
    return [*translator.feed(decode(wire)), *translator.flush()]


@pytest.mark.parametrize("name", ["accounting", "derived.jsonl", "reporting.head"])
def test_events_of_samples_are_valid_for_cc_backend(name: str) -> None:
    """Known keys of the right types, one start for each job, each stopped after it."""
    backend = Backend()
    found = translated(read((DATA / name).read_bytes(), file=name).records)
    for message in found:
        backend.take(message)
    assert backend.starts
    assert not backend.running
    assert decode(encode(found, precision="auto")).rejected == []


def test_start_has_all_known_keys() -> None:
    """Every key of a parallel job with limits, from its records."""
    master = job(
        77, task_number=3, granted_pe="mpi", slots=4, qname="all.q", project="astro",
        job_name="burn", account="sge", category="-l h_rt=3600,h_vmem=2G,gpu=1 -pe mpi 4",
        hostname="n1.cluster.example", submit_cmd_line="qsub secret",
    )  # fmt: skip
    task = job(77, task_number=3, pe_taskid="1.n2", hostname="n2.cluster.example")
    earlier = job(77, begin=1, task_number=3, failed=25, exit_status=99)
    start, stop = events(JobRuns(master, (task,), (earlier,)), Mapping(cluster="fox"))
    assert json.loads(str(start.value)) == {
        "jobId": 77000003, "user": "anna", "cluster": "fox", "startTime": NOW // SECOND + 1,
        "numNodes": 2, "resources": [{"hostname": "n1"}, {"hostname": "n2"}],
        "partition": "all.q", "project": "astro", "walltime": 3600, "numHwthreads": 4,
        "numAcc": 4, "shared": "none", "arrayJobId": 77, "submitTime": NOW // SECOND,
        "requestedMemory": 4294,  # of 4 slots of 2 GiB on 2 nodes
        "jobState": "completed",
        "tags": [{"type": "source", "name": "ccpipe", "scope": "admin"}],
        "metaData": {
            "jobName": "burn", "account": "sge", "category": master.metadata["category"],
            "submitTime": str(NOW // SECOND), "pe": "mpi", "exitStatus": "0",
            "failed": "0: no failure", "peTasks": "1", "restarts": "1", "arrayTaskId": "3",
        },
    }  # fmt: skip
    assert json.loads(str(stop.value)) == {
        "jobId": 77000003, "cluster": "fox", "startTime": NOW // SECOND + 1,
        "stopTime": NOW // SECOND + 20, "jobState": "completed",
    }  # fmt: skip
    assert (start.time, stop.time) == (NOW + SECOND, NOW + 20 * SECOND)


def test_event_omits_command_line_by_default() -> None:
    """It may contain secrets."""
    runs = JobRuns(job(submit_cmd_line="qsub -v TOKEN=x"))
    silent = "".join(str(m.value) for m in events(runs, Mapping(cluster="fox")))
    reported = "".join(
        str(m.value) for m in events(runs, Mapping(cluster="fox", command_line=True))
    )
    assert ("TOKEN" in silent, "TOKEN" in reported) == (False, True)


@pytest.mark.parametrize(
    ("known", "state"),
    [
        ({}, "completed"),
        ({"exit_status": 3}, "failed"),
        ({"failed": 37, "exit_status": 137}, "timeout"),
        ({"failed": 100, "exit_status": 137}, "cancelled"),
        ({"failed": 100, "exit_status": 137, "category": "-l h_vmem=1G"}, "failed"),
        ({"failed": 100, "exit_status": 137, "category": "-l h_cpu=1"}, "failed"),
        ({"failed": 100, "exit_status": 139}, "failed"),
        ({"deleted_by": "anna@login"}, "cancelled"),
        ({"failed": 25, "exit_status": 99}, "preempted"),
        ({"failed": 19}, "node_fail"),
        ({"failed": 26}, "failed"),
    ],
)
def test_outcomes_map_to_cc_backend_states(known: dict[str, Any], state: str) -> None:
    """Before OCS 9.1.2 qdel is SIGKILL where no limit was requested."""
    assert state_of(record(**known)) == state


def test_job_that_never_started_has_no_events_or_metrics() -> None:
    """A record without times makes nothing."""
    runs = JobRuns(job(failed=8, start_time=None, end_time=None))
    assert list(events(runs, Mapping(cluster="fox"))) == []
    assert list(metrics(runs, Mapping(cluster="fox"))) == []


def test_run_after_end_is_separate_job() -> None:
    """A late run, or a job number used again; the same run again, as two equal lines, is not."""
    begins = (10, 1000, 90_000, 90_000)
    records = [record(begin=b, origin=Origin("f", at)) for at, b in enumerate(begins)]
    found = [json.loads(str(m.value))["startTime"] for m in translated(records)]
    assert found == [NOW // SECOND + b for b in (10, 10, 1000, 1000, 90_000, 90_000)]


def running(name: str) -> dict[int, Job]:
    shares = read_shares(parse_xml((DATA / name).read_bytes()), zone=UTC)
    return {job.id: job for job in running_jobs(shares, "fox")}


def test_running_jobs_joins_shares_of_job() -> None:
    """Nodes, the master's first, and slots."""
    found = running("qstat-g-t.xml")
    assert found[92] == Job(
        cluster="fox", id=92, state="running", name="colonmpi", user="anna", partition="all.q",
        nodes=(JobNode("node02.cluster.example"), JobNode("node01.cluster.example")), hwthreads=2,
        start=1795170981 * SECOND,
    )  # fmt: skip
    assert (found[103000001].array_id, found[103000001].array_task) == (103, 1)


def test_qhost_lists_same_jobs_as_qstat() -> None:
    """Both outputs were captured at the same time in the same cell."""
    by_host, by_job = running("qhost-j-q-F.xml"), running("qstat-g-t.xml")
    both = by_host.keys() & by_job.keys()
    assert len(both) >= 3
    for number in both:
        one, other = by_host[number], by_job[number]
        assert (one.user, one.hwthreads) == (other.user, other.hwthreads)
        assert set(one.nodes) == set(other.nodes)


def test_running_jobs_make_valid_starts() -> None:
    """Each job that qstat lists makes a start that cc-backend accepts, with all its nodes."""
    backend = Backend()
    for each in running("qstat-g-t.xml").values():
        backend.take(job_message("start_job", Mapping(cluster="fox").apply(each)))
    assert (92, "fox") in backend.running
    assert (103000001, "fox") in backend.running


def test_job_with_live_start_has_only_stop() -> None:
    """The stop has the start that another source sent; a job without one has both."""
    live = record(92, hostname="n1")
    share = Share(
        job_number=92, name="a", owner="anna", queue="all.q", hostname="n1",
        start_time=NOW + 9 * SECOND,
    )  # fmt: skip
    (begun,) = running_jobs([share], "fox")
    start = job_message("start_job", Mapping(cluster="fox").apply(begun))
    translator = AccountingJobs(site=SITE, live=True, stop_delay=Duration(0))
    ends = [to_event(each, cluster="fox") for each in (live, record(93))]
    found = translator.feed(to_lines([start, *ends]))
    assert [m.tags["function"] for m in found] == ["stop_job", "start_job", "stop_job"]
    backend = Backend()
    for message in [start, *found]:
        backend.take(message)
    assert list(translator.feed(found)) == []  # as received again on the bus


def test_finished_job_has_metrics() -> None:
    """One of each, with the time of its end and tags to group by."""
    usage = {
        "rusage": {"ru_wallclock": 10, "ru_maxrss": 7},
        "eusage": {"cpu": 5.0, "mem": 1.5, "io": 0.0, "maxvmem": 2.0},
    }
    last = job(slots=2, project="astro", qname="all.q", usage=usage)
    runs = JobRuns(last, (job(pe_taskid="1.n2"),))
    found = {message.name: message for message in metrics(runs, Mapping(cluster="fox"))}
    assert found.keys() == MEASURES.keys()
    assert found["job_efficiency"].value == 0.5
    assert found["job_wait"].value == 10
    assert found["job_maxrss"].value == 7168
    assert found["job_cpu"].tags == {
        "cluster": "fox", "hostname": "n1", "type": "node", "jobid": "1", "user": "anna",
        "project": "astro", "queue": "all.q", "outcome": "completed",
    }  # fmt: skip
    assert all(message.problems() == [] for message in found.values())


def test_translator_passes_other_messages() -> None:
    """Other messages pass unchanged; an event that cannot be read is refused."""
    tags = {"hostname": "n1", "type": "node"}
    other = metric("cpu_load", 1.0, time=1, tags=tags)
    broken = event("accounting", "record", "{", time=1, tags=tags)
    translator = AccountingJobs(site=SITE, live=True)
    found = translator.feed(to_lines([other, broken]))
    assert list(found) == [other]
    [bad] = found.rejected
    assert (bad.original, bad.reason[:8]) == (original(broken), "not JSON")


texts = st.text(max_size=6) | st.just("caf\udce9")


@given(
    st.builds(
        record, job_name=texts, owner=texts, hostname=texts, project=st.none() | texts,
        category=texts, qname=texts, slots=st.integers(0, 10), task_number=st.integers(0, 9),
        exit_status=st.integers(0, 255), failed=st.integers(0, 101),
    )
)  # fmt: skip
def test_events_can_be_encoded_for_any_texts(each: Accounting) -> None:
    """Whatever a record contains, cc-backend accepts the events."""
    backend = Backend()
    runs = JobRuns(job_of(each, "fox"))
    found = list(events(runs, Mapping(cluster="fox")))
    for message in found:
        backend.take(message)
    wire = encode([*found, *metrics(runs, Mapping(cluster="fox"))], precision="auto")
    assert decode(wire).rejected == []


def test_record_without_time_is_sent_with_latest_time() -> None:
    """OCS writes only zeros for a run that never started; cc-backend drops what follows a 0."""
    times: dict[str, Any] = {"submission_time": None, "start_time": None, "end_time": None}
    never = record(2, failed=8, **times)
    assert to_event(never, cluster="fox").time is None
    first, second = translated([record(), never], emit=["records"])
    assert first.time == second.time == NOW + 20 * SECOND
    (alone,) = translated([never], emit=["records"])
    assert alone.time
