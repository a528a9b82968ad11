"""NVIDIA GPUs: the real ``pynvml`` on a library made of Python."""

import logging
from pathlib import Path
from typing import Any

import pynvml
import pytest

from ccpipe.message import Uint
from ccpipe.node.collectors.gpu.nvidia import METRICS, Nvidia
from ccpipe.node.sampling.sampler import Sampler, SamplerSettings
from tests.node.collectors.gpu.conftest import Load, of
from tests.node.conftest import checked, reported
from tests.node.fake_nvml import (
    FIRST,
    FULL,
    GIBIBYTE,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    SECOND,
    TIMEOUT,
    UNINITIALIZED,
    UNKNOWN,
    Fails,
    FakeGpu,
    full_gpu,
)


def test_nvidia_reports_all_metrics_in_declared_units(
    load: Load, tmp_path: Path, seconds: Any
) -> None:
    """Watts, joules, MHz, MByte of 2^20 bytes; text values are reported as numbers."""
    card = full_gpu()
    load(card)
    seconds(10)
    collector = Nvidia(root=str(tmp_path))
    first = of(reported(collector.collect(0)), FIRST)
    assert ("nv_energy" in first, first["nv_energy_abs"]) == (False, 1000)
    card.answers["GetTotalEnergyConsumption"] = 4_000_000
    values = of(reported(collector.collect(0)), FIRST)
    assert (values["nv_util"], values["nv_mem_util"]) == (97, 40)
    assert (values["nv_encoder_util"], values["nv_decoder_util"]) == (5, 6)
    assert (values["nv_fb_mem_total"], values["nv_fb_mem_used"]) == (81920, 20480)
    assert (values["nv_bar1_mem_total"], values["nv_bar1_mem_used"]) == (131072, 1)
    assert (values["nv_temp"], values["nv_fan"]) == (45, 30)
    assert (values["nv_power_usage"], values["nv_power_max_limit"]) == (300.6, 700)
    assert (values["nv_energy"], values["nv_average_power"]) == (3000, 300)
    assert (values["nv_graphics_clock"], values["nv_max_sm_clock"]) == (1980, 2981)
    assert (values["nv_perf_state"], values["nv_ecc_mode"]) == (0, 1)
    assert values["nv_ecc_corrected_error"] == 2**63 + 5
    assert isinstance(values["nv_ecc_corrected_error"], Uint)
    assert values["nv_ecc_uncorrected_error"] == 3
    assert values["nv_ecc_volatile_corrected_error"] == 1
    assert values["nv_ecc_volatile_uncorrected_error"] == 0
    assert values["nv_throttle_reasons"] == 4
    assert values["nv_remapped_rows_uncorrected"] == 2
    assert values["nv_remapped_rows_failure"] == 1
    assert (values["nv_compute_processes"], values["nv_graphics_processes"]) == (2, 0)
    assert values["nv_mps_compute_processes"] == 1
    assert values["nv_fb_mem_reserved"] == 512
    crc, replay = pynvml.NVML_NVLINK_ERROR_DL_CRC_DATA, pynvml.NVML_NVLINK_ERROR_DL_REPLAY
    assert values["nv_nvlink_crc_errors_sum"] == crc + 10  # of both links that are active
    assert values["nv_nvlink_replay_errors_sum"] == replay + 10
    assert values["nv_violation_thermal"] == 2.5


def test_nvidia_sends_exactly_declared_metrics(load: Load, tmp_path: Path, seconds: Any) -> None:
    """Names, types of values and stype; a fully supported GPU sends all of them."""
    card = full_gpu(GetMigMode=(1, 1))
    card.answers["GetTotalEccErrors", 0, 1] = 5
    card.answers["Gpm"] = 1
    card.answers["Xid"] = [48]
    card.answers.update({("Gpm", metric): 50.0 for metric in range(20)})
    card.answers.update({("Gpm", 3, metric): 25.0 for metric in range(20)})
    card.parts = [FakeGpu("", "MIG-a", {**FULL, "GetGpuInstanceId": 3})]
    load(card)
    seconds(10)
    collector = Nvidia(root=str(tmp_path))
    list(collector.collect(0))
    card.answers["GetTotalEnergyConsumption"] = 4_000_000
    sent = {
        (m.name, type(m.value), m.tags.get("stype", "")) for m in map(checked, collector.collect(0))
    }
    assert sent == {
        (row.name, row.kind, stype)
        for row in METRICS
        for stype in {row.stype, row.part or row.stype}
    }


