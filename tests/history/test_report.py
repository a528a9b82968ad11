"""Reports of jobs, with numbers computed by hand."""

import math

import numpy as np
import pytest

from ccpipe.history.energy import SharedPower
from ccpipe.history.interfaces import MetricCurve, MetricCurves, MetricStatistics
from ccpipe.history.report import UsageReport, fetch_report, report, report_query
from ccpipe.jobs import Job, JobNode
from tests.history.conftest import BEGIN, STORES, Open, server, stored

__all__ = ["server", "stored"]

SECOND = 10**9
HOUR = 3600
GIB = 2**30
START = 1_740_000_000


def job(*nodes: JobNode, **given: object) -> Job:
    """Return a completed job of an hour on some nodes, by default n1 and n2."""
    fields: dict[str, object] = {
        "cluster": "fox", "id": 7, "state": "completed", "start": START * SECOND,
        "end": (START + HOUR) * SECOND, "nodes": nodes or (JobNode("n1"), JobNode("n2")), **given,
    }  # fmt: skip
    return Job(**fields)  # type: ignore[arg-type]


def stats(
    hostname: str,
    metric: str,
    mean: float,
    peak: float = math.nan,
    part: str = "",
    *,
    of_threads: bool = False,
) -> MetricStatistics:
    peak = mean if math.isnan(peak) else peak
    return MetricStatistics(hostname, metric, part, 60, mean, mean, peak, of_threads)


def made(of: Job, *statistics: MetricStatistics) -> UsageReport:
    """Return a report; each node has the mean of its power metrics all the time."""
    names = [each.metric for each in statistics if each.metric.endswith("_power")]
    curves = [
        MetricCurve("", name, "", np.array([np.mean(means)]), counts=np.array([float(len(means))]))
        for name in dict.fromkeys(names)
        if (means := [each.mean for each in statistics if each.metric == name])
    ]
    power = SharedPower(1.0, MetricCurves(np.array([START - 60.0]), 20.0 * HOUR, curves))
    return report(of, statistics, [power], now=START + 10 * HOUR)


def texts(of: UsageReport) -> list[str]:
    return [finding.text for finding in of.findings]


def test_report_adds_up_efficiency_energy_and_hours() -> None:
    """Two exclusive nodes of 64 hardware threads and 256 GB for one hour."""
    rows = []
    for node, cpu, memory in (("n1", 6000.0, 100e6), ("n2", 4000.0, 60e6)):
        rows += [
            stats(node, "cpu_used", cpu), stats(node, "mem_used", memory / 2, memory),
            stats(node, "mem_total", 256e6), stats(node, "cpu_power", 300.0),
            stats(node, "mem_power", 50.0),
        ]  # fmt: skip
    found = made(job(hwthreads=128), *rows)
    assert (found.seconds, found.node_hours, found.cpu_hours) == (3600, 2, 128)
    assert found.cpu
    assert (found.cpu.used, found.cpu.allocated, found.cpu.share) == (100, 128, 0.78125)
    assert found.memory
    assert (found.memory.used, found.memory.allocated) == (160e9, 512e9)
    assert found.gpu is None
    assert found.energy
    assert found.energy.joules == 2 * 350 * 3600
    assert (found.energy.metrics, found.energy.nodes) == (["cpu_power", "mem_power"], 2)
    assert found.energy.seconds == 3600
    assert found.findings == []


def test_report_has_minimum_mean_and_maximum_of_each_metric() -> None:
    """Over the nodes, and for each of them."""
    rows = [
        MetricStatistics("n1", "ipc", "", 10, 0.5, 1.0, 2.0),
        MetricStatistics("n2", "ipc", "", 10, 0.25, 2.0, 3.0),
        MetricStatistics("n2", "ipc", "hwthread 1", 10, 0.0, 9.0, 9.0),
        MetricStatistics("n2", "clock", "", 0, math.nan, math.nan, math.nan),
    ]
    [metric] = made(job(), *rows).metrics
    assert (metric.metric, metric.minimum, metric.mean, metric.maximum) == ("ipc", 0.25, 1.5, 3.0)
    assert [(node.hostname, node.mean) for node in metric.nodes] == [("n1", 1.0), ("n2", 2.0)]


def test_energy_is_integral_of_curves() -> None:
    """Intervals are cut at start and end; a gap adds nothing, nor does it count as measured."""
    times = np.array([START - 600.0, START, START + 600, START + 3000])
    values = np.array([100.0, 200.0, math.nan, 400.0])
    counts = np.array([1.0, 2.0, 0.0, 1.0])
    curves = MetricCurves(times, 1200.0, [MetricCurve("", "cpu_power", "", values, counts=counts)])
    found = report(job(), [stats("n1", "cpu_power", 1.0)], [SharedPower(0.5, curves)], now=0)
    assert found.energy
    assert found.energy.joules == (100 * 600 + 2 * 200 * 1200 + 400 * 600) / 2
    assert found.energy.seconds == 600 + 1200 + 600


