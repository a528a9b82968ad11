"""Links in the pages lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.paths import ROOT

PAGES = [page for folder in ("", "docs", "docs/collectors", "docs/stores", "bridges", "benchmarks")
         for page in sorted((ROOT / folder).glob("*.md"))]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_links_to_is_there(page: Path) -> None:
    """Also the heading within it, where the link names one."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "mailto:")):
            path, _, heading = target.partition("#")
            found = (page.parent / path).resolve() if path else page
            assert found.exists(), target
            assert not heading or heading in anchors(found), target


def anchors(page: Path) -> set[str]:
    """Return what the headings of a page can be linked by."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def test_every_room_of_the_tables_in_contributing_is_there() -> None:
    """Whoever adds something finds the folder and the file to copy from."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    rooms = {
        room for row in rows for room in re.findall(r"`(ccpipe/[\w/.]+|bridges/[\w/.]+)`", row)
    }
    assert len(rooms) > 10
    assert not [room for room in rooms if not (ROOT / room).exists()]
    folders = set(re.findall(r"`(ccpipe/[\w/]+/)<", "\n".join(rows)))
    assert not [folder for folder in folders if not (ROOT / folder).is_dir()]
