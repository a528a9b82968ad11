"""What rules share: patterns of names and tags, and other series in their place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import Lines, decode
from ccpipe.formats.lineprotocol.per_series import PerSeries
from ccpipe.translate.rules.matching import is_metric, matcher, relabel, rule_matcher, series


@pytest.mark.parametrize(
    ("names", "tags", "fits"),
    [
        ([], [], True),
        (["cpu_*"], [], True),
        (["mem_*", "cpu_load"], [], True),
        (["mem_*"], [], False),
        ([], [("hostname", ["e1", "e2"])], True),
        ([], [("hostname", ["f*"])], False),
        ([], [("hostname", [])], True),
        ([], [("rack", ["*"])], False),
        ([], [("rack", [""])], True),
        ([], [("hostname", [""])], False),
        ([], [("rack", ["", "r1"])], True),
        (["cpu_*"], [("hostname", ["f*"])], False),
    ],
)
def test_one_pattern_of_each_must_match(
    names: list[str], tags: list[tuple[str, list[str]]], fits: bool
) -> None:
    """``*`` requires the tag; the empty pattern requires that it is missing."""
    assert matcher(names, tags)("cpu_load", {"hostname": "e1"}) is fits


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_pattern_without_wildcards_is_itself(name: str, other: str) -> None:
    """Whatever characters it has, line breaks too."""
    literal = "".join(f"[{c}]" if c in "*?[" else c for c in name)
    assert rule_matcher([literal], None)(name, {})
    assert rule_matcher([literal], None)(other, {}) == (other == name)


def test_a_field_is_a_metrics_or_another_kinds() -> None:
    """``value`` is the field of metrics."""
    assert is_metric("value")
    assert not is_metric("event")


def test_a_series_that_line_protocol_cannot_carry_is_none() -> None:
    """The record then stays as it is."""
    assert series("", {}) is None
    found = series("m", {"b": "1", "a": "2"})
    assert found is not None
    assert list(found.tags) == ["a", "b"]


def test_relabelled_columns_are_what_relabelled_messages_are() -> None:
    """Those that are left alone keep their series; nothing changed means the same columns."""
    lines = decode(b"a,hostname=x value=1 1\nb,hostname=x value=2 2\na,hostname=y value=3 3\n")

    def renamed(name: str, tags: dict[str, str]) -> object:
        return series("z", tags) if name == "a" else None

    new = PerSeries(renamed)  # type: ignore[arg-type]
    passed = relabel(lines, new)  # type: ignore[arg-type]
    assert isinstance(passed, Lines)
    assert [message.name for message in passed] == ["z", "b", "z"]
    same: PerSeries[None] = PerSeries(lambda _name, _tags: None)
    assert relabel(lines, same) is lines  # type: ignore[arg-type]
