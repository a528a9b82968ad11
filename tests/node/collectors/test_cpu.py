"""States of the processors: ``/proc/stat``."""

import os
import time
from pathlib import Path

import psutil
import pytest

from ccpipe.node.collectors.cpu import Cpu
from tests.node.conftest import Root, reported

STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def test_cpu_has_100_percent_per_hwthread(root: Root) -> None:
    """The ticks between two readings, as parts of 100 percent times the hardware threads."""
    first, second = root.twice(Cpu(root=str(root)), "captured")
    assert first == {("num_cpus", ""): 2}
    # user 7355 → 7399, system 2351 → 2365, idle 365448 → 366093, iowait 469 → 471: 705 ticks
    assert second["cpu_user", ""] == pytest.approx(200 * 44 / 705)
    assert second["cpu_system", ""] == pytest.approx(200 * 14 / 705)
    assert second["cpu_idle", ""] == pytest.approx(200 * 645 / 705)
    assert second["cpu_iowait", ""] == pytest.approx(200 * 2 / 705)
    assert second["cpu_used", ""] == pytest.approx(200 * 60 / 705)


def test_cpu_reports_two_metrics_per_hwthread_by_default(root: Root) -> None:
    """Those that ClusterCockpit's default configuration needs."""
    _, second = root.twice(Cpu(root=str(root)), "captured")
    assert {name for name, cpu in second if cpu} == {"cpu_user", "cpu_used"}
    assert {cpu for _, cpu in second} == {"", "0", "1"}
    _, second = root.twice(Cpu(hwthreads=[], root=str(root)), "captured")
    assert {cpu for _, cpu in second} == {""}


def test_cpu_reports_all_states_per_hwthread_with_option(root: Root) -> None:
    """Of each hardware thread they add up to 100 percent."""
    _, second = root.twice(Cpu(hwthreads=["*"], root=str(root)), "captured")
    for cpu in ("0", "1"):
        assert sum(float(second[f"cpu_{state}", cpu]) for state in STATES) == pytest.approx(100)


def test_cpu_follows_hwthreads_online_and_offline(root: Root) -> None:
    """An offline one is omitted, a new one is reported from its second reading on."""
    first, second = root.twice(Cpu(hwthreads=["*"], root=str(root)), "made-hotplug")
    assert first["num_cpus", ""] == 4
    assert second["num_cpus", ""] == 3
    assert {cpu for name, cpu in second if name == "cpu_user"} == {"", "0", "2"}
    # The kernel's idle ticks can go down a little; no percentage is ever below 0.
    assert second["cpu_idle", "0"] == 0
    assert second["cpu_user", "0"] == 75
    assert second["cpu_used", "0"] == 100


def test_cpu_omits_states_unknown_to_old_kernel(root: Root) -> None:
    """The other states are still reported."""
    _, second = root.twice(Cpu(hwthreads=[], root=str(root)), "made-linux-3.10")
    assert second == {
        ("num_cpus", ""): 1,
        ("cpu_user", ""): 40,
        ("cpu_nice", ""): 0,
        ("cpu_system", ""): 10,
        ("cpu_idle", ""): 50,
        ("cpu_iowait", ""): 0,
        ("cpu_irq", ""): 0,
        ("cpu_softirq", ""): 0,
        ("cpu_used", ""): 50,
    }


def test_cpu_counts_guest_time_once(tmp_path: Path) -> None:
    """A guest's time is part of cpu_user already, so cpu_used does not count it again."""
    (tmp_path / "proc").mkdir()
    collector = Cpu(root=str(tmp_path))
    for ticks in ("100 0 0 100 0 0 0 0 50 0", "150 0 0 150 0 0 0 0 90 0"):
        (tmp_path / "proc/stat").write_text(f"cpu {ticks}\ncpu0 {ticks}\n")
        values = reported(collector.collect(0))
    assert values["cpu_guest", ""] == 40
    assert values["cpu_used", ""] == 50


def test_cpu_reports_nothing_without_ticks_between(root: Root) -> None:
    root.show("captured/first")
    collector = Cpu(root=str(root))
    list(collector.collect(0))
    assert reported(collector.collect(0)) == {("num_cpus", ""): 2}


def test_cpu_agrees_with_psutil() -> None:
    """Idle time is between the values read inside and around our two readings."""
    collector, online = Cpu(), os.sysconf("SC_NPROCESSORS_ONLN")
    around = [psutil.cpu_times()]
    assert reported(collector.collect(0)) == {("num_cpus", ""): online}
    inside = [psutil.cpu_times()]
    while _total(inside[-1]) - _total(inside[0]) < 0.5:
        time.sleep(0.02)
        inside[1:] = [psutil.cpu_times()]
    values = reported(collector.collect(0))
    around.append(psutil.cpu_times())
    share = float(values["cpu_idle", ""]) / 100 / online
    slack = 0.05  # of a second: idle time is not exact to the tick
    minimum = (inside[1].idle - inside[0].idle - slack) / (_total(around[1]) - _total(around[0]))
    maximum = (around[1].idle - around[0].idle + slack) / (_total(inside[1]) - _total(inside[0]))
    assert minimum - slack <= share <= maximum + slack
    assert float(values["cpu_used", ""]) / 100 / online == pytest.approx(1 - share)


def _total(times: "psutil._ntuples.scputimes") -> float:
    return float(sum(getattr(times, state) for state in STATES))
