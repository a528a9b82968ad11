"""``docs/operations/reliability.md`` has every fault, in a run in which nothing was lost."""

import re

from tests.chaos.contrast import CONTRAST
from tests.chaos.faults import FAULTS
from tests.paths import ROOT

PAGE = (ROOT / "docs/operations/reliability.md").read_text(encoding="utf-8")


def test_page_has_every_fault_and_no_loss() -> None:
    """`make chaos` writes the page."""
    rows = re.findall(r"^\| ([^|]+) \|((?: [0-9 ]+ \|){6})$", PAGE, re.MULTILINE)
    numbers = {
        name: [int(cell.replace(" ", "")) for cell in cells.split("|")[:-1]]
        for name, cells in rows[: len(FAULTS)]
    }
    assert [name for name, _ in rows] == [*FAULTS, *CONTRAST]
    for name, (published, stored, _, dead, dropped, lost) in numbers.items():
        assert published > 0, name
        assert lost == published - stored - dead - dropped == 0, name
