"""One thread that polls several things."""

import threading
import time

import pytest

from ccpipe.node.gather.timer import PollTimer


def test_poll_has_its_own_interval() -> None:
    """0 disables it."""
    counts = {"fast": 0, "slow": 0, "never": 0}
    enough = threading.Event()

    def count(name: str) -> None:
        counts[name] += 1
        if counts["fast"] >= 20:
            enough.set()

    timer = PollTimer("test")
    timer.start()
    timer.add(0.02, lambda: count("fast"))
    timer.add(0.1, lambda: count("slow"))
    timer.add(0, lambda: count("never"))
    assert enough.wait(20)
    timer.stop()
    assert counts["never"] == 0
    assert 1 <= counts["slow"] < counts["fast"]


def test_failing_poll_is_logged_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    calls = threading.Semaphore(0)

    def fail() -> None:
        calls.release()
        raise ValueError("broken counter")

    timer = PollTimer("test")
    timer.add(0.01, fail)
    timer.start()
    assert all(calls.acquire(timeout=10) for _ in range(3))
    timer.stop()
    assert "broken counter" in caplog.text


def test_suspended_time_does_not_count() -> None:
    """A poll due in 0.3 s is due so long after the suspension, less the time before it."""
    called: list[float] = []
    done = threading.Event()

    def call() -> None:
        called.append(time.monotonic())
        done.set()

    timer = PollTimer("test")
    begun = time.monotonic()
    timer.add(0.3, call)
    timer.start()
    timer.suspend()
    ran = time.monotonic() - begun
    time.sleep(0.5)
    assert not called
    resumed = time.monotonic()
    timer.resume()
    assert done.wait(60)
    timer.stop()
    assert called[0] - resumed > 0.29 - ran


def test_stop_waits_for_poll_and_may_be_repeated() -> None:
    timer = PollTimer("test")
    timer.add(0.01, timer.stop)
    timer.start()
    time.sleep(0.1)
    timer.stop()
    assert not timer.is_running
    PollTimer("never started").stop()
