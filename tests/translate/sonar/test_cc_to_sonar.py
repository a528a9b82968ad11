"""ClusterCockpit's messages to envelopes: windows, late data, events, and preserved fields."""

import json
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from ccpipe.config import Duration
from ccpipe.formats import sonar
from ccpipe.formats.lineprotocol import decode, encode, to_lines
from ccpipe.formats.lineprotocol.writer import original
from ccpipe.formats.sonar import JobsData, SacctData, SlurmJob
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.formats.sonar.sums import synthetic_pid
from ccpipe.message import Message, event, log, metric
from ccpipe.pipeline.state import StateStore
from ccpipe.translate.sonar.cc_to_sonar import META, CcToSonar, JobEvents
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc
from tests.translate.sonar.sonar_samples import START, at, sample
from tests.translate.sonar.test_sonar_to_cc_jobs import COMPLETED, PENDING, RUNNING, envelope


def load(second: int, value: float = 1.0, node: str = "c1", name: str = "cpu_load") -> Message:
    tags = {"cluster": "fox", "hostname": node, "type": "node"}
    return metric(name, value, time=(START + second) * 10**9, tags=tags)


def translator(hold: float = 5) -> CcToSonar:
    made = CcToSonar(hold_timeout=Duration(hold))
    made.clock = lambda: 0.0
    return made


def samples(envelopes: list[sonar.Envelope]) -> list[sonar.SampleAttributes]:
    return [e.data.attributes for e in envelopes if isinstance(e.data, sonar.SampleData)]


def test_window_joins_metrics_of_one_time() -> None:
    """In any number of payloads, until the node has sent sufficiently newer ones."""
    there = translator()
    assert there.feed(to_lines([load(0, 1.5)])) == []
    assert there.feed(to_lines([load(0, 1000, name="mem_used"), load(5, 9)])) == []
    (first,) = samples(there.feed(to_lines([load(10, 2.5)])))
    assert there.oldest_held() == 2
    system = sonar.SampleSystem(load1=1.5, used_memory=1000)
    assert first == sonar.SampleAttributes(time=at(0), cluster="fox", node="c1", system=system)
    assert [s.time for s in samples(there.flush())] == [at(5), at(10)]
    assert there.oldest_held() is None


def test_window_of_silent_node_closes_after_hold() -> None:
    """By the clock, a sample waits at most `hold_timeout`."""
    there = translator(hold=5)
    there.feed(to_lines([load(0)]))
    there.clock = lambda: 4.9
    assert there.feed(to_lines([])) == []
    assert there.oldest_held() == 1
    there.clock = lambda: 5.0
    assert len(there.feed(to_lines([]))) == 1
    assert there.oldest_held() is None


def test_late_metrics_make_another_envelope() -> None:
    """It has the same time."""
    there = translator()
    there.feed(to_lines([load(0, 1.5)]))
    assert len(there.feed(to_lines([load(60)]))) == 1
    (late,) = samples(there.feed(to_lines([load(0, 7, name="mem_used")])))
    assert (late.time, late.system) == (at(0), sonar.SampleSystem(used_memory=7))


def test_window_is_not_closed_by_other_nodes() -> None:
    """A node whose clock is ahead closes only its own windows."""
    there = translator()
    assert there.feed(to_lines([load(0, node="c1"), load(1000, node="c2")])) == []
    assert [s.node for s in samples(there.flush())] == ["c1", "c2"]