@pytest.mark.parametrize("store", STORES)
async def test_energy_of_shared_node_is_share_of_its_power(stored: Open, store: str) -> None:
    """By hardware threads, and the whole power of the job's own GPUs; in every store."""
    owned = JobNode("n1", hwthreads=(0, 1, 2, 3), accelerators=("0000:01:00.0",))
    shared = job(
        owned, JobNode("n2"), cluster="fox", shared="multi_user", start=BEGIN * SECOND,
        end=(BEGIN + HOUR) * SECOND,
    )  # fmt: skip
    series = [
        ("num_cpus", "type=node", 16), ("cpu_power", "type=node", 160),
        ("nv_power_usage", "type=accelerator,type-id=0000:01:00.0", 200),
        ("nv_power_usage", "type=accelerator,type-id=0000:02:00.0", 350),
    ]  # fmt: skip
    lines = [
        f"{name},cluster=fox,hostname={node},{tags} value={value} {second}"
        for second in range(BEGIN - 300, BEGIN + HOUR + 300, 60)
        for node in ("n1", "n2")
        for name, tags, value in series
    ]
    found = await fetch_report(await stored(store, lines), shared, {})
    assert found.energy
    assert found.energy.joules == pytest.approx((160 * 4 / 16 + 200) * HOUR)
    assert (found.energy.seconds, found.energy.nodes) == (HOUR, 1)


@pytest.mark.parametrize("store", STORES)
async def test_platform_power_replaces_powers_it_includes(stored: Open, store: str) -> None:
    whole = job(JobNode("n1"), cluster="fox", start=BEGIN * SECOND, end=(BEGIN + HOUR) * SECOND)
    lines = [
        f"{name},cluster=fox,hostname=n1,type=node value={watts} {second}"
        for second in range(BEGIN, BEGIN + HOUR, 60)
        for name, watts in (("platform_power", 500), ("cpu_power", 300))
    ]
    energy = (await fetch_report(await stored(store, lines), whole, {})).energy
    assert energy
    assert (energy.metrics, energy.nodes) == (["platform_power"], 1)
    assert energy.joules == pytest.approx(500 * HOUR)


def test_shared_node_counts_only_for_its_share() -> None:
    """Hardware threads of the job for CPU, its own GPUs, its cgroup for memory."""
    node = JobNode("n1", hwthreads=(0, 1, 2, 3), accelerators=("0000:01:00.0",))
    shared = job(node, shared="multi_user", hwthreads=4, accelerators=1)
    assert report_query(shared, START).hwthreads == {"n1": (0, 1, 2, 3)}
    rows = [
        stats("n1", "num_cpus", 16), stats("n1", "cpu_used", 75.0, of_threads=True),
        stats("n1", "mem_used", 1e9), stats("n1", "mem_total", 2e9),
        stats("n1", "job_mem_used", 1.0, 3 * GIB, part="job 7"),
        stats("n1", "job_mem_limit", 4 * GIB, part="job 7"),
    ]  # fmt: skip
    for id_, use in (("0000:01:00.0", 50.0), ("0000:02:00.0", 90.0)):
        rows.append(stats("n1", "nv_util", use, part=f"accelerator {id_}"))
    found = made(shared, *rows)
    assert found.cpu
    assert (found.cpu.used, found.cpu.allocated) == (3, 4)
    assert found.memory
    assert (found.memory.used, found.memory.allocated) == (3 * GIB, 4 * GIB)
    assert found.gpu
    assert (found.gpu.used, found.gpu.allocated) == (0.5, 1)


def test_shared_node_is_unknown_without_what_belongs_to_job() -> None:
    """Rather than other jobs' use and power."""
    shared = job(JobNode("n1"), shared="multi_user", hwthreads=4)
    names = ("cpu_used", "mem_used", "mem_total", "cpu_power", "num_cpus")
    found = report(shared, [stats("n1", name, 100.0) for name in names], now=0)
    assert (found.cpu, found.memory, found.gpu, found.energy) == (None, None, None, None)


def test_shared_node_without_hardware_threads_in_store_is_unknown() -> None:
    """The store then returns the sum over the node, however small it is."""
    shared = job(JobNode("n1", hwthreads=(0, 1)), shared="multi_user", hwthreads=2)
    for percent in (1200.0, 50.0):
        assert made(shared, stats("n1", "cpu_used", percent)).cpu is None


def test_cgroup_of_job_takes_precedence_over_node() -> None:
    rows = [
        stats("n1", "cpu_used", 6400.0),
        stats("n1", "job_user_cpu", 150.0, part="job 7"),
        stats("n1", "job_sys_cpu", 50.0, part="job 7"),
        stats("n1", "job_user_cpu", 999.0, part="job 8"),
    ]
    cpu = made(job(JobNode("n1"), hwthreads=4), *rows).cpu
    assert cpu
    assert (cpu.used, cpu.allocated) == (2, 4)


