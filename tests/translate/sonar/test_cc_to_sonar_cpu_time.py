"""Processor time integrated from utilization."""

import pytest

from ccpipe.pipeline.state import StateStore
from ccpipe.translate.sonar import cc_to_sonar_cpu_time
from ccpipe.translate.sonar.cc_to_sonar_cpu_time import CpuTime, CpuTimes, NodeJob

BATCH = NodeJob("fox", "c1", 7, 0, "ann")
GROUP = NodeJob("fox", "c1", 7, 9, "ann")
SECOND = 10**9


def test_utilization_times_time() -> None:
    """The first sample only begins: how long it speaks of is not known."""
    times = CpuTimes(StateStore())
    assert times.add(BATCH, 100 * SECOND, 80.0) == CpuTime(0.0, 80.0)
    assert times.add(BATCH, 110 * SECOND, 80.0) == CpuTime(8.0, 80.0)
    assert times.add(BATCH, 120 * SECOND, 20.0) == CpuTime(10.0, 50.0)


def test_a_late_or_repeated_sample_adds_nothing() -> None:
    """What was counted is not counted again, as after a restart of the source."""
    times = CpuTimes(StateStore())
    for second in (0, 10, 20, 10, 20):
        used = times.add(BATCH, second * SECOND, 100.0)
    assert used == CpuTime(20.0, 100.0)


def test_a_sample_of_the_future_adds_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """One wrong clock would make all later samples late; it is logged once."""
    times = CpuTimes(StateStore(), clock=lambda: 100 * SECOND)
    times.add(BATCH, 80 * SECOND, 100.0)
    for _ in range(2):
        assert times.add(BATCH, 10**9 * SECOND, 100.0) == CpuTime(0.0, 100.0)
    assert times.add(BATCH, 90 * SECOND, 100.0) == CpuTime(10.0, 100.0)
    assert [r.getMessage() for r in caplog.records] == [
        "fox: c1: a sample is beyond max_future: it is not counted"
    ]


def test_a_time_of_the_future_in_the_state_is_replaced() -> None:
    """As after this machine's own clock was wrong."""
    now = [10**9 * SECOND]
    times = CpuTimes(StateStore(), clock=lambda: now[0])
    times.add(BATCH, 0, 100.0)
    times.add(BATCH, now[0], 0.0)
    now[0] = 100 * SECOND
    assert times.add(BATCH, 90 * SECOND, 100.0).seconds == 0
    assert times.add(BATCH, 100 * SECOND, 100.0).seconds == 10


def test_a_process_group_that_was_silent_for_long_is_another_job() -> None:
    """Numbers of process groups are used again; those of batch jobs are not."""
    times = CpuTimes(StateStore())
    for job, expected in ((GROUP, 0.0), (BATCH, 4 * 3600.0)):
        times.add(job, 0, 100.0)
        assert times.add(job, 4 * 3600 * SECOND, 100.0).seconds == expected


def test_jobs_of_the_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded."""
    monkeypatch.setattr(cc_to_sonar_cpu_time, "MAX_JOBS", 2)
    times = CpuTimes(StateStore())
    for number in (1, 2, 3):
        times.add(BATCH._replace(job=number), 0, 1.0)
    assert times.add(BATCH._replace(job=1), 10 * SECOND, 100.0).seconds == 0
    assert times.add(BATCH._replace(job=3), 10 * SECOND, 100.0).seconds == 10