def test_oldest_windows_are_closed_beyond_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded however many nodes there are."""
    monkeypatch.setattr("ccpipe.translate.sonar.cc_to_sonar.MAX_WINDOWS", 3)
    there = translator()
    ready = there.feed(to_lines([load(0, node=f"c{i}") for i in range(10)]))
    assert [s.node for s in samples(ready)] == [f"c{i}" for i in range(7)]


def test_metric_without_time_is_rejected() -> None:
    there = translator()
    found = there.feed(decode(b"cpu_load,hostname=c1,type=node value=1\n"))
    assert [bad.reason for bad in found.rejected] == ["the timestamp is missing"]


def plain(*envelopes: sonar.Envelope) -> list[sonar.Envelope]:
    there = SonarToCc(envelopes=False, all_jobs=True)
    back = translator()
    made = there.feed(Envelopes(envelopes))
    found = back.feed(decode(encode(made, precision="auto")))
    returned = found + back.flush()
    assert not made.rejected
    assert not found.rejected
    assert not [problem for e in returned for problem in sonar.problems(e, strict=True)]
    return returned


def test_metrics_preserve_documented_fields() -> None:
    """Exactly the fields that docs/sonar/metrics.md lists; each has another value here."""
    gpu = sonar.SampleGpu(0, "GPU-1", 1, 2, "", sonar.ExtendedUint(3), 4, 5, 6, -7, 8, 9, 10, 11)
    on = sonar.SampleProcessGpu(0, "GPU-1", 30.5, 512, 5.25)
    process = sonar.SampleProcess(
        resident_memory=10, virtual_memory=20, num_threads=3, rolledup=4, cpu_util=12.5, gpus=(on,)
    )
    error = sonar.ErrorObject(at(0), "nvml", "fox", "c1")
    kept = sample(
        jobs=(
            sonar.SampleJob(job=7, user="ann", processes=(process,)),
            sonar.SampleJob(job=8, user="bob", epoch=9, processes=(process,)),
        ),
        errors=(error,),
        gpus=(gpu,),
        used_memory=1000,
        load1=1.5,
        load5=2.5,
        load15=3.5,
        runnable_entities=3,
        existing_entities=4,
        boot=at(-1000),
    )
    assert kept.data is not None
    sent = replace(kept, data=sonar.SampleData(_with_average(kept.data.attributes)))
    (returned,) = plain(sent)
    assert returned == replace(kept, meta=META, data=sonar.SampleData(_as_stand_ins(kept)))


def _as_stand_ins(envelope: sonar.Envelope) -> sonar.SampleAttributes:
    """Give each job's process what no metric carries: a synthetic ID, and the average so far."""
    (attributes,) = samples([envelope])
    jobs = tuple(
        replace(
            one,
            processes=tuple(
                replace(p, pid=synthetic_pid(one, 0, ""), cpu_avg=p.cpu_util) for p in one.processes
            ),
        )
        for one in attributes.jobs
    )
    return replace(attributes, jobs=jobs)


def _with_average(attributes: sonar.SampleAttributes) -> sonar.SampleAttributes:
    """Turn ``cpu_util``, which comes back, into ``cpu_avg``, of which it is made at first."""
    jobs = tuple(
        replace(
            one, processes=tuple(replace(p, cpu_avg=p.cpu_util, cpu_util=0) for p in one.processes)
        )
        for one in attributes.jobs
    )
    return replace(attributes, jobs=jobs)


def test_job_events_preserve_fields() -> None:
    """The fields of cc-backend, and those in the metadata."""
    started, stopped = plain(
        envelope(-40, PENDING), envelope(10, RUNNING), envelope(600, COMPLETED)
    )
    assert isinstance(started.data, sonar.JobsData)
    (record,) = started.data.attributes.slurm_jobs
    lost = {"priority": record.priority, "gres_detail": ()}
    whole = asdict(PENDING) | {k: v for k, v in asdict(RUNNING).items() if v} | lost
    assert asdict(record) == whole
    assert isinstance(stopped.data, sonar.JobsData)
    (end,) = stopped.data.attributes.slurm_jobs
    ended = {
        "job_state": "COMPLETED",
        "end_time": at(500),
        "sacct": sonar.SacctData(ElapsedRaw=500),
    }
    assert asdict(end) == whole | ended
    assert stopped.data.attributes.time == at(600)


def test_state_keeps_starts_and_cpu_time_after_restart(tmp_path: Path) -> None:
    """Another process goes on where the first ended."""
    from tests.translate.sonar.test_cc_to_sonar_sample import cpu_used, processes_of

    path = str(tmp_path / "state")

    def run_one(*rows: Message) -> list[sonar.Envelope]:
        there = CcToSonar(state_file=path)
        there.clock = lambda: 0.0
        made = there.feed(to_lines(list(rows))) + there.flush()
        there._state._file.close()  # type: ignore[union-attr]
        return made

    run_one(START_7, cpu_used(0, 50.0), cpu_used(60, 50.0))
    stop = job_event("stop_job", 90, startTime=START, stopTime=START + 90)
    made = run_one(cpu_used(120, 50.0), stop)
    assert [p.cpu_time for p in processes_of(made)] == [60]
    (ended,) = [e.data.attributes.slurm_jobs[0] for e in made if isinstance(e.data, sonar.JobsData)]
    assert ended.submit_time == at(-60)