def test_states_of_cc_metric_collector_add_up_to_cpu_use() -> None:
    """It sends no ``cpu_used``; allocated are all hardware threads of an exclusive node."""
    rows = [
        stats("n1", "cpu_user", 700.0), stats("n1", "cpu_system", 100.0),
        stats("n1", "num_cpus", 16),
    ]  # fmt: skip
    cpu = made(job(JobNode("n1")), *rows).cpu
    assert cpu
    assert (cpu.used, cpu.allocated) == (8, 16)


def test_running_job_lasts_until_now() -> None:
    running = job(JobNode("n1"), state="running", end=0)
    curve = MetricCurve("", "cpu_power", "", np.array([100.0]), counts=np.array([1.0]))
    power = SharedPower(1.0, MetricCurves(np.array([float(START)]), 3600.0, [curve]))
    found = report(running, [stats("n1", "cpu_power", 100.0)], [power], now=START + 60)
    assert found.energy
    assert (found.seconds, found.energy.joules) == (60, 6000)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"state": "out_of_memory"}, "The kernel ended the job because it was out of memory."),
        (
            {"state": "failed", "exit_code": 253},
            "The kernel ended the job because it was out of memory.",
        ),
        (
            {"state": "failed", "exit_code": 137},
            "Killed by signal 9 (exit code 137), as by the kernel when out of memory.",
        ),
        (
            {"state": "timeout", "walltime": 3600},
            "Reached its time limit of 1:00:00, and was ended after 1:00:00.",
        ),
        ({"state": "node_fail"}, "A node of the job failed."),
        ({"state": "preempted"}, "Preempted by another job."),
        ({"state": "failed", "exit_code": 1}, "Failed with exit code 1 after 1:00:00."),
        ({"state": "failed"}, "Failed after 1:00:00."),
    ],
)
def test_findings_name_reason_of_end(given: dict[str, object], text: str) -> None:
    assert texts(made(job(JobNode("n1"), **given), stats("n1", "ipc", 1.0))) == [text]


def test_findings_name_idle_gpus() -> None:
    rows = [
        stats("n1", "nv_util", use, part=f"accelerator {number}")
        for number, use in enumerate((80.0, 0.0, 0.4, 1.0))
    ]
    assert texts(made(job(JobNode("n1"), accelerators=4), *rows)) == [
        "2 of 4 GPUs were idle, busy less than 1 % of the time: n1 1, n1 2."
    ]


def test_memory_that_a_job_requests_is_of_each_node() -> None:
    """The same for all schedulers; without a request it is the memory of its nodes."""
    rows = [stats(node, "mem_used", 1e6, 2e6) for node in ("n1", "n2")]
    found = made(job(memory=8 * 10**9), *rows)
    assert found.memory
    assert (found.memory.used, found.memory.allocated) == (4e9, 16e9)


def test_findings_name_memory_at_its_limit() -> None:
    """The fullest node, and how many others."""
    nodes = [JobNode(name, memory=1024) for name in ("n1", "n2", "n3")]
    rows = [
        stats(node, "job_mem_used", 1.0, share * GIB, part="job 7")
        for node, share in (("n1", 0.97), ("n2", 0.99), ("n3", 0.5))
    ]
    [text] = texts(made(job(*nodes), *rows))
    assert text == (
        "Memory reached 99 % of its limit on n2: 0.99 GiB of 1 GiB, "
        "and at least 95 % on 1 other node."
    )


def test_findings_name_low_cpu_use() -> None:
    """Not of a job with GPUs, whose processors wait for these."""
    row = stats("n1", "cpu_used", 600.0)
    assert texts(made(job(JobNode("n1"), hwthreads=64), row)) == [
        "Used 9 % of its processors: 6.0 of 64 hardware threads on average."
    ]
    assert texts(made(job(JobNode("n1"), hwthreads=64, accelerators=1), row)) == []


def test_findings_name_node_that_differs() -> None:
    """If the others agree."""
    nodes = [JobNode(f"n{number}") for number in range(4)]
    rows = [stats(node.hostname, "cpu_used", 3200.0) for node in nodes]
    rows[2] = stats("n2", "cpu_used", 100.0)
    [text] = texts(made(job(*nodes, hwthreads=128), *rows))
    assert text == (
        "n2 differs from the other nodes: its mean number of busy hardware threads "
        "is 3 % of the median of 4 nodes."
    )
    rows[0] = stats("n0", "cpu_used", 90.0)
    assert texts(made(job(*nodes, hwthreads=128), *rows)) == []


def test_findings_name_nodes_without_metrics() -> None:
    found = texts(made(job(), stats("n1", "ipc", 1.0)))
    assert found == ["No metrics are stored for 1 of 2 nodes: n2."]


def test_short_job_is_not_judged_by_its_use() -> None:
    """It consists mostly of its start."""
    short = job(JobNode("n1"), hwthreads=64, end=(START + 59) * SECOND)
    assert texts(made(short, stats("n1", "cpu_used", 100.0))) == []
