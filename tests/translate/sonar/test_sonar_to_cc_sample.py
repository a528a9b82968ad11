"""Samples to metrics: names, units, scaling and counters."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ccpipe.formats import sonar
from ccpipe.formats.lineprotocol import Lines, decode, encode
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.translate.sonar import sonar_to_cc
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc
from tests.translate.sonar.sonar_samples import START, at, job, sample, values


def fed(*envelopes: sonar.SampleEnvelope, **options: bool) -> Lines:
    translator = SonarToCc(envelopes=False, **options)  # type: ignore[arg-type]
    for envelope in envelopes[:-1]:
        translator.feed(Envelopes([envelope]))
    lines = translator.feed(Envelopes([envelopes[-1]]))
    assert not lines.rejected
    return lines


def test_levels_have_names_and_units_of_collectors() -> None:
    """Dashboards work with either."""
    lines = fed(
        sample(
            load1=1.5,
            load5=2.5,
            load15=3.5,
            used_memory=1000,
            runnable_entities=3,
            existing_entities=400,
            boot="2025-02-01T00:00:00+00:00",
        )
    )
    assert values(lines) == {
        "cpu_load": 1.5,
        "load_five": 2.5,
        "load_fifteen": 3.5,
        "mem_used": 1000,
        "proc_run": 3,
        "proc_total": 400,
        "boot_time": 1738368000,
    }
    assert {message.time for message in lines} == {START * 10**9}
    assert all(not message.problems() for message in lines)


def test_cpu_seconds_become_percent_of_hardware_thread() -> None:
    """Of each, and of all together; the first sample has none."""
    first = sample(0, cpus=(100, 5000))
    assert "cpu_used" not in values(fed(first))
    lines = fed(first, sample(60, cpus=(130, 5060)))
    assert values(lines)["cpu_used"] == 150
    assert values(lines, type="hwthread", type_id="0") == {"cpu_used": 50}
    assert values(lines, type="hwthread", type_id="1") == {"cpu_used": 100}


def test_rates_are_omitted_over_reset() -> None:
    """A counter that went down, another number of them, another boot: they start over."""
    boots: tuple[dict[str, Any], ...] = (
        {"boot": "2025-02-01T00:00:00Z"},
        {"boot": "2025-02-20T00:00:00Z"},
    )
    first = sample(0, cpus=(100, 100), **boots[0])
    for second in (
        sample(60, cpus=(130, 90), **boots[0]),
        sample(60, cpus=(130, 130, 1), **boots[0]),
        sample(60, cpus=(130, 130), **boots[1]),
    ):
        assert "cpu_used" not in values(fed(first, second))
    third = sample(120, cpus=(190, 190), **boots[1])
    assert values(fed(first, second, third))["cpu_used"] == 200


def test_boot_time_drift_is_not_reboot() -> None:
    """The kernel works it out from two clocks: it changes by a second now and then."""
    first = sample(0, cpus=(100,), boot="2025-02-01T00:00:00Z")
    second = sample(60, cpus=(130,), boot="2025-02-01T00:00:01Z")
    assert values(fed(first, second))["cpu_used"] == 50


def test_late_sample_has_levels_only() -> None:
    """Later samples are unaffected."""
    first, late, last = sample(60, cpus=(100,)), sample(0, cpus=(90,)), sample(120, cpus=(130,))
    assert "cpu_used" not in values(fed(first, late))
    assert values(fed(first, late))["cpu_load"] == 1.5
    assert values(fed(first, late, last))["cpu_used"] == 50


def test_sample_of_future_has_levels_only(caplog: pytest.LogCaptureFixture) -> None:
    """Later samples grow by the one before it; it is logged."""
    future = sample(10**9, cpus=(900,), jobs=(job(process(1, 900)),))
    samples = (
        sample(60 * n, cpus=(100 + 30 * n,), jobs=(job(process(1, 30 * n)),)) for n in range(3)
    )
    translator = SonarToCc(envelopes=False)
    for number, good in enumerate(samples):
        lines = translator.feed(Envelopes([good]))
        if number:
            assert (values(lines)["cpu_used"], cpu_used(lines)) == (50, 50)
        early = translator.feed(Envelopes([future]))
        assert values(early)["cpu_load"] == 1.5
        assert "cpu_used" not in values(early)
        assert cpu_used(early) is None
    (record, *_) = caplog.records
    assert "fox: c1: a sample is" in record.getMessage()


def test_counters_of_the_future_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    """As after this machine's own clock was wrong: the next sample is the first; it is logged."""
    translator = SonarToCc(envelopes=False)
    translator.clock = lambda: (START + 10**9) * 10**9
    translator.feed(Envelopes([sample(10**9, cpus=(100,))]))
    translator.clock = lambda: (START + 60) * 10**9
    assert "cpu_used" not in values(translator.feed(Envelopes([sample(0, cpus=(100,))])))
    assert values(translator.feed(Envelopes([sample(60, cpus=(130,))])))["cpu_used"] == 50
    assert "begin anew" in caplog.text