def test_node_events_preserve_fields() -> None:
    """States of nodes; the topology without pictures and distances."""
    nodes = (
        sonar.ClusterNodes(("c[1-3]",), ("IDLE",)),
        sonar.ClusterNodes(("c4",), ("DOWN", "DRAIN")),
    )
    cluster = sonar.ClusterEnvelope(
        META, sonar.ClusterData(sonar.ClusterAttributes(at(0), "fox", slurm=True, nodes=nodes))
    )
    gpu = sonar.SysinfoGpuCard(1, "u", "a", "NVIDIA", "m", "Volta", "d", "f", 1, 2, 3, 4, 5, 6)
    node = sonar.SysinfoAttributes(
        at(0), "fox", "c1", "Linux", "6.1", "x86_64", 2, 64, 2, "EPYC", 1000, "", "", (gpu,), (), 8
    )
    sysinfo = sonar.SysinfoEnvelope(META, sonar.SysinfoData(node))
    assert plain(cluster, sysinfo) == [cluster, sysinfo]
    error = sonar.Envelope(META, errors=(sonar.ErrorObject(at(0), "no sacct", "fox", "c1"),))
    assert plain(error) == [error]


def test_nan_is_rejected_alone() -> None:
    """Other metrics of the sample are kept."""
    there = translator()
    lines = to_lines([load(0, float("nan"), name="mem_used"), load(0, 2.0)])
    there.feed(lines)
    (only,) = samples(there.flush())
    assert only.system == sonar.SampleSystem(load1=2.0)
    assert len(lines.rejected) == 1


def test_log_lines_of_other_components_are_ignored() -> None:
    """Only lines of the component ``sonar`` become errors."""
    tags = {"cluster": "fox", "hostname": "c1", "type": "node"}
    line = log("slurmd", "error", "no", time=START * 10**9, tags=tags)
    there = translator()
    assert there.feed(to_lines([line])) + there.flush() == []


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


def test_stop_includes_fields_of_its_start() -> None:
    """slurm-monitor rejects a record without submit_time; another run's start is not used."""
    there = translator()
    record(there, START_7)
    stop = job_event("stop_job", 90, startTime=START, stopTime=START + 90, jobState="failed")
    made = record(there, stop)
    assert (made.submit_time, made.user_name, made.nodes) == (at(-60), "ann", ("c1",))
    assert (made.job_state, made.sacct) == ("FAILED", SacctData(ElapsedRaw=90))
    assert record(there, stop) == made
    other = job_event("stop_job", 90, startTime=START + 5, stopTime=START + 90)
    assert record(there, other).submit_time == ""


def test_stop_without_start_time_uses_known_start() -> None:
    """Without any known start, the elapsed time is omitted."""
    stop = job_event("stop_job", 90, stopTime=START + 90)
    assert record(translator(), stop).sacct is None
    there = translator()
    record(there, START_7)
    assert record(there, stop).sacct == SacctData(ElapsedRaw=90)


def test_scripts_of_starts_are_not_kept(tmp_path: Path) -> None:
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


def test_events_of_other_publishers_become_envelopes() -> None:
    """cc-slurm-adapter names the cluster in the payload only, and omits the state of a start."""
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
        (event("sonar", "sample", "", time=5, tags={}), "contains no envelope"),
        (Message("job", {"function": "stop_job"}, "{}", None, "event"), "timestamp is missing"),
    ],
)
def test_unreadable_events_are_rejected(line: Message, reason: str) -> None:
    """With the reason; other events are translated."""
    there = translator()
    lines = [line, load(0)]
    found = there.feed(to_lines(lines))
    assert len(found + there.flush()) == 1
    [bad] = found.rejected
    assert bad.original == original(line)
    assert reason in bad.reason
