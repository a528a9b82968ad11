"""ClusterCockpit's messages to envelopes: windows, late data, events, and what survives."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from ccpipe.config import Duration
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.formats.sonar import (
    ClusterAttributes,
    ClusterData,
    ClusterEnvelope,
    ClusterNodes,
    Envelope,
    ErrorObject,
    ExtendedUint,
    JobsData,
    SacctData,
    SampleAttributes,
    SampleData,
    SampleGpu,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
    SampleSystem,
    SlurmJob,
    SysinfoAttributes,
    SysinfoData,
    SysinfoEnvelope,
    SysinfoGpuCard,
    problems,
)
from ccpipe.formats.sonar import encode as encode_sonar
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.formats.sonar.rollup import synthetic_pid
from ccpipe.message import Message, event, log, metric
from ccpipe.pipeline import Limits, Sink, run
from ccpipe.translate.sonar.cc_to_sonar import META, CcToSonar
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc
from tests.pipeline.parts import ListSource, play
from tests.translate.sonar.sonar_samples import START, at, sample
from tests.translate.sonar.test_sonar_to_cc_jobs import COMPLETED, PENDING, RUNNING, envelope


def load(second: int, value: float = 1.0, node: str = "c1", name: str = "cpu_load") -> Message:
    """Make a metric of a node."""
    tags = {"cluster": "fox", "hostname": node, "type": "node"}
    return metric(name, value, time=(START + second) * 10**9, tags=tags)


def translator(hold: float = 5) -> CcToSonar:
    """Make a translator whose clock stands still."""
    made = CcToSonar(hold=Duration(hold))
    made.clock = lambda: 0.0
    return made


def samples(envelopes: list[Envelope]) -> list[SampleAttributes]:
    """Return what samples say."""
    return [e.data.attributes for e in envelopes if isinstance(e.data, SampleData)]


def test_metrics_of_one_moment_become_one_sample() -> None:
    """However many payloads they come in, until the node has sent something so much newer."""
    there = translator()
    assert there.feed([load(0, 1.5)]) == []
    assert there.feed([load(0, 1000, name="mem_used"), load(5, 9)]) == []
    (first,) = samples(there.feed([load(10, 2.5)]))
    system = SampleSystem(load1=1.5, used_memory=1000)
    assert first == SampleAttributes(time=at(0), cluster="fox", node="c1", system=system)
    assert [s.time for s in samples(there.flush())] == [at(5), at(10)]
    assert there.oldest_held is None


def test_a_silent_node_is_not_waited_for_for_ever() -> None:
    """By the clock the moment is held no longer than asked for."""
    there = translator(hold=5)
    there.feed([load(0)])
    there.clock = lambda: 4.9
    assert there.feed([]) == []
    assert there.oldest_held == 1
    there.clock = lambda: 5.0
    assert len(there.feed([])) == 1
    assert there.oldest_held is None


def test_late_metrics_are_not_lost() -> None:
    """They make another envelope of the same moment."""
    there = translator()
    there.feed([load(0, 1.5)])
    assert len(there.feed([load(60)])) == 1
    (late,) = samples(there.feed([load(0, 7, name="mem_used")]))
    assert (late.time, late.system) == (at(0), SampleSystem(used_memory=7))


def test_nodes_do_not_push_each_other() -> None:
    """A node whose clock is ahead closes nobody else's moments."""
    there = translator()
    assert there.feed([load(0, node="c1"), load(1000, node="c2")]) == []
    assert [s.node for s in samples(there.flush())] == ["c1", "c2"]


