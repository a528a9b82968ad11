"""Rates of the pipe."""

from ccpipe.dashboard.health import WINDOW, Health


def test_rates_are_means_over_some_seconds() -> None:
    """Publishers that send every two seconds, all at once, make a line and no saw."""
    health = Health()
    for second in range(3 * WINDOW):
        if second % 2 == 0:
            health.lines += 200
            health.payloads += 2
            health.bytes += 20_000
        health.tick(1000.0 + second)
    assert {tuple(rate[1:]) for rate in list(health.rates)[WINDOW:]} == {(1.0, 100.0, 10_000.0)}
    assert health.lines_per_second == 100.0


def test_a_clock_that_is_set_back_makes_no_rate() -> None:
    """Nor does the first call."""
    health = Health()
    health.tick(1000.0)
    health.lines = 10
    health.tick(999.0)
    assert (list(health.rates), health.lines_per_second) == ([], 0.0)
    health.tick(1001.0)
    assert health.lines_per_second == 10.0
