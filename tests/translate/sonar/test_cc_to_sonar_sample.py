"""Metrics of one node and time to a sample."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.sonar import Envelope, SampleGpu, SampleProcess, SampleSystem, encode
from ccpipe.message import Message, metric
from ccpipe.pipeline.state import StateStore
from ccpipe.translate.sonar import cc_to_sonar_sample
from ccpipe.translate.sonar import sonar_metrics as metrics
from ccpipe.translate.sonar.cc_to_sonar_sample import CpuTime, CpuTimes, NodeJob
from tests.translate.sonar.sonar_samples import START
from tests.translate.sonar.test_cc_to_sonar import load, samples, translator


def test_sample_omits_metrics_without_sonar_field() -> None:
    """Unknown ones, and metrics of sockets and devices."""
    node = {"cluster": "fox", "hostname": "c1", "type": "node"}
    others = [
        load(0, name="no_such_metric"),
        metric("cpu_load", 1, time=START * 10**9, tags={**node, "type": "socket", "type-id": "0"}),
        metric("mem_used", 1, time=START * 10**9, tags={**node, "stype": "x", "stype-id": "y"}),
        metric("job_mem_used", 1, time=START * 10**9, tags=node),
    ]  # fmt: skip
    there = translator()
    found = there.feed(to_lines(others))
    assert found + there.flush() == []
    assert not found.rejected


def test_metric_without_node_or_job_is_rejected() -> None:
    """Sonar has a field for them, so the reason is reported."""
    node = {"cluster": "fox", "hostname": "c1", "type": "node"}
    there = translator()
    found = there.feed(
        to_lines(
            [
                metric("cpu_load", 1, time=START * 10**9, tags={"type": "node"}),
                metric("job_mem_used", 1, time=5, tags={**node, "stype": "job", "stype-id": "x"}),
            ]
        )
    )
    assert [bad.reason for bad in found.rejected] == [
        "the tag hostname is missing",
        "stype-id 'x' is not the number of a job",
    ]


def test_value_invalid_for_field_is_rejected() -> None:
    """Negative memory, a text for a load: the rest of the sample is kept."""
    rows = [load(0, -5, name="mem_used"), load(0, 2.0), load(0, 2.6, name="proc_run")]
    text = replace(load(0, name="load_five"), value="high")
    there = translator()
    found = there.feed(to_lines([*rows, text]))
    (only,) = samples(there.flush())
    assert only.system == SampleSystem(load1=2.0, runnable_entities=3)
    assert [bad.reason for bad in found.rejected] == [
        "-5 is not a value for Sonar's used_memory",
        "'high' is not a value for Sonar's load5",
    ]


def test_sample_accepts_names_of_other_collectors() -> None:
    """cc-metric-collector and ccpipe's NVIDIA collector name the same metrics differently."""
    tags = {"cluster": "fox", "hostname": "c1", "type": "accelerator", "type-id": "0000:C1:00.0"}
    there = translator()
    there.feed(
        to_lines(
            [
                load(0, 3.0, name="load_one"),
                metric("nv_fb_mem_used", 2.5, time=START * 10**9, tags=tags),
                metric("nv_util", 80.4, time=START * 10**9, tags=tags),
            ]
        )
    )
    (only,) = samples(there.flush())
    gpu = SampleGpu(uuid="0000:C1:00.0", memory=2560, ce_util=80)
    assert only.system == SampleSystem(load1=3.0, gpus=(gpu,))


VALUES = st.one_of(st.integers(-(2**63), 2**64), st.floats(), st.text(max_size=3), st.booleans())
WHERE: dict[str, dict[str, str]] = {
    **{row.name: {"type": "node"} for row in (*metrics.SYSTEM, metrics.BOOT)},
    **{
        row.name: {"type": "accelerator", "type-id": "G"}
        for row in (*metrics.GPU, metrics.PERFORMANCE_STATE)
    },
    **{
        row.name: {"type": "node", "stype": "job"}
        for row in (*metrics.JOB_INTS, metrics.JOB_FLOATS[0])
    },
    **{
        row.name: {"type": "accelerator", "type-id": "G", "stype": "job"} for row in metrics.JOB_GPU
    },
}
"""Metrics that Sonar has fields for, with the tags that they have."""
ROWS = st.tuples(
    st.sampled_from(sorted(WHERE)),
    VALUES,
    st.sampled_from((None, 0, START * 10**9)),
    st.sampled_from(("", "7", "7.9", "x", "7.", "7_1", "9" * 30)),
    st.booleans(),
)


@given(st.lists(ROWS, max_size=20))
def test_each_metric_is_in_sample_or_rejected(rows: list[tuple[Any, ...]]) -> None:
    """None is dropped without a reason; here each is of a node of its own."""
    there = translator()
    messages = []
    for number, (name, value, time, job, is_named) in enumerate(rows):
        tags = {"cluster": "fox", "hostname": f"c{number}" if is_named else "", **WHERE[name]}
        if "stype" in tags:
            tags["stype-id"] = job
        messages.append(Message(name, {k: v for k, v in tags.items() if v}, value, time))
    lines = to_lines(messages)
    found = there.feed(lines)
    envelopes = found + there.flush()
    assert len(envelopes) + len(found.rejected) + len(lines.rejected) == len(rows)
    assert all(encode(envelope) for envelope in envelopes)


def cpu_used(second: int, percent: float, node: str = "c1", stype_id: str = "7") -> Message:
    tags = {"cluster": "fox", "hostname": node, "type": "node", "stype": "job",
            "stype-id": stype_id, "user": "ann"}  # fmt: skip
    return metric("job_cpu_used", percent, time=(START + second) * 10**9, tags=tags)