def test_nvidia_reports_each_active_link(load: Load, tmp_path: Path) -> None:
    """Their errors have stype=nvlink and the link's number; inactive or absent links have none."""
    load(full_gpu())
    values = reported(Nvidia(root=str(tmp_path)).collect(0))
    links = {
        place for name, place in values
        if name.startswith("nv_nvlink_") and not name.endswith("_sum")
    }  # fmt: skip
    assert links == {f"{FIRST}/0", f"{FIRST}/2"}
    assert values["nv_nvlink_crc_errors", f"{FIRST}/0"] == pynvml.NVML_NVLINK_ERROR_DL_CRC_DATA
    assert values["nv_nvlink_crc_errors", f"{FIRST}/2"] == 10
    assert values["nv_nvlink_recv", f"{FIRST}/0"] == 7 * 1024
    assert values["nv_nvlink_xmit", f"{FIRST}/0"] == 2**50
    assert ("nv_nvlink_recv", f"{FIRST}/2") not in values


def test_nvidia_omits_unsupported_values(load: Load, tmp_path: Path) -> None:
    """Other values are unaffected, and nothing is logged."""
    broken: dict[str, Any] = {
        key: Fails(NOT_SUPPORTED) for key in ("GetFanSpeed", "GetEccMode", "GetMigMode")
    }
    load(
        full_gpu(**broken, GetPerformanceState=32), FakeGpu(SECOND, "GPU-2", {"GetTemperature": 50})
    )
    values = reported(Nvidia(root=str(tmp_path)).collect(0))
    assert {"nv_fan", "nv_ecc_mode", "nv_perf_state"}.isdisjoint(of(values, FIRST))
    assert {"nv_temp", "nv_util"} <= set(of(values, FIRST))
    assert of(values, SECOND) == {"nv_temp": 50}


