"""Durations and sizes: their units, and what is none."""

import math
from typing import Any

import pytest

from ccpipe.config import (
    Batching,
    Interval,
    Site,
    to_struct,
)
from ccpipe.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("10s", 10), ("5m", 300), ("2h", 7200), ("1d", 86400), (".5 h", 1800)],
)
def test_durations_have_units(text: str, seconds: float) -> None:
    """A number and a unit, or a plain number of seconds."""
    for value in (text, seconds, str(seconds)):
        assert to_struct({"age": value}, Batching, "f").age == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64KiB", 2**16),
        ("4MiB", 2**22),
        ("1GiB", 2**30),
        ("1.5GiB", 3 * 2**29),
        ("5 MB", 5 * 10**6),
        ("2KB", 2000),
        ("3GB", 3 * 10**9),
        ("7B", 7),
    ],
)
def test_sizes_have_units(text: str, size: int) -> None:
    """Those of ten and those of two are told apart; a plain number counts bytes."""
    for value in (text, size, str(size)):
        assert to_struct({"memory": value}, Batching, "f").memory == size


WRONG = [-1, -0.5, math.nan, math.inf, -math.inf, 10**400, "9" * 400, True, "", "x", "-1s", "1.2.3"]
WRONG += ["10 parsecs", "1e3", "10S", [], {}, "inf", "nan", "½", "\u0661s"]


@pytest.mark.parametrize(
    ("kind", "key", "name"),
    [
        (Batching, "age", "a duration"),
        (Batching, "memory", "a size"),
        (Site, "publish", "an interval"),
    ],
)
def test_what_is_no_measure_is_refused(kind: Any, key: str, name: str) -> None:
    """Neither negative nor endless nor without meaning, and the error says what it must be."""
    for value in WRONG:
        tree = {key: {"interval": value}} if kind is Site else {key: value}
        with pytest.raises(ConfigError, match=rf"f: {key}\S*: not {name}: ") as caught:
            to_struct(tree, kind, "f")
        assert len(str(caught.value)) < 200


def test_nothing_is_no_interval_but_a_duration() -> None:
    """Sampling every zero seconds is refused; waiting for zero seconds is not."""
    with pytest.raises(
        ConfigError, match=r"publish.interval: not an interval: 0 \(must be more than 0"
    ):
        to_struct({"publish": {"interval": 0}}, Site, "f")
    assert Interval(0) == to_struct({"age": 0}, Batching, "f").age