def test_counters_are_kept_by_cluster_and_node() -> None:
    """A node of the same name in another cluster is another node."""
    others = [sample(0, cpus=(0,), node="c2"), sample(0, cpus=(50,), cluster="wolf")]
    lines = fed(sample(0, cpus=(100,)), *others, sample(60, cpus=(130,)))
    assert values(lines)["cpu_used"] == 50


def test_disk_metrics_are_growth_since_last_sample() -> None:
    """As the collector ``disk`` does; requests in progress are a level."""
    stats = tuple(range(100, 117))
    later = tuple(2 * x for x in stats)
    first = sample(
        0, disks=(sonar.SampleDisk("sda", 8, 0, stats), sonar.SampleDisk("sdb", 8, 16, stats[:11]))
    )
    second = sample(
        60, disks=(sonar.SampleDisk("sda", 8, 0, later), sonar.SampleDisk("sdb", 8, 16, stats[:11]))
    )
    lines = fed(first, second)
    reported = values(lines, stype="device", stype_id="sda")
    assert (reported["io_reads"], reported["io_ioops"], reported["io_flushes_ms"]) == (
        100,
        216,
        116,
    )
    assert len(reported) == 17
    assert set(values(lines, stype="device", stype_id="sdb")) == set(list(reported)[:11])
    assert not values(fed(second, replace_time(first, 120)), stype="device", stype_id="sda")


def replace_time(envelope: sonar.SampleEnvelope, second: int) -> sonar.SampleEnvelope:
    assert envelope.data is not None
    attributes = replace(envelope.data.attributes, time=at(second))
    return replace(envelope, data=replace(envelope.data, attributes=attributes))


def test_disk_counters_of_32_bits_wrap_around() -> None:
    """The kernel prints milliseconds in 32 bits; of a disk that was reset nothing is known."""
    before = (*range(100, 110), 2**32 - 10)
    after = (*range(101, 111), 5)
    first, second = (
        sample(t, disks=(sonar.SampleDisk("sda", 8, 0, s),)) for t, s in ((0, before), (60, after))
    )
    reported = values(fed(first, second), stype="device", stype_id="sda")
    assert (reported["io_reads"], reported["io_ioops_weighted_ms"]) == (1, 15)


def test_gpus_are_identified_by_uuid() -> None:
    """Memory is in MByte of 2²⁰ bytes, as in the GPU collectors."""
    gpu = sonar.SampleGpu(
        index=1, uuid="GPU-1", memory=3 * 1024, ce_util=80, temperature=-3, power=300,
        performance_state=sonar.ExtendedUint(8),
    )  # fmt: skip
    reported = values(fed(sample(gpus=(gpu,))), type="accelerator", type_id="GPU-1")
    assert reported["acc_mem_used"] == 3.0
    assert (reported["acc_utilization"], reported["acc_temp"], reported["acc_power"]) == (
        80,
        -3,
        300,
    )
    assert reported["acc_perf_state"] == 8
    for state in (sonar.INFINITE, sonar.ExtendedUint.UNSET):
        lines = fed(sample(gpus=(replace(gpu, performance_state=state),)))
        assert "acc_perf_state" not in values(lines, type="accelerator", type_id="GPU-1")


def test_job_metrics_sum_its_processes() -> None:
    """Rolled-up processes count as many as they are; memory is in bytes."""
    alone = sonar.SampleProcess(
        cmd="a", pid=1, resident_memory=10, virtual_memory=20, num_threads=3
    )
    rolled = sonar.SampleProcess(cmd="b", ppid=1, resident_memory=5, rolledup=7)
    reported = values(
        fed(sample(jobs=(job(alone, rolled),))), stype="job", stype_id="7", user="ann"
    )
    assert reported == {
        "job_mem_used": 15 * 1024,
        "job_mem_virtual": 20 * 1024,
        "job_processes": 9,
        "job_threads": 12,
        "job_cpu_used": 0,
    }