@pytest.mark.parametrize("code", [UNKNOWN, TIMEOUT, NO_PERMISSION])
def test_nvidia_logs_failed_reading_once(
    load: Load, tmp_path: Path, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted each time; the other readings are sent, also with version 1 of the memory."""
    asked = [key for key in FULL if "Field" not in key and key != "GetMigMode"]
    load(full_gpu())
    whole = of(reported(Nvidia(root=str(tmp_path)).collect(0)), FIRST)
    for key in asked:
        caplog.clear()
        card = full_gpu()
        card.answers[key] = Fails(code)
        card.answers["GetMemoryInfo"] = {"total": GIBIBYTE, "used": 2**20, "free": 1}
        load(card, full_gpu(SECOND))
        collector = Nvidia(root=str(tmp_path))
        values = reported(collector.collect(0))
        kept = of(values, FIRST)
        assert len(kept) > len(whole) - 9, key
        assert of(values, SECOND).keys() == whole.keys()
        if key == "GetMemoryInfo_v2":
            assert kept["nv_fb_mem_used"] == 1
            continue
        assert collector.soft.count > 0, key
        lines, count = len(caplog.records), collector.soft.count
        assert lines > 0, key
        list(collector.collect(61 * 10**9))
        assert collector.soft.count == 2 * count
        assert len(caplog.records) == lines


@pytest.mark.parametrize("code", [RESET_REQUIRED, GPU_IS_LOST, UNINITIALIZED])
def test_nvidia_reinitialises_driver_for_lost_gpu(
    load: Load, tmp_path: Path, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The other GPU answers; the driver is released, and initialised with the next sample."""
    library = load(full_gpu(GetUtilizationRates=Fails(code)), full_gpu(SECOND))
    collector = Nvidia(root=str(tmp_path))
    assert of(reported(collector.collect(0)), SECOND)["nv_util"] == 97
    assert (library.begun, library.ended) == (1, 1)
    library.gpus[0].answers["GetUtilizationRates"] = {"gpu": 5, "memory": 6}
    assert of(reported(collector.collect(1)), FIRST)["nv_util"] == 5
    assert (library.begun, library.ended) == (2, 1)
    assert len(caplog.records) == collector.soft.count == 1


FIELDS: dict[Any, Any] = {
    ("Field", getattr(pynvml, f"NVML_FI_DEV_PERF_POLICY_{policy}"), 0): 2_500_000_000
    for policy in ("POWER", "THERMAL", "SYNC_BOOST", "BOARD_LIMIT", "LOW_UTILIZATION",
                   "RELIABILITY", "TOTAL_APP_CLOCKS", "TOTAL_BASE_CLOCKS")
} | {
    ("Field", pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 0): 1_000_000,
    ("Field", pynvml.NVML_FI_DEV_POWER_AVERAGE, 0): 300_600,
}  # fmt: skip


@pytest.mark.parametrize(("gpm", "limit"), [(0, 60), (1, 76)])
def test_nvidia_reads_eight_gpus_with_few_calls(
    load: Load, tmp_path: Path, gpm: int, limit: int
) -> None:
    """One for all counters that are fields; values that change rarely are read once a minute.

    From Hopper on, two more for each GPU return the means of the driver's counters.
    """
    cards = [full_gpu(f"00000000:0{number}:00.0", Xid=[], Gpm=gpm) for number in range(8)]
    for card in cards:
        card.answers.update(FIELDS)
        card.answers.update({("GetNvLinkState", link): 1 for link in range(18)})
        card.answers.update({("Gpm", metric): 50.0 for metric in range(20)})
        card.answers["GetNvLinkErrorCounter"] = 0
        card.answers["GetEncoderUtilization"] = card.answers["GetDecoderUtilization"] = (0, 1000)
    library = load(*cards)
    collector = Nvidia(root=str(tmp_path))
    for slot in range(2):
        first = reported(collector.collect(slot))
    library.calls = 0
    second = reported(collector.collect(10 * 10**9))
    assert library.calls <= limit
    assert first.keys() == second.keys()
    changed = {name for (name, place), value in second.items() if first[name, place] != value}
    assert changed <= {"nv_energy", "nv_average_power"}
    assert second["nv_violation_power", cards[7].address] == 2.5
    library.calls = 0
    list(collector.collect(61 * 10**9))
    assert library.calls > 8 * 100


def test_nvidia_reads_what_varies_at_each_sample(load: Load, tmp_path: Path) -> None:
    """All else once a minute, but for video encoders and decoders that were in use."""
    card = full_gpu(GetDecoderUtilization=(0, 1000))
    load(card)
    collector = Nvidia(root=str(tmp_path))
    list(collector.collect(0))
    before = of(reported(collector.collect(10**9)), FIRST)
    card.answers.update(
        GetUtilizationRates={"gpu": 1, "memory": 2},
        GetEncoderUtilization=(3, 1000),
        GetDecoderUtilization=(4, 1000),
        GetMemoryInfo_v2={"total": 0, "used": 0, "reserved": 0, "free": 0},
        GetTemperature=46,
        GetFanSpeed=31,
        GetPowerUsage=1,
        GetPerformanceState=1,
        GetCurrentClocksThrottleReasons=0,
        GetViolationStatus={"referenceTime": 1, "violationTime": 0},
        GetPowerManagementLimit=1,
        GetBAR1MemoryInfo={"bar1Total": 0, "bar1Used": 0, "bar1Free": 0},
        GetComputeRunningProcesses_v3=[],
    )
    card.answers.update({("GetClockInfo", domain): 1 for domain in range(4)})
    now = of(reported(collector.collect(20 * 10**9)), FIRST)
    later = of(reported(collector.collect(61 * 10**9)), FIRST)
    assert {name for name in before if now[name] != before[name]} - {"nv_energy"} == {
        "nv_util", "nv_mem_util", "nv_encoder_util", "nv_temp", "nv_power_usage",
        "nv_fb_mem_total", "nv_fb_mem_used", "nv_fb_mem_reserved", "nv_graphics_clock",
        "nv_sm_clock", "nv_throttle_reasons",
        *(name for name in before if name.startswith("nv_violation_")),
    }  # fmt: skip
    assert {name for name in now if later[name] != now[name]} - {"nv_energy"} == {
        "nv_decoder_util", "nv_fan", "nv_perf_state", "nv_power_max_limit", "nv_mem_clock",
        "nv_video_clock", "nv_bar1_mem_total", "nv_bar1_mem_used", "nv_compute_processes",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "watts"),
    [
        ({"AVERAGE": 250_500, "INSTANT": 260_000}, 250.5),
        ({"INSTANT": 260_000}, 260),
        ({"AVERAGE": Fails(UNKNOWN)}, 300.6),
        ({}, 300.6),
    ],
)
def test_nvidia_reads_power_by_call_if_it_is_no_field(
    load: Load, tmp_path: Path, fields: dict[str, Any], watts: float
) -> None:
    """As for each value: the status of a field is its own."""
    card = full_gpu()
    for kind, answer in fields.items():
        card.answers["Field", getattr(pynvml, f"NVML_FI_DEV_POWER_{kind}"), 0] = answer
    load(card)
    values = of(reported(Nvidia(root=str(tmp_path)).collect(0)), FIRST)
    assert values["nv_power_usage"] == watts