def test_the_oldest_moments_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded however many nodes there are."""
    monkeypatch.setattr("ccpipe.translate.sonar.cc_to_sonar.MAX_WINDOWS", 3)
    there = translator()
    ready = there.feed([load(0, node=f"c{i}") for i in range(10)])
    assert [s.node for s in samples(ready)] == [f"c{i}" for i in range(7)]


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from("abc")), max_size=30))
def test_holds_says_what_is_held(rows: list[tuple[int, str]]) -> None:
    """No window is open that was opened before the feeds that it names."""
    there = translator()
    for second, node in rows:
        there.feed([load(second, node=node)])
        opened = [window.feed for window in there._windows.values()]
        assert there.oldest_held == (min(opened) if opened else None)


def test_nothing_is_acknowledged_that_is_still_held() -> None:
    """In a pipe: the batch waits for the sample that its metrics are in."""
    diary: list[Any] = []

    class Kept(Sink):
        takes = Envelopes

        async def write(self, records: list[Envelope]) -> None:
            """See ``Sink.write``."""
            diary.extend(("written", s.time) for s in samples(records))

    there = translator(hold=1e9)
    source = ListSource([[load(0)], [load(60)]], diary=diary, stay=True)

    async def main() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(3, stop.set)
        await run(source, Kept(), translators=[there], limits=Limits(age=0), stop=stop)

    play(main())
    acted = [entry for entry in diary if entry[0] in ("written", "ack", "stop")]
    assert acted == [
        ("stop", 3.0),
        ("written", at(0)),
        ("written", at(60)),
        ("ack", 0),
        ("ack", 1),
    ]


def test_metrics_that_sonar_has_no_place_for_are_left_out() -> None:
    """Unknown ones, texts, those of sockets and devices, and those without a node."""
    node = {"cluster": "fox", "hostname": "c1", "type": "node"}
    others = [
        load(0, name="no_such_metric"),
        metric("cpu_load", 1, time=START * 10**9, tags={**node, "type": "socket", "type-id": "0"}),
        metric("mem_used", 1, time=START * 10**9, tags={**node, "stype": "x", "stype-id": "y"}),
        metric("job_mem_used", 1, time=START * 10**9, tags=node),
        metric("cpu_load", 1, time=START * 10**9, tags={"type": "node"}),
        metric("job_mem_used", 1, time=5, tags={**node, "stype": "job", "stype-id": "x"}),
    ]  # fmt: skip
    there = translator()
    assert there.feed(others) + there.flush() == []
    assert not there.take_rejected()


def test_values_that_a_field_cannot_hold_are_left_out() -> None:
    """Negative memory, a text for a load: the rest of the sample stands."""
    rows = [load(0, -5, name="mem_used"), load(0, 2.0), load(0, 2.6, name="proc_run")]
    text = replace(load(0, name="load_five"), value="high")
    there = translator()
    there.feed([*rows, text])
    (only,) = samples(there.flush())
    assert only.system == SampleSystem(load1=2.0, runnable_entities=3)


def test_a_collectors_names_are_known() -> None:
    """cc-metric-collector and the collector of NVIDIA's cards say the same in other words."""
    tags = {"cluster": "fox", "hostname": "c1", "type": "accelerator", "type-id": "0000:C1:00.0"}
    there = translator()
    there.feed(
        [
            load(0, 3.0, name="load_one"),
            metric("nv_fb_mem_used", 2.5, time=START * 10**9, tags=tags),
            metric("nv_util", 80.4, time=START * 10**9, tags=tags),
        ]
    )
    (only,) = samples(there.flush())
    card = SampleGpu(uuid="0000:C1:00.0", memory=2560, ce_util=80)
    assert only.system == SampleSystem(load1=3.0, gpus=(card,))


def test_a_metric_without_time_is_refused() -> None:
    """Nobody knows of which moment it is."""
    there = translator()
    there.feed(decode(b"cpu_load,hostname=c1,type=node value=1\n"))
    assert [reason for _, reason in there.take_rejected()] == ["the timestamp is missing"]


def plain(*envelopes: Envelope) -> list[Envelope]:
    """Translate there and back without the events that hold envelopes whole."""
    there = SonarToCc(envelopes=False, all_jobs=True)
    back = translator()
    lines = decode(encode(there.feed(list(envelopes)), precision="auto"))
    returned = back.feed(lines) + back.flush()
    assert not there.take_rejected()
    assert not back.take_rejected()
    assert not [problem for e in returned for problem in problems(e, strict=True)]
    return returned