def test_cpu_time_of_job_is_counted_by_process() -> None:
    """A new one counts as a whole; where the node's use is unknown, with ``cpu_avg`` at most.

    It may be one that a filter of Sonar's lets through only now.
    """
    first = sample(0, jobs=(job(process(1, 100), process(2, 50)),))
    assert cpu_used(fed(first)) == 20
    assert cpu_used(fed(first, sample(60, jobs=(job(process(1, 130), process(2, 80)),)))) == 100
    assert cpu_used(fed(first, sample(60, jobs=(job(process(1, 130), process(3, 3)),)))) == 55
    assert cpu_used(fed(first, sample(60, jobs=(job(process(1, 130), process(3, 80)),)))) == 60
    assert cpu_used(fed(first, sample(60, jobs=(job(process(1, 130), process(2, 10)),)))) == 60
    assert cpu_used(fed(first, sample(0, jobs=(job(process(1, 130)),)))) is None


def test_job_use_is_limited_to_use_of_node() -> None:
    """Each CPU reports only whole seconds; a reused number may seem to have used more."""
    first = sample(0, cpus=(0, 0), jobs=(job(process(1, 0)),))
    other = replace(process(1, 600), cmd="other")
    assert cpu_used(fed(first, sample(60, cpus=(10, 6), jobs=(job(other),)))) == 30
    assert (
        cpu_used(fed(sample(0, jobs=(job(process(1, 0)),)), sample(60, jobs=(job(other),)))) == 10
    )


def process(pid: int, seconds: int, **more: Any) -> sonar.SampleProcess:
    return sonar.SampleProcess(cmd="x", pid=pid, cpu_time=seconds, cpu_avg=10, **more)


def cpu_used(lines: Lines) -> Any:
    return values(lines, stype="job", stype_id="7").get("job_cpu_used")


def test_job_use_is_limited_to_capacity_of_node() -> None:
    """Children that were waited for add all their time at once."""
    first = sample(0, cpus=(0, 0), jobs=(job(process(1, 0)),))
    second = sample(60, cpus=(60, 60), jobs=(job(process(1, 6000)),))
    assert cpu_used(fed(first, second)) == 200


def test_job_reads_and_writes_bytes_per_second() -> None:
    """Counters are in kilobytes; a process that is new counts as a whole."""
    first = sample(0, jobs=(job(process(1, 0, data_read=100, data_written=7)),))
    second = sample(
        60, jobs=(job(process(1, 0, data_read=160, data_written=7), process(2, 0, data_read=15)),)
    )
    reported = values(fed(first, second), stype="job", stype_id="7")
    assert (reported["job_read_bw"], reported["job_write_bw"]) == (1280, 0)


def test_job_has_each_gpu_once() -> None:
    """Its processes' shares are added up."""
    on = sonar.SampleProcessGpu(uuid="GPU-1", gpu_util=30, gpu_memory=512, gpu_memory_util=5)
    lines = fed(
        sample(
            jobs=(
                job(sonar.SampleProcess(pid=1, gpus=(on,)), sonar.SampleProcess(pid=2, gpus=(on,))),
            )
        )
    )
    reported = values(lines, type="accelerator", type_id="GPU-1", stype="job", stype_id="7")
    assert reported == {"job_acc_utilization": 60, "job_acc_mem_used": 1.0, "job_acc_mem_util": 10}


def test_other_jobs_than_batch_jobs_are_omitted_by_default() -> None:
    """Every process group is one; epochs distinguish two boots."""
    envelope = sample(jobs=(job(sonar.SampleProcess(pid=1), epoch=99),))
    assert not values(fed(envelope), stype="job", stype_id="7.99")
    assert values(fed(envelope, all_jobs=True), stype="job", stype_id="7.99")


def test_unknown_values_are_omitted() -> None:
    """Sonar writes 0, or nothing, for what it could not read."""
    idle = sonar.SampleGpu(uuid="GPU-1")
    failing = sonar.SampleGpu(uuid="GPU-2", failing=1)
    busy = sonar.SampleGpu(uuid="GPU-3", ce_util=40)
    gpus = tuple(sonar.SampleProcessGpu(uuid=gpu.uuid) for gpu in (idle, failing, busy))
    own = job(sonar.SampleProcess(pid=1, gpus=gpus))
    bare: dict[str, Any] = {"load1": 0.0, "gpus": (idle, failing, busy)}
    lines = fed(sample(0, jobs=(own,), **bare), sample(60, jobs=(own,), **bare))
    assert values(lines) == {}
    assert "job_read_bw" not in values(lines, stype="job", stype_id="7")
    of_gpus = [values(lines, type="accelerator", type_id=g.uuid) for g in (idle, failing, busy)]
    assert of_gpus == [
        {"acc_failing": 0, "acc_utilization": 0, "acc_mem_util": 0, "acc_mem_used": 0},
        {"acc_failing": 1},
        {"acc_failing": 0, "acc_utilization": 40, "acc_mem_util": 0, "acc_mem_used": 0},
    ]
    of_job = [
        values(lines, type="accelerator", type_id=gpu.uuid, stype="job", stype_id="7")
        for gpu in (idle, failing, busy)
    ]
    assert of_job == [{"job_acc_utilization": 0}, {}, {}]