def test_nvidia_releases_idle_gpus_with_option(load: Load, tmp_path: Path) -> None:
    """They can then be reset; not while a process uses one."""
    library = load(full_gpu(), full_gpu(SECOND))
    collector = Nvidia(root=str(tmp_path), release_when_idle=True)
    whole = list(collector.collect(0))
    assert (library.begun, library.ended) == (1, 0)
    for card in library.gpus:
        for kind in ("Compute", "MPSCompute"):
            card.answers[f"Get{kind}RunningProcesses_v3"] = []
    for number in range(1, 3):
        assert len(list(collector.collect(number))) >= len(whole)
        assert (library.begun, library.ended) == (number, number)


def test_nvidia_reports_other_links_if_counter_is_unsupported(load: Load, tmp_path: Path) -> None:
    """Each counter is read by itself; a sum over some links only would be wrong."""
    card = full_gpu()
    card.answers["GetNvLinkErrorCounter", 0, 0] = Fails(NOT_SUPPORTED)
    load(card)
    values = reported(Nvidia(root=str(tmp_path)).collect(0))
    first = {name for name, of in values if of == f"{FIRST}/0"}
    second = {name for name, of in values if of == f"{FIRST}/2"}
    assert second - first == {"nv_nvlink_replay_errors"} | (second & {"nv_nvlink_recv"}) - first
    assert "nv_nvlink_replay_errors_sum" not in of(values, FIRST)
    assert of(values, FIRST)["nv_nvlink_crc_errors_sum"] > 0


def test_nvidia_accepts_old_library(load: Load, tmp_path: Path) -> None:
    """Memory is then read by version 1; metrics of other missing functions are omitted."""
    card = full_gpu(GetMemoryInfo={"total": 8 * GIBIBYTE, "used": GIBIBYTE, "free": 1})
    load(card, missing={"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetRemappedRows"})
    values = of(reported(Nvidia(root=str(tmp_path)).collect(0)), FIRST)
    assert values["nv_fb_mem_total"] == 8192
    assert "nv_remapped_rows_pending" not in values


