"""The publisher's own usage: this process, compared with psutil and the kernel's files."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from ccpipe.node.collectors.self import SelfUsage
from tests.node.conftest import Root, reported


def test_self_reports_memory_and_threads_as_psutil_does() -> None:
    """Resident memory within 5 %; threads exactly, or fewer as threads of earlier tests ended."""
    me = psutil.Process()
    before = me.num_threads()
    values = reported(SelfUsage().collect(0))
    assert values["self_mem_used", ""] == pytest.approx(me.memory_info().rss / 1024, rel=0.05)
    assert me.num_threads() <= int(values["self_threads", ""]) <= before


def test_self_reports_cpu_time_of_all_threads_since_the_last_sample(seconds: Any) -> None:
    """In percent of one hardware thread, user and system apart; the first sample has none."""
    seconds(10)
    me, collector = psutil.Process(), SelfUsage()
    outer = me.cpu_times()
    assert ("self_user_cpu", "") not in reported(collector.collect(1))
    inner = me.cpu_times()
    work = threading.Thread(target=lambda: sum(range(5_000_000)))
    work.start()
    work.join()
    for _ in range(20_000):
        os.stat("/proc/self")  # noqa: PTH116 - time in the kernel
    inner_end = me.cpu_times()
    values = reported(collector.collect(2))
    outer_end = me.cpu_times()
    for name, state in (("self_user_cpu", "user"), ("self_sys_cpu", "system")):
        spent = float(values[name, ""]) / 100 * 10
        minimum = getattr(inner_end, state) - getattr(inner, state)
        maximum = getattr(outer_end, state) - getattr(outer, state)
        assert minimum - 0.03 <= spent <= maximum + 0.03, name  # psutil's are in ticks of 10 ms
    assert float(values["self_user_cpu", ""]) > 0


def test_self_counts_context_switches_of_all_threads() -> None:
    """Not only those of the main thread, as ``/proc/self/status`` does."""
    collector = SelfUsage()
    before = reported(collector.collect(1))

    def sleep() -> None:
        for _ in range(100):
            time.sleep(0.0001)

    work = threading.Thread(target=sleep)
    work.start()
    work.join()
    after = reported(collector.collect(2))
    key = "rusage_vol_ctx_switch", ""
    assert int(after[key]) - int(before[key]) >= 100
    assert int(after["rusage_invol_ctx_switch", ""]) >= int(before["rusage_invol_ctx_switch", ""])


def test_self_counts_page_faults_as_the_process_table_does() -> None:
    """Minor and major ones since the start of the process: fields 10 and 12 of ``stat``."""

    def faults() -> list[int]:
        words = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
        return [int(words[7]), int(words[9])]

    before = faults()
    values = reported(SelfUsage().collect(1))
    after = faults()
    names = ("rusage_minor_pgfaults", "rusage_major_pgfaults")
    for name, low, high in zip(names, before, after, strict=True):
        assert low <= int(values[name, ""]) <= high, name
    assert before[0] > 0


def test_self_omits_metric_of_missing_line(root: Root, caplog: Any) -> None:
    """It is logged; other metrics are unaffected."""
    root.show("self/second")
    collector = SelfUsage(root=str(root))
    whole = reported(collector.collect(1))
    assert (whole["self_mem_used", ""], whole["self_threads", ""]) == (51200, 12)
    path = root.path / "proc/self/status"
    path.write_text(path.read_text().replace("VmRSS:", "VmSwap:"))
    values = reported(collector.collect(2))
    assert ("self_mem_used", "") not in values
    assert values["self_threads", ""] == 12
    assert "VmRSS '' is not a number" in caplog.text
