"""Envelopes to lines: nodes' states, topologies and errors; state kept over restarts."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ccpipe.config import Duration
from ccpipe.formats import clustercockpit, sonar
from ccpipe.formats.nodelist import expand
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc
from tests.formats.sonar import strategies
from tests.translate.sonar.sonar_samples import META, at, job, sample, values
from tests.translate.sonar.test_sonar_to_cc_jobs import COMPLETED, PENDING, RUNNING, envelope

NOTHING = {"cpusAllocated": 0, "memoryAllocated": 0, "gpusAllocated": 0, "jobsRunning": 0}


@pytest.fixture
def translator() -> SonarToCc:
    return SonarToCc(envelopes=False)


def test_node_states_become_events(translator: SonarToCc, monkeypatch: pytest.MonkeyPatch) -> None:
    """In lower case, each node once with all its states, so many to an event."""
    monkeypatch.setattr(clustercockpit, "MAX_STATES", 2)
    nodes = (
        sonar.ClusterNodes(("c[1-3]",), ("IDLE",)),
        sonar.ClusterNodes(("c3",), ("IDLE", "DRAIN")),
    )
    attributes = sonar.ClusterAttributes(at(0), "fox", slurm=True, nodes=nodes)
    lines = translator.feed(Envelopes([sonar.ClusterEnvelope(META, sonar.ClusterData(attributes))]))
    assert [message.tags["function"] for message in lines] == ["nodestate"] * 2
    states = [json.loads(str(message.value)) for message in lines]
    assert states == [
        {
            "cluster": "fox",
            "nodes": [
                {"hostname": "c1", "states": ["idle"], **NOTHING},
                {"hostname": "c2", "states": ["idle"], **NOTHING},
            ],
        },
        {"cluster": "fox", "nodes": [{"hostname": "c3", "states": ["idle", "drain"], **NOTHING}]},
    ]


def test_node_states_include_resources_of_running_jobs(translator: SonarToCc) -> None:
    """As Slurm allocated them; omitted, never 0, unless known for each job on the node."""
    detail = ("Nodes=c[1-2] CPU_IDs=0-3 Mem=800 GRES=gpu:a100:2(IDX:0,2)", "OverSubscribe=OK")
    jobs = [
        replace(RUNNING, user_name="ann", gres_detail=detail),
        replace(RUNNING, user_name="ann", job_id=2, nodes=("c2",),
                allocated_resources="billing=8,cpu=8,gres/gpu=1,mem=4G,node=1"),
        replace(RUNNING, user_name="ann", job_id=3, nodes=("c[3-4]",)),
        replace(RUNNING, user_name="ann", job_id=4, nodes=("c5",), end_time=at(5),
                job_state="COMPLETED"),
        replace(PENDING, job_id=5, nodes=("c5",)),
    ]  # fmt: skip
    states = {"c[1,3]": "MIXED", "c2": "ALLOCATED", "c5": "IDLE", "c[6-7]": "MIXED", "c8": "DOWN"}
    nodes = tuple(sonar.ClusterNodes((names,), (state,)) for names, state in states.items())
    attributes = sonar.ClusterAttributes(at(9), "fox", slurm=True, nodes=nodes)
    cluster = sonar.ClusterEnvelope(META, sonar.ClusterData(attributes))
    lines = translator.feed(Envelopes([envelope(9, *jobs), cluster]))
    (message,) = [one for one in lines if one.name == "nodestate"]
    numbers = {row.pop("hostname"): row for row in json.loads(str(message.value))["nodes"]}
    for row in numbers.values():
        del row["states"]
    assert numbers == {
        "c1": {"cpusAllocated": 4, "memoryAllocated": 800, "gpusAllocated": 2, "jobsRunning": 1},
        "c2": {"cpusAllocated": 12, "memoryAllocated": 4896, "gpusAllocated": 3, "jobsRunning": 2},
        "c3": {"jobsRunning": 1},
        "c5": NOTHING,
        "c6": {},
        "c7": {},
        "c8": {},
    }


def test_invalid_node_list_is_rejected_alone(translator: SonarToCc) -> None:
    """The others are sent; the envelope becomes a dead letter with the reason."""
    nodes = (sonar.ClusterNodes(("None assigned", "c1"), ("IDLE",)),)
    bad = sonar.ClusterEnvelope(
        META, sonar.ClusterData(sonar.ClusterAttributes(at(0), "fox", nodes=nodes))
    )
    lines = translator.feed(Envelopes([bad]))
    (line,) = lines
    assert json.loads(str(line.value))["nodes"][0]["hostname"] == "c1"
    [refused] = lines.rejected
    assert refused.original == sonar.encode(bad).rstrip()
    assert "None assigned" in refused.reason


def test_node_has_event_topology(translator: SonarToCc) -> None:
    """With its sockets, cores and accelerators."""
    gpu = sonar.SysinfoGpuCard(index=1, uuid="GPU-1", manufacturer="NVIDIA", model="H200", memory=7)
    node = sonar.SysinfoAttributes(
        time=at(0), cluster="fox", node="c1", sockets=2, cores_per_socket=64, threads_per_core=2,
        cpu_model="EPYC", memory=1000, cards=(gpu,), numa_nodes=8,
    )  # fmt: skip
    (line,) = translator.feed(Envelopes([sonar.SysinfoEnvelope(META, sonar.SysinfoData(node))]))
    assert (line.name, line.tags["function"], line.hostname) == ("topology", "sysinfo", "c1")
    payload = json.loads(str(line.value))
    assert payload["socketsPerNode"] * payload["coresPerSocket"] == 128
    assert payload["accelerators"] == [
        {"id": "GPU-1", "type": "NVIDIA", "model": "H200", "index": 1, "memory": 7}
    ]


def test_hard_errors_become_log_lines(translator: SonarToCc) -> None:
    """Of their node, or of the cluster."""
    errors = (
        sonar.ErrorObject(at(0), "no sacct", "fox"),
        sonar.ErrorObject(at(0), "no sinfo", "fox"),
    )
    lines = list(translator.feed(Envelopes([sonar.Envelope(META, errors=errors)])))
    assert [(m.value, m.tags["loglevel"], m.hostname) for m in lines] == [
        ("no sacct", "error", "fox"),
        ("no sinfo", "error", "fox"),
    ]


def test_envelope_that_cannot_be_encoded_is_rejected() -> None:
    """Other envelopes are unaffected."""
    bad = envelope(0, replace(PENDING, job_name="\ud800"))
    translator = SonarToCc()
    lines = translator.feed(Envelopes([bad, envelope(0, PENDING)]))
    assert len(lines) == 1
    assert [refused.original for refused in lines.rejected] == [Envelopes([bad]).original(0)]


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        ("", "the time is missing"),
        ("2300-01-01T00:00:00Z", "the time 2300-01-01T00:00:00Z is outside of 1678 to 2262, the"),
        ("1600-01-01T00:00:00Z", "the time 1600-01-01T00:00:00Z is outside of 1678 to 2262, the"),
    ],
)
def test_envelope_without_usable_time_is_rejected(
    translator: SonarToCc, time: str, reason: str
) -> None:
    """Also an envelope of errors; the message names the reason."""
    good = sonar.SysinfoEnvelope(
        META, sonar.SysinfoData(sonar.SysinfoAttributes(time=time, cluster="f", node="c"))
    )
    bad = sonar.Envelope(META, errors=(sonar.ErrorObject(time, "no sacct", "fox"),))
    lines = translator.feed(Envelopes([good, bad]))
    assert len(lines) == 0
    assert [refused.original for refused in lines.rejected] == [
        Envelopes([each]).original(0) for each in (good, bad)
    ]
    lines = translator.feed(Envelopes([good]))
    assert len(lines) == 0
    assert lines.rejected[0].reason.startswith(reason)


def test_unusable_jobs_are_rejected_alone(translator: SonarToCc) -> None:
    """In an envelope of their own; the other records of theirs are sent."""
    good = replace(COMPLETED, user_name="ann")
    bad = (
        replace(good, job_id=8, nodes=("c[1-",)),
        replace(good, job_id=0),
        replace(good, job_id=9, user_name=""),
    )
    lines = translator.feed(Envelopes([envelope(600, bad[0], good, *bad[1:])]))
    assert functions(lines) == ["start_job", "stop_job"]
    [refused] = lines.rejected
    assert refused.original == sonar.encode(envelope(600, *bad)).rstrip()
    assert [part.partition(": ")[0] for part in refused.reason.split("; ")] == [
        "job 8",
        "job 0",
        "job 9",
    ]


UNREADABLE = (("c[", "d1"), ("a b",))
JOBS = st.lists(
    st.builds(
        sonar.SlurmJob,
        job_id=st.integers(0, 5),
        job_step=st.sampled_from(("", "", "batch")),
        job_state=st.sampled_from(("PENDING", "RUNNING", "COMPLETED", "CANCELLED by 1")),
        user_name=st.sampled_from(("ann", "")),
        nodes=st.sampled_from(((), ("None assigned",), ("c[1-2]", "d1"), *UNREADABLE)),
        start_time=st.sampled_from(("", at(0))),
        end_time=st.sampled_from(("", at(9))),
    ),
    unique_by=lambda job: job.job_id,
)


@given(JOBS, st.sampled_from(("fox", "")))
def test_each_job_is_started_or_rejected(jobs: list[sonar.SlurmJob], cluster: str) -> None:
    """Each that has run is a start, each unusable one is rejected.

    Steps, jobs that never ran, and incomplete jobs are neither.
    """
    translator = SonarToCc(envelopes=False)
    lines = translator.feed(Envelopes([envelope(60, *jobs, cluster=cluster)]))
    out = {
        json.loads(str(line.value))["jobId"]
        for line in lines
        if line.tags["function"] == "start_job"
    }
    rejected = {
        job.job_id
        for refused in lines.rejected
        for bad in sonar.decode(refused.original)
        if isinstance(bad.data, sonar.JobsData)
        for job in bad.data.attributes.slurm_jobs
    }
    whole = [job for job in jobs if not job.job_step]
    bad = {job.job_id for job in whole if not (job.job_id and cluster) or job.nodes in UNREADABLE}
    ran = [
        job
        for job in whole
        if job.job_id not in bad
        and job.job_state != "PENDING"
        and job.start_time
        and "c[1-2]" in job.nodes
    ]
    of_nobody = {
        job.job_id
        for job in ran
        if not job.user_name and job.end_time and job.job_state != "RUNNING"
    }
    assert out == {job.job_id for job in ran if job.user_name}
    assert rejected == bad | of_nobody


def records_in(envelope: sonar.Envelope) -> list[Any]:
    match envelope.data:
        case sonar.SampleData(attributes=sample):
            jobs = {(job.job, job.epoch, job.user) for job in sample.jobs}
            return [*jobs, *(error.detail for error in sample.errors)]
        case sonar.SysinfoData(attributes=node):
            return [node.node]
        case sonar.ClusterData(attributes=cluster):
            return sorted({n for nodes in cluster.nodes for t in nodes.names for n in expand(t)})
        case None:
            return [error.detail for error in envelope.errors]
    return []


@given(strategies.envelopes, st.sampled_from((None, "", "1500-01-01T00:00:00Z")))
def test_each_envelope_makes_lines_or_is_rejected(whole: sonar.Envelope, time: str | None) -> None:
    """Nothing is dropped without a reason."""
    if time is not None:
        whole = with_time(whole, time)
    translator = SonarToCc(envelopes=False, all_jobs=True)
    found = translator.feed(Envelopes([whole]))
    lines = list(found)
    rejected = [bad.original for bad in found.rejected]
    if isinstance(whole.data, sonar.JobsData) and time is None:
        return  # see above
    out: list[Any] = [line.value for line in lines if line.field == "log"]
    out += [line.tags for line in lines if line.name == "job_processes"]
    out += [line.hostname for line in lines if line.name == "topology"]
    for line in lines:
        if line.name == "nodestate":
            out += [node["hostname"] for node in json.loads(str(line.value))["nodes"]]
    assert rejected == ([] if time is None else [Envelopes([whole]).original(0)])
    assert len(out) == (len(records_in(whole)) if time is None else 0)


def with_time(envelope: sonar.Envelope, time: str) -> sonar.Envelope:
    if envelope.data is None:
        errors = tuple(replace(error, time=time) for error in envelope.errors)
        return replace(envelope, errors=errors)
    attributes = replace(envelope.data.attributes, time=time)
    return replace(envelope, data=replace(envelope.data, attributes=attributes))


RAN = replace(COMPLETED, user_name="ann")


def functions(lines: Any) -> list[str]:
    return [message.tags["function"] for message in lines]


def test_restart_repeats_no_start(tmp_path: Path) -> None:
    """With a state; uncommitted messages are sent again, byte for byte."""
    state = str(tmp_path / "state")
    running = envelope(10, replace(RUNNING, user_name="ann"))
    first = SonarToCc(envelopes=False, state_file=state)
    start = list(first.feed(Envelopes([running])))
    assert functions(start) == ["start_job"]
    del first  # killed before its output was written
    second = SonarToCc(envelopes=False, state_file=state)
    assert list(second.feed(Envelopes([running]))) == start
    second.commit(1)
    del second
    third = SonarToCc(envelopes=False, state_file=state, stop_delay=Duration(0))
    assert functions(third.feed(Envelopes([running]))) == []
    assert functions(third.feed(Envelopes([envelope(600, RAN)]))) == ["stop_job"]


def test_counters_continue_after_restart(tmp_path: Path) -> None:
    """With a state; a sample whose output was not committed has its gains again."""
    state = str(tmp_path / "state")
    samples = [
        sample(60 * n, cpus=(30 * n,), jobs=(job(sonar.SampleProcess(pid=1, cpu_time=30 * n)),))
        for n in range(4)
    ]
    first = SonarToCc(envelopes=False, state_file=state)
    first.feed(Envelopes([samples[0]]))
    first.feed(Envelopes([samples[1]]))
    first.commit(1)
    del first  # killed before the second feed was written
    for number in (1, 2, 3):
        translator = SonarToCc(envelopes=False, state_file=state)
        lines = translator.feed(Envelopes([samples[number]]))
        assert values(lines)["cpu_used"] == 50
        assert values(lines, stype="job", stype_id="7")["job_cpu_used"] == 50
        translator.commit(1)


def test_flush_returns_held_stop() -> None:
    """At the end nothing is lost."""
    translator = SonarToCc(envelopes=False)
    translator.feed(Envelopes([envelope(10, replace(RUNNING, user_name="ann"))]))
    translator.feed(Envelopes([envelope(600, RAN)]))
    assert functions(translator.flush()) == ["stop_job"]
    assert translator.oldest_held() is None
