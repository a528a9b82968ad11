"""The line that a monitor reads, whatever is in it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli.check.result import Finding, Status, check_thresholds, compare, line, worst
from ccpipe.errors import UsageError

findings = st.builds(
    Finding,
    label=st.text(min_size=1, max_size=20),
    status=st.sampled_from(Status),
    text=st.text(max_size=40),
    value=st.none() | st.floats(0, 1e9),
    unit=st.sampled_from(["", "s", "B", "%"]),
    warning=st.none() | st.floats(0, 1e9),
    critical=st.none() | st.floats(0, 1e9),
)


@given(st.lists(findings, max_size=5))
def test_any_findings_are_one_line_with_one_bar(found: list[Finding]) -> None:
    """Names and texts of others break neither the line nor the performance data."""
    text = line("lag", found)
    assert len(text.splitlines()) == 1
    assert text.count("|") == any(each.value is not None for each in found)
    assert text.startswith(f"CCPIPE LAG {worst(found).name} - ")


@given(findings.filter(lambda each: each.value is not None))
def test_performance_data_is_as_the_guidelines_have_it(finding: Finding) -> None:
    """``'label'=value[unit];[warn];[crit];[min];[max]`` with quotes doubled."""
    assert re.fullmatch(
        r"'(?:[^'=|]|'')+'=[\d.]+(?:s|B|%)?(?:;[\d.e+-]*){1,4}", finding.performance(), re.DOTALL
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], Status.UNKNOWN),
        ([Status.OK, Status.UNKNOWN], Status.UNKNOWN),
        ([Status.UNKNOWN, Status.WARNING], Status.WARNING),
        ([Status.WARNING, Status.CRITICAL, Status.OK], Status.CRITICAL),
    ],
)
def test_the_worst_decides(found: list[Status], expected: Status) -> None:
    """Critical is worse than a warning, which is worse than what is not known."""
    assert worst([Finding("a", status, "t") for status in found]) is expected


def test_thresholds_are_limits_that_may_be_reached() -> None:
    """A value at the limit is still fine."""
    statuses = [compare(value, 1, 2) for value in (1, 1.5, 2, 3)]
    assert statuses == [Status.OK, Status.WARNING, Status.WARNING, Status.CRITICAL]
    with pytest.raises(UsageError):
        check_thresholds(2, 1)
