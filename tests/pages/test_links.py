"""Links in the pages lead somewhere."""

import re
from pathlib import Path

from tests.paths import ROOT

PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "bridges/**/*.md", "benchmarks/**/*.md")
    for page in ROOT.glob(pattern)
)
TEXTS = {"", ".conf", ".jsonl", ".md", ".py", ".pyx", ".service", ".sh", ".toml", ".yaml", ".yml"}
"""Suffixes of files that name pages."""
LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_linked_files_exist() -> None:
    """Also the heading, if the link has one."""
    targets = [
        (page, target)
        for page in PAGES
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not target.startswith(("http://", "https://", "mailto:"))
    ]
    for page, target in targets:
        path, _, heading = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), (page, target)
        assert not heading or heading in anchors(found), (page, target)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def test_indexes_list_every_page() -> None:
    """``docs/README.md`` and the indexes of the directories that it links to list all pages."""
    docs = ROOT / "docs"
    indexes = [docs / "README.md", docs / "collectors/README.md", docs / "stores/README.md"]
    linked = {
        (index.parent / target).resolve()
        for index in indexes
        for target in LINK.findall(index.read_text(encoding="utf-8"))
    }
    assert {page for page in docs.rglob("*.md") if page not in linked} == {docs / "README.md"}


def test_pages_named_in_code_exist() -> None:
    """In messages, docstrings, comments of recipes and units, and scripts."""
    directories = ("ccpipe", "bridges", "benchmarks", "scripts", "tests", "fuzz", ".ci")
    files = [path for directory in directories for path in (ROOT / directory).rglob("*")]
    named = {
        (name, path)
        for path in [*files, *ROOT.iterdir()]
        if path.is_file() and path.suffix in TEXTS and "shipped" not in path.parts
        for name in re.findall(r"(?<![\w/.-])docs/[\w/.-]*\w", path.read_text(errors="replace"))
    }
    assert len(named) > 50
    missing = {(name, path) for name, path in named if not (ROOT / name).exists()}
    assert {name for name, _ in missing} == {"docs/README.html"}, missing  # of the site


def test_files_named_in_pages_exist() -> None:
    """Tests, modules, recipes and scripts named without a link."""
    named = {
        (name, page)
        for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "tests/limits.md"]
        for name in re.findall(
            r"`((?:tests|ccpipe|bridges|scripts|benchmarks)/[\w./-]+\w)(?=[`:])",
            page.read_text(encoding="utf-8"),
        )
    }
    assert len(named) > 50
    assert not [(name, page) for name, page in named if not (ROOT / name).exists()]


def test_directories_of_contributing_exist() -> None:
    """With the files that its tables suggest to copy."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    rooms = {
        room for row in rows for room in re.findall(r"`(ccpipe/[\w/.]+|bridges/[\w/.]+)`", row)
    }
    assert len(rooms) > 10
    assert not [room for room in rooms if not (ROOT / room).exists()]
    directories = set(re.findall(r"`(ccpipe/[\w/]+/)<", "\n".join(rows)))
    assert not [directory for directory in directories if not (ROOT / directory).is_dir()]
