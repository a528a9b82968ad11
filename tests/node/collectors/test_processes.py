"""Processes: ``/proc/<pid>/stat`` and ``/proc/stat``."""

import psutil

from ccpipe.node.collectors.processes import Processes
from tests.node.conftest import Root, reported


def test_processes_are_counted_by_state(root: Root) -> None:
    """A name may hold brackets and blanks; one that vanished is not counted."""
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


def test_what_happened_is_since_the_last_sample(root: Root) -> None:
    """Forks, context switches and interrupts, from the second sample on."""
    first, second = root.twice(Processes(root=str(root)), "processes")
    assert ("forks", "") not in first
    assert second["forks", ""] == 3
    assert second["context_switches", ""] == 500
    assert second["interrupts", ""] == 100


def test_this_machine_agrees_with_psutil() -> None:
    before = len(psutil.pids())
    values = reported(Processes().collect(0))
    after = len(psutil.pids())
    assert min(before, after) - 20 <= int(values["procs_total", ""]) <= max(before, after) + 20
    assert int(values["threads_total", ""]) >= int(values["procs_total", ""])