def test_nvidia_logs_lost_gpu_once(
    load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other GPU is unaffected, and the lost one may return."""
    lost, other = full_gpu(FIRST), full_gpu(SECOND)
    load(lost, other)
    collector = Nvidia(root=str(tmp_path))
    assert {place for _, place in reported(collector.collect(0))} >= {FIRST, SECOND}
    lost.is_lost = True
    for _ in range(3):
        places = {place.partition("/")[0] for _, place in reported(collector.collect(0))}
        assert places == {SECOND}
    assert [record.message for record in caplog.records] == ["collector nvidia: GPU 0: GPU is lost"]
    lost.is_lost = False
    assert {place for _, place in reported(collector.collect(0))} >= {FIRST, SECOND}


def test_nvidia_stops_reading_gpu_lost_while_sampling(
    load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load(full_gpu(GetTemperature=Fails(GPU_IS_LOST)), full_gpu(SECOND))
    values = reported(Nvidia(root=str(tmp_path)).collect(0))
    assert "nv_util" in of(values, FIRST)
    assert "nv_power_usage" not in of(values, FIRST)
    assert "nv_power_usage" in of(values, SECOND)
    assert [record.message for record in caplog.records] == ["collector nvidia: GPU 0: GPU is lost"]


def test_nvidia_omits_removed_gpu(load: Load, tmp_path: Path) -> None:
    library = load(full_gpu(FIRST), full_gpu(SECOND))
    collector = Nvidia(root=str(tmp_path))
    reported(collector.collect(0))
    del library.gpus[0]
    assert {place.partition("/")[0] for _, place in reported(collector.collect(0))} == {SECOND}


def test_nvidia_reports_mig_instances_by_uuid(load: Load, tmp_path: Path) -> None:
    """With MIG on, memory and processes are reported per instance too; an empty slot has none."""
    part = {
        "GetMemoryInfo_v2": {"total": 10 * GIBIBYTE, "used": 2**20, "reserved": 2**21},
        "GetComputeRunningProcesses_v3": [4711],
    }
    card = full_gpu(GetMigMode=(1, 1), GetUtilizationRates=Fails(NOT_SUPPORTED))
    card.parts = [FakeGpu("", "MIG-a", part), None, FakeGpu("", "MIG-b", {})]
    load(card)
    values = reported(Nvidia(root=str(tmp_path)).collect(0))
    assert of(values, f"{FIRST}/MIG-a") == {
        "nv_fb_mem_total": 10240, "nv_fb_mem_used": 1, "nv_fb_mem_reserved": 2,
        "nv_compute_processes": 1,
    }  # fmt: skip
    assert of(values, f"{FIRST}/MIG-b") == {}
    assert values["nv_fb_mem_total", FIRST] == 81920
    assert ("nv_util", FIRST) not in values


def test_nvidia_reports_no_instances_without_mig(load: Load, tmp_path: Path) -> None:
    card = full_gpu(GetMigMode=(0, 1))
    card.parts = [FakeGpu("", "MIG-a", {"GetComputeRunningProcesses_v3": []})]
    load(card)
    assert not any("MIG" in place for _, place in reported(Nvidia(root=str(tmp_path)).collect(0)))


def test_nvidia_excludes_gpus_by_pattern(load: Load, tmp_path: Path) -> None:
    load(full_gpu(FIRST), full_gpu(SECOND), full_gpu("00000000:D1:00.0"))
    collector = Nvidia(exclude=["*:C1:*", f"GPU-{FIRST}"], root=str(tmp_path))
    places = {place.partition("/")[0] for _, place in reported(collector.collect(0))}
    assert places == {"00000000:D1:00.0"}


def test_nvidia_omits_energy_gain_after_decrease(load: Load, tmp_path: Path) -> None:
    card = full_gpu(GetTotalEnergyConsumption=5_000_000)
    load(card)
    collector = Nvidia(root=str(tmp_path))
    reported(collector.collect(0))
    for joules, has_gain in ((1000, False), (2000, True)):
        card.answers["GetTotalEnergyConsumption"] = joules * 1000
        values = of(reported(collector.collect(0)), FIRST)
        assert values["nv_energy_abs"] == joules
        assert ("nv_energy" in values) is has_gain


async def test_nvidia_is_disabled_with_one_line_without_driver(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The Python library is not needed either."""
    caplog.set_level(logging.INFO)
    sampler = Sampler(
        SamplerSettings({"nvidia": Nvidia(root=str(tmp_path))}, interval=0.05, tags={}, timeout=20),
        once=True,
    )
    assert [message async for batch in sampler.batches() for message in batch.records] == []
    [record] = caplog.records
    assert record.message == "collectors without data on this machine: nvidia"
