"""Load, pressure and processes of the node, and the load of each hardware thread."""

import os
import re
from typing import Any

import psutil
import pytest

from ccpipe.node.collectors.load import Load
from ccpipe.node.collectors.pressure import Pressure
from ccpipe.node.collectors.processes import Processes
from ccpipe.node.collectors.schedstat import Schedstat
from tests.node.conftest import PACKED, Root, reported


def test_load_reports_contents_of_file(root: Root) -> None:
    """Averages are floats, numbers of threads are integers, and cpu_load is the first average."""
    _, second = root.twice(Load(root=str(root)), "captured")
    assert second == {
        ("cpu_load", ""): 0.08,
        ("load_five", ""): 0.05,
        ("load_fifteen", ""): 0.02,
        ("proc_run", ""): 2,
        ("proc_total", ""): 88,
    }
    assert [type(value) for value in second.values()] == [float, float, float, int, int]


def test_load_agrees_with_c_library() -> None:
    """The same averages as getloadavg(3), unless they are updated between the readings."""
    before = os.getloadavg()
    values = reported(Load().collect(0))
    after = os.getloadavg()
    for place, name in enumerate(("cpu_load", "load_five", "load_fifteen")):
        assert values[name, ""] in (
            pytest.approx(before[place], abs=0.01),
            pytest.approx(after[place], abs=0.01),
        )


def test_schedstat_divides_time_run_and_waited_by_elapsed_time(root: Root, seconds: Any) -> None:
    """9 s run and 6 s waited in 10 s are 1.5; a new hardware thread has none yet."""
    seconds(10)
    first, second = root.twice(Schedstat(root=str(root)), "schedstat")
    assert first == {}
    assert second == {
        ("cpu_load_core", "0"): pytest.approx(1.5), ("cpu_load_core", "1"): pytest.approx(0.15),
    }  # fmt: skip


def test_pressure_is_share_of_time_between_samples(root: Root, seconds: Any) -> None:
    """Microseconds lost divided by those elapsed; the first sample is empty."""
    seconds(4)
    first, second = root.twice(Pressure(root=str(root)), "captured-sys")
    assert first == {}
    text = (PACKED / "captured-sys.txt").read_text()
    totals = [int(total) for total in re.findall(r"^some .*total=(\d+)", text, re.MULTILINE)]
    for at, of in enumerate(("cpu", "memory", "io")):
        lost = totals[3 + at] - totals[at]
        assert second[f"psi_{of}_some", ""] == pytest.approx(min(100, lost / 4e6 * 100))
    assert set(second) == {
        (f"psi_{of}_{share}", "") for of in ("cpu", "memory", "io") for share in ("some", "full")
    }


def test_pressure_is_at_most_100_percent(root: Root, seconds: Any) -> None:
    """The kernel's total is read slightly before or after our clock."""
    seconds(0.001)
    _, second = root.twice(Pressure(root=str(root)), "captured-sys")
    assert second["psi_cpu_some", ""] == 100


def test_pressure_reports_interrupts(root: Root, seconds: Any) -> None:
    """Since Linux 6.1, if compiled in, and only full."""
    seconds(1)
    _, second = root.twice(Pressure(root=str(root)), "pressure")
    assert second["psi_irq_full", ""] == 1
    assert second["psi_cpu_some", ""] == 50
    assert ("psi_irq_some", "") not in second


def test_processes_are_counted_by_state(root: Root) -> None:
    """A name may contain brackets and blanks; one that vanished is not counted."""
    root.show("processes/first")
    assert reported(Processes(root=str(root)).collect(0)) == {
        ("procs_total", ""): 7,
        ("threads_total", ""): 71,
        ("procs_running", ""): 1,
        ("procs_sleeping", ""): 1,
        ("procs_disk_sleep", ""): 1,
        ("procs_idle", ""): 1,
        ("procs_zombie", ""): 1,
        ("procs_stopped", ""): 2,
    }


def test_processes_report_events_since_last_sample(root: Root) -> None:
    """Forks, context switches and interrupts, from the second sample on."""
    first, second = root.twice(Processes(root=str(root)), "processes")
    assert ("forks", "") not in first
    assert second["forks", ""] == 3
    assert second["context_switches", ""] == 500
    assert second["interrupts", ""] == 100


def test_processes_agree_with_psutil() -> None:
    before = len(psutil.pids())
    values = reported(Processes().collect(0))
    after = len(psutil.pids())
    assert min(before, after) - 20 <= int(values["procs_total", ""]) <= max(before, after) + 20
    assert int(values["threads_total", ""]) >= int(values["procs_total", ""])
