"""Pressure: ``/proc/pressure``."""

import re
from typing import Any

import pytest

from ccpipe.node.collectors.pressure import Pressure
from tests.node.conftest import PACKED, Root


def test_shares_are_of_the_time_between_two_samples(root: Root, seconds: Any) -> None:
    """Microseconds that were lost, over those that passed; the first sample says nothing."""
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


def test_no_share_is_beyond_100_percent(root: Root, seconds: Any) -> None:
    """The kernel's total is a little older or newer than our clock."""
    seconds(0.001)
    _, second = root.twice(Pressure(root=str(root)), "captured-sys")
    assert second["psi_cpu_some", ""] == 100


def test_interrupts_press_too(root: Root, seconds: Any) -> None:
    """Since Linux 6.1, where it is compiled in, and only full."""
    seconds(1)
    _, second = root.twice(Pressure(root=str(root)), "pressure")
    assert second["psi_irq_full", ""] == 1
    assert second["psi_cpu_some", ""] == 50
    assert ("psi_irq_some", "") not in second
