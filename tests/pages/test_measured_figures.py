"""Figures that pages repeat are those of the pages that measurements write."""

import re

import pytest

from tests.paths import ROOT

MEASURED = ("docs/operations/scale.md", "docs/operations/reliability.md", "benchmarks/results.md")
DERIVED = {
    "docs/operations/sizing.md": {"16"},  # minutes for a backlog
    "docs/guide/from-telegraf.md": set[str](),
}
"""Pages that repeat figures, and those of them that are computed or rounded."""


def numbers(text: str) -> set[str]:
    prose = re.sub(
        r"\]\([^)]*\)|^\d+\. |```.*?```|`[^`]*`", "", text, flags=re.MULTILINE | re.DOTALL
    )
    return {
        found.replace(" ", "").replace("\u00a0", "")
        for found in re.findall(r"\d{1,3}(?: \d{3})+|\d+(?:\.\d+)?", prose)
    }


@pytest.mark.parametrize("page", DERIVED)
def test_repeated_figures_are_measured(page: str) -> None:
    """A new measurement that changes one of them fails here until the page is updated."""
    sources = (ROOT / source for source in MEASURED)
    measured = {number for source in sources for number in numbers(source.read_text("utf-8"))}
    found = numbers((ROOT / page).read_text(encoding="utf-8"))
    assert len(found) > 5
    assert found - measured - DERIVED[page] == set()