def test_what_survives_in_metrics_alone() -> None:
    """Exactly the fields that docs/sonar-metrics.md lists; each has another value here."""
    gpu = SampleGpu(0, "GPU-1", 1, 2, "", ExtendedUint(3), 4, 5, 6, -7, 8, 9, 10, 11)
    on = SampleProcessGpu(0, "GPU-1", 30.5, 512, 5.25)
    process = SampleProcess(
        resident_memory=10, virtual_memory=20, num_threads=3, rolledup=4, cpu_util=12.5, gpus=(on,)
    )
    error = ErrorObject(at(0), "nvml", "fox", "c1")
    kept = sample(
        jobs=(
            SampleJob(job=7, user="ann", processes=(process,)),
            SampleJob(job=8, user="bob", epoch=9, processes=(process,)),
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
    sent = replace(kept, data=SampleData(_with_average(kept.data.attributes)))
    (returned,) = plain(sent)
    assert returned == replace(kept, meta=META, data=SampleData(_as_stand_ins(kept)))


def _as_stand_ins(envelope: Envelope) -> SampleAttributes:
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


def _with_average(attributes: SampleAttributes) -> SampleAttributes:
    """Turn ``cpu_util``, which comes back, into ``cpu_avg``, of which it is made at first."""
    jobs = tuple(
        replace(
            one, processes=tuple(replace(p, cpu_avg=p.cpu_util, cpu_util=0) for p in one.processes)
        )
        for one in attributes.jobs
    )
    return replace(attributes, jobs=jobs)


def test_what_survives_of_jobs() -> None:
    """What cc-backend knows of one, and what its metadata holds."""
    started, stopped = plain(
        envelope(-40, PENDING), envelope(10, RUNNING), envelope(600, COMPLETED)
    )
    assert isinstance(started.data, JobsData)
    (record,) = started.data.attributes.slurm_jobs
    lost = {"priority": record.priority, "gres_detail": ()}
    whole = asdict(PENDING) | {k: v for k, v in asdict(RUNNING).items() if v} | lost
    assert asdict(record) == whole
    assert isinstance(stopped.data, JobsData)
    (end,) = stopped.data.attributes.slurm_jobs
    ended = {"job_state": "COMPLETED", "end_time": at(500), "sacct": SacctData(ElapsedRaw=500)}
    assert asdict(end) == whole | ended
    assert stopped.data.attributes.time == at(600)


def job_event(function: str, at_second: int = 0, **payload: object) -> Message:
    """Make an event of a job on cluster fox."""
    text = json.dumps({"jobId": 7, "cluster": "fox"} | payload)
    tags = {"cluster": "fox", "hostname": "c1"}
    return event("job", function, text, time=(START + at_second) * 10**9, tags=tags)


START_7 = job_event(
    "start_job", user="ann", startTime=START, submitTime=START - 60, numNodes=1,
    resources=[{"hostname": "c1"}],
)  # fmt: skip


def record(there: CcToSonar, message: Message) -> SlurmJob:
    """Return the record that an event becomes."""
    (only,) = there.feed([message])
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


def cpu_used(second: int, percent: float, node: str = "c1", stype_id: str = "7") -> Message:
    """Make a metric of job 7."""
    tags = {"cluster": "fox", "hostname": node, "type": "node", "stype": "job",
            "stype-id": stype_id, "user": "ann"}  # fmt: skip
    return metric("job_cpu_used", percent, time=(START + second) * 10**9, tags=tags)


def processes_of(envelopes: list[Envelope]) -> list[SampleProcess]:
    """Return the processes that stand for jobs, in order."""
    return [p for s in samples(envelopes) for one in s.jobs for p in one.processes]


def test_processor_time_of_a_job_is_integrated() -> None:
    """400 percent for a minute are 240 s: Jobanalyzer computes the 400 percent of them again."""
    there = translator()
    rows = [cpu_used(0, 400.0), cpu_used(60, 400.0), cpu_used(120, 100.0), cpu_used(120, 7.0, "c2")]
    made = processes_of(there.feed(rows) + there.flush())
    assert [(p.cpu_time, p.cpu_avg) for p in made if p.cpu_util != 7] == [
        (0, 400), (240, 400), (300, 250),
    ]  # fmt: skip
    assert [p.cpu_time for p in made if p.cpu_util == 7] == [0]
    assert len({p.pid for p in made}) == 1


def test_stand_ins_of_a_node_have_distinct_pids() -> None:
    """One for each job, epoch and user, the same in every sample."""
    there = translator()
    rows = [cpu_used(s, 1.0, stype_id=job) for s in (0, 60) for job in ("7", "8", "7.9")]
    pids = [p.pid for p in processes_of(there.feed(rows) + there.flush())]
    assert pids[:3] == pids[3:]
    assert len(set(pids)) == 3
    assert min(pids) > 2**22


def test_with_state_starts_and_processor_time_outlive_the_process(tmp_path: Path) -> None:
    """Another process goes on where the first ended."""
    path = str(tmp_path / "state")

    def run_one(*rows: Message) -> list[Envelope]:
        there = CcToSonar(state=path)
        there.clock = lambda: 0.0
        made = there.feed(list(rows)) + there.flush()
        there._state._file.close()  # type: ignore[union-attr]
        return made

    run_one(START_7, cpu_used(0, 50.0), cpu_used(60, 50.0))
    stop = job_event("stop_job", 90, startTime=START, stopTime=START + 90)
    made = run_one(cpu_used(120, 50.0), stop)
    assert [p.cpu_time for p in processes_of(made)] == [60]
    (ended,) = [e.data.attributes.slurm_jobs[0] for e in made if isinstance(e.data, JobsData)]
    assert ended.submit_time == at(-60)


def test_what_survives_of_clusters_and_nodes() -> None:
    """States of nodes; of a node all but pictures and distances."""
    nodes = (ClusterNodes(("c[1-3]",), ("IDLE",)), ClusterNodes(("c4",), ("DOWN", "DRAIN")))
    cluster = ClusterEnvelope(
        META, ClusterData(ClusterAttributes(at(0), "fox", slurm=True, nodes=nodes))
    )
    card = SysinfoGpuCard(1, "u", "a", "NVIDIA", "m", "Volta", "d", "f", 1, 2, 3, 4, 5, 6)
    node = SysinfoAttributes(
        at(0), "fox", "c1", "Linux", "6.1", "x86_64", 2, 64, 2, "EPYC", 1000, "", "", (card,), (), 8
    )
    sysinfo = SysinfoEnvelope(META, SysinfoData(node))
    assert plain(cluster, sysinfo) == [cluster, sysinfo]
    error = Envelope(META, errors=(ErrorObject(at(0), "no sacct", "fox", "c1"),))
    assert plain(error) == [error]


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
    (only,) = translator().feed([line])
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
    assert len(there.feed(lines) + there.flush()) == 1
    assert [message.name for message, _ in there.take_rejected()] == [line.name]
    assert reason in there.take_rejected()[0][1]


def test_what_line_protocol_cannot_hold_is_refused_alone() -> None:
    """NaN in one metric costs that metric."""
    there = translator()
    there.feed([load(0, float("nan"), name="mem_used"), load(0, 2.0)])
    (only,) = samples(there.flush())
    assert only.system == SampleSystem(load1=2.0)
    assert len(there.take_rejected()) == 1


def test_log_lines_of_others_are_no_errors_of_sonar() -> None:
    """Only the component ``sonar`` speaks for it."""
    tags = {"cluster": "fox", "hostname": "c1", "type": "node"}
    line = log("slurmd", "error", "no", time=START * 10**9, tags=tags)
    there = translator()
    assert there.feed([line]) + there.flush() == []


def test_envelopes_made_of_metrics_can_be_encoded() -> None:
    """By every profile, as long as it can write such an envelope at all."""
    there = translator()
    there.feed([load(0)])
    (only,) = there.flush()
    for profile in ("spec", "sonar", "jobanalyzer", "slurm-monitor"):
        assert encode_sonar(only, profile=profile)