def processes_of(envelopes: list[Envelope]) -> list[SampleProcess]:
    return [p for s in samples(envelopes) for one in s.jobs for p in one.processes]


def processes_made(*messages: Message) -> list[SampleProcess]:
    there = translator()
    return processes_of(there.feed(to_lines(messages)) + there.flush())


def test_cpu_time_of_job_is_integrated() -> None:
    """400 percent for a minute are 240 s: Jobanalyzer computes the 400 percent of them again."""
    rows = [cpu_used(0, 400.0), cpu_used(60, 400.0), cpu_used(120, 100.0), cpu_used(120, 7.0, "c2")]
    made = processes_made(*rows)
    assert [(p.cpu_time, p.cpu_avg) for p in made if p.cpu_util != 7] == [
        (0, 400), (240, 400), (300, 250),
    ]  # fmt: skip
    assert [p.cpu_time for p in made if p.cpu_util == 7] == [0]
    assert len({p.pid for p in made}) == 1


def test_cpu_time_adds_user_and_system_time() -> None:
    """As slurm_cgroup reports them, here and in cc-metric-collector; the sum as such wins."""
    rows = [
        replace(cpu_used(second, percent), name=name)
        for second in (0, 60)
        for name, percent in (("job_user_cpu", 390.0), ("job_sys_cpu", 10.0))
    ]
    made = processes_made(*rows, cpu_used(60, 50.0, "c2"))
    assert [(p.cpu_util, p.cpu_time) for p in made] == [(400, 0), (400, 240), (50, 0)]
    parts = (("job_user_cpu", 2.3), ("job_sys_cpu", 4.6))
    rows_of_parts = [replace(cpu_used(0, percent), name=name) for name, percent in parts]
    assert [p.cpu_util for p in processes_made(*rows_of_parts)] == [6.9]
    assert [p.cpu_util for p in processes_made(*rows[:2], cpu_used(0, 70.0))] == [70]


def test_placeholder_processes_of_node_have_distinct_pids() -> None:
    """One for each job, epoch and user, the same in every sample."""
    rows = [cpu_used(s, 1.0, stype_id=job) for s in (0, 60) for job in ("7", "8", "7.9")]
    pids = [p.pid for p in processes_made(*rows)]
    assert pids[:3] == pids[3:]
    assert len(set(pids)) == 3
    assert min(pids) > 2**22


BATCH = NodeJob("fox", "c1", 7, 0, "ann")
GROUP = NodeJob("fox", "c1", 7, 9, "ann")
SECOND = 10**9


def test_cpu_time_begins_with_second_sample() -> None:
    """The interval before the first sample is unknown."""
    times = CpuTimes(StateStore())
    assert times.add(BATCH, 100 * SECOND, 80.0) == CpuTime(0.0, 80.0)
    assert times.add(BATCH, 110 * SECOND, 80.0) == CpuTime(8.0, 80.0)
    assert times.add(BATCH, 120 * SECOND, 20.0) == CpuTime(10.0, 50.0)


def test_cpu_time_ignores_late_and_repeated_samples() -> None:
    """As after a restart of the source."""
    times = CpuTimes(StateStore())
    for second in (0, 10, 20, 10, 20):
        used = times.add(BATCH, second * SECOND, 100.0)
    assert used == CpuTime(20.0, 100.0)


def test_cpu_time_ignores_sample_of_future(caplog: pytest.LogCaptureFixture) -> None:
    """One wrong clock would make all later samples late; it is logged once."""
    times = CpuTimes(StateStore(), clock=lambda: 100 * SECOND)
    times.add(BATCH, 80 * SECOND, 100.0)
    for _ in range(2):
        assert times.add(BATCH, 10**9 * SECOND, 100.0) == CpuTime(0.0, 100.0)
    assert times.add(BATCH, 90 * SECOND, 100.0) == CpuTime(10.0, 100.0)
    assert [r.getMessage() for r in caplog.records] == [
        "fox: c1: a sample is beyond max_future: it is not counted"
    ]


def test_cpu_time_replaces_future_time_in_state() -> None:
    """As after this machine's own clock was wrong."""
    now = [10**9 * SECOND]
    times = CpuTimes(StateStore(), clock=lambda: now[0])
    times.add(BATCH, 0, 100.0)
    times.add(BATCH, now[0], 0.0)
    now[0] = 100 * SECOND
    assert times.add(BATCH, 90 * SECOND, 100.0).seconds == 0
    assert times.add(BATCH, 100 * SECOND, 100.0).seconds == 10


def test_cpu_time_restarts_for_reused_process_group() -> None:
    """Numbers of process groups are reused; numbers of batch jobs are not."""
    times = CpuTimes(StateStore())
    for job, expected in ((GROUP, 0.0), (BATCH, 4 * 3600.0)):
        times.add(job, 0, 100.0)
        assert times.add(job, 4 * 3600 * SECOND, 100.0).seconds == expected


def test_oldest_jobs_are_forgotten_beyond_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded."""
    monkeypatch.setattr(cc_to_sonar_sample, "MAX_JOBS", 2)
    times = CpuTimes(StateStore())
    for number in (1, 2, 3):
        times.add(BATCH._replace(job=number), 0, 1.0)
    assert times.add(BATCH._replace(job=1), 10 * SECOND, 100.0).seconds == 0
    assert times.add(BATCH._replace(job=3), 10 * SECOND, 100.0).seconds == 10
