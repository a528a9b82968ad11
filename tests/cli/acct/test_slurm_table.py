"""Cells of the tables of Slurm's jobs."""

import pytest

from ccpipe.cli.acct.slurm_table import LAYOUT, elapsed_text, share


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "00:00:00"), (59.6, "00:01:00"), (3661, "01:01:01"), (90061, "1-01:01:01")],
)
def test_times_are_printed_as_sacct_does(seconds: float, text: str) -> None:
    """Days, hours, minutes, seconds."""
    assert elapsed_text(seconds) == text


@pytest.mark.parametrize(
    ("head", "value", "text"),
    [
        ("TotalCPU", None, "-"),
        ("ElapsedRaw P50", 61.0, "00:01:01"),
        ("Memory P95", 2**20, "1.0 MiB"),
        ("Efficiency", 0.25, "25.0%"),
        ("ConsumedEnergyRaw", 24022.0, "24022"),
        ("JobName", "a\x1bb", "a\\x1bb"),
    ],
)
def test_cells_have_units(head: str, value: object, text: str) -> None:
    """By column; texts cannot write to the terminal."""
    assert LAYOUT.cell(head, value) == text


def test_a_share_of_nothing_is_unknown() -> None:
    """Rather than an error or 0."""
    assert (share(1, 4), share(None, 4), share(1, 0), share(0, 2)) == (0.25, None, None, 0)
