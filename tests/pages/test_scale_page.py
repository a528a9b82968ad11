"""``docs/operations/scale.md`` agrees with ``benchmarks/scale.json``; the benchmark runs."""

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.scale.arithmetic import Costs, Need, Size
from benchmarks.scale.flows import Acks
from benchmarks.scale.page import measured, read_results, replaced
from benchmarks.scale.programs import Report
from benchmarks.scale.results import Loader, Run, Stages, exponent, quantile
from tests.paths import ROOT

PAGE = (ROOT / "docs/operations/scale.md").read_text(encoding="utf-8")
RESULTS = read_results(ROOT / "benchmarks" / "scale.json")


def test_page_has_measured_values() -> None:
    """``python -m benchmarks.scale.page`` writes it."""
    assert replaced(PAGE, RESULTS) == PAGE


def test_measured_runs_lost_nothing() -> None:
    """The stores returned what was published, in each kind of run with a store."""
    stored = [run for run in RESULTS.runs if run.store != "null"]
    assert {run.series for run in stored} == {"store", "target", "outage"}
    assert all(run.stored == run.expected for run in stored)


def test_exponent_equals_power_law() -> None:
    """For any factor."""
    assert exponent([(x, 7 * x**0.5) for x in (1, 10, 1000)]) == pytest.approx(0.5)
    assert exponent([(x, 3.0) for x in (1, 10, 1000)]) == pytest.approx(0)


def test_quantile_is_measured_value() -> None:
    """The smallest one not exceeded by that share of the values."""
    values = [float(n) for n in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile([1.0], 0.99)) == (50, 99, 1)


def test_stages_divide_latency_of_messages() -> None:
    """Until the stream has them, until their acknowledgement, and the write in between."""
    acks, second = Acks(), 10**9
    for number in range(1, 5):
        acks.stored[number] = 2 * second
        acks.times[number] = (4 + number // 4) * second
    report = Report(
        messages=4, lines=4, seconds=1, cpu_seconds=1, peak_bytes=1,
        published=[second, second, second, 0],
    )  # fmt: skip
    stages = acks.stages(report.by_number(0, 4), 4, 2.0, (500, 0.5))
    assert stages == Stages((1, 2), (1.5, 2.5), 0.5, 2 / 3, (500, 0.5))


def test_report_refuses_stream_that_others_published_to() -> None:
    """The numbers of its messages are then unknown."""
    report = Report(messages=2, lines=2, seconds=1, cpu_seconds=1, peak_bytes=1, published=[7, 8])
    assert report.by_number(5, 7) == {6: 7, 7: 8}
    with pytest.raises(SystemExit, match="3 messages instead of 2"):
        report.by_number(5, 8)


def test_page_compares_sink_with_loaders_of_store() -> None:
    """By rows per CPU-second of the store, against the fastest."""
    loaders = [
        Loader("postgres", "", rows=900, cpu=1.0, seconds=9),
        Loader("postgres", "binary COPY", rows=2000, cpu=2.0, seconds=1),
    ]
    page = measured(msgspec.structs.replace(RESULTS, loaders=loaders))
    assert "| postgres | the sink | 900 | 0.90 |" in page
    assert "| postgres | binary COPY | 1 000 | 1.00 |" in page


def test_cost_of_line_is_computed_from_run() -> None:
    """CPU-seconds by lines."""
    assert Run(series="x", nodes=1, lines=50, cpu={"bridge": 0.1}).cpu_per_line("bridge") == 0.002


def test_requirements_follow_from_costs() -> None:
    """Ten times the nodes need ten times of everything, including bridges."""
    costs = Costs(
        broker=1e-4, brokers=3e-4, bridge=1e-6, store=2e-6, disk=100,
        bridge_series=100, store_series=1000,
    )  # fmt: skip
    small, large = Size("a", 10_000, 1), Size("b", 100_000, 1)
    need, more = Need.of(small, costs), Need.of(large, costs)
    assert (need.lines, need.messages, need.series) == (100_000, 1000, 1_000_000)
    assert (need.broker, need.bridge, need.store) == pytest.approx((0.1, 0.1, 0.2))
    assert tuple(10 * each for each in need) == pytest.approx(tuple(more))
    assert (need.streams(small), need.replicas(small), need.partitions(small)) == (1, 1, 1)
    assert (more.streams(large), more.replicas(large)) == (2, 1)
    assert Need.of(large, costs._replace(broker=1e-6)).partitions(large) == 4


def test_page_compares_broker_with_floor_when_measured() -> None:
    """The cost of a message is given in multiples of what the NATS CLI's benchmark causes."""
    floor = Run(
        series="floor", nodes=1, metrics=100, messages=1000, lines=100_000, seconds=1.0,
        cpu={"broker": 0.04},
    )  # fmt: skip
    nodes = [run for run in RESULTS.runs if run.series != "floor"]
    page = measured(msgspec.structs.replace(RESULTS, runs=[floor, *nodes]))
    cost = RESULTS.of("nodes")[0].cpu["broker"] / RESULTS.of("nodes")[0].messages
    assert "| `nats bench js pub async` and `js fetch` | 40 | 1.00 |" in page
    assert f"| 1 000 nodes | {1e6 * cost:.0f} | {cost / 40e-6:.2f} |" in page


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_benchmark_runs(tmp_path: Path) -> None:
    """A small cluster at its own pace, an outage; nothing is lost."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.scale", "--quick", "--only", "target,outage",
        "--nodes", "5,10,20", "--seconds", "10", "--out", str(tmp_path), cwd=ROOT,
    )  # fmt: skip
    assert await process.wait() == 0
    results = read_results(tmp_path / "scale.json")
    assert [run.series for run in results.runs] == ["target", "target", "outage"]
    assert all(run.stored == run.expected and run.stored for run in results.runs)
    assert all(run.latency.messages == 10 for run in results.of("target") if run.latency)
