"""The category: which resources, queues and slots a job asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.gridengine.record import Requests, parse_category, seconds, size


def test_a_category_is_what_the_job_asked_for() -> None:
    """Of both generations; what is only wished for (``-soft``) does not count."""
    old = parse_category("-q all.q@node01*,low.q -l h_rt=3600,h_vmem=1.5G,excl -pe smp 2,3 -ar 7")
    assert (old.h_rt, old.h_vmem, old.resources["excl"]) == (3600, 3 * 2**29, "TRUE")
    new = parse_category(
        "-scope global -hard -l h_rt=0:1:30 -soft -l fast=1 -q b.q -scope slave -hard -l gpu=2 -P x"
    )
    assert (new.h_rt, new.gpu, new.resources) == (90, 2, {"h_rt": "0:1:30"})
    assert parse_category("what is this -I y") == Requests()


@pytest.mark.parametrize(
    ("text", "amount"),
    [("2G", 2**31), ("2g", 2 * 10**9), ("100", 100), ("1.5K", 1536), ("x", None)],
)
def test_memory_is_read_with_its_unit(text: str, amount: int | None) -> None:
    """Capital letters are powers of 1024, small ones of 1000."""
    assert size(text) == amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [("60", 60), ("1:2:3", 3723), (":5:0", 300), ("1:30", 90), ("INFINITY", None)],
)
def test_times_are_read_in_both_forms(text: str, amount: float | None) -> None:
    """Seconds, or hours, minutes and seconds."""
    assert seconds(text) == amount


@given(st.text(max_size=80))
def test_any_category_is_read(text: str) -> None:
    """A category never fails, and its units are numbers or nothing."""
    requests = parse_category(text)
    assert requests.h_rt is None or requests.h_rt >= 0
    assert requests.gpu is None or requests.gpu >= 0