def test_zero_load_is_sent_if_processes_exist() -> None:
    """All loads and the number of processes are from one file."""
    reported = values(fed(sample(load1=0.0, existing_entities=90)))
    assert reported == {"cpu_load": 0, "load_five": 0, "load_fifteen": 0, "proc_total": 90}


def test_soft_errors_become_log_lines() -> None:
    """At the sample's time, as warnings."""
    error = sonar.ErrorObject(time=at(-5), detail="nvml: ö", cluster="fox", node="c1")
    (line,) = [m for m in fed(sample(errors=(error,))) if m.field == "log"]
    assert (line.name, line.value, line.tags["loglevel"]) == ("sonar", "nvml: ö", "warn")
    assert not line.problems()


def test_names_invalid_in_tags_are_percent_encoded() -> None:
    """No metric is lost because of a line end in a user's or a device's name."""
    envelope = sample(jobs=(replace(job(sonar.SampleProcess(pid=1)), user="a\nb\\"),))
    lines = decode(encode(fed(envelope)))
    assert lines.rejected == []
    assert values(lines, stype="job", stype_id="7", user="a%0Ab%5C")


def test_value_beyond_63_bits_becomes_float() -> None:
    """Kilobytes times 1024 may be beyond 63 bits; the value stays about right."""
    huge = sonar.SampleProcess(pid=1, resident_memory=2**64 - 1)
    reported = values(fed(sample(jobs=(job(huge, huge),))), stype="job", stype_id="7")
    assert reported["job_mem_used"] == 2.0**75
    assert reported["job_processes"] == 2


@given(st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=4), max_size=5))
def test_rates_are_finite_and_positive_for_any_counters(samples: list[list[int]]) -> None:
    translator = SonarToCc(envelopes=False)
    for second, cpus in enumerate(samples):
        lines = translator.feed(Envelopes([sample(60 * second, cpus=tuple(cpus))]))
        assert decode(encode(lines)).rejected == []
        used = [m.value for m in lines if m.name == "cpu_used"]
        assert all(isinstance(value, float) and value >= 0 for value in used)


def test_sample_with_number_beyond_64_bits_is_rejected() -> None:
    """No decoder returns one; the next sample continues from the one before."""
    translator = SonarToCc(envelopes=False)
    for second, cpus in ((0, 100), (60, 2**64), (120, 160)):
        lines = translator.feed(Envelopes([sample(second, cpus=(cpus,))]))
        assert [bad.reason for bad in lines.rejected] == (
            ["a number of the sample exceeds 64 bits"] if second == 60 else []
        )
    assert values(lines)["cpu_used"] == 50


def test_ended_jobs_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their series are forgotten, counters of the node stay, and no value goes astray."""
    monkeypatch.setattr(sonar_to_cc, "SPARE_SERIES", 20)
    translator = SonarToCc(envelopes=False)
    for minute in range(50):
        only = job(sonar.SampleProcess(pid=1, cpu_time=minute), number=minute + 1)
        lines = decode(
            encode(translator.feed(Envelopes([sample(60 * minute, cpus=(minute,), jobs=(only,))])))
        )
        assert len(translator._table) < 100
        if minute:
            assert values(lines)["cpu_used"] == pytest.approx(100 / 60)
        assert values(lines, stype="job", stype_id=str(minute + 1))


def test_objects_of_one_job_are_added_up() -> None:
    """Sonar writes one object with job 0 for each thread of the kernel."""
    threads = tuple(
        replace(job(sonar.SampleProcess(pid=pid, cpu_avg=1.5), number=0, epoch=9), user="root")
        for pid in (2, 3, 4)
    )
    translator = SonarToCc(envelopes=False, all_jobs=True)
    lines = translator.feed(Envelopes([sample(jobs=threads)]))
    reported = values(lines, stype="job", stype_id="0.9")
    assert (reported["job_processes"], reported["job_cpu_used"]) == (3, 4.5)
    assert [m.name for m in lines].count("job_processes") == 1


def test_silent_nodes_are_forgotten_beyond_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded however many names there are; the longest silent one goes."""
    monkeypatch.setattr(sonar_to_cc, "MAX_NODES", 2)
    translator = SonarToCc(envelopes=False)
    for second, name in enumerate(("c1", "c2", "c1", "c3")):
        translator.feed(Envelopes([sample(second, node=name, cpus=(0,))]))
    assert [name for _, name in translator._nodes] == ["c1", "c3"]
