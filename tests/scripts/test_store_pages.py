"""``docs/stores/``: options and index agree with the parts and the pages."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ccpipe.cli.plugins import CONTEXT
from ccpipe.registry import entry_points, find, options_of
from tests.paths import ROOT

DIRECTORY = ROOT / "docs/stores"
SCRIPT = ROOT / "scripts/store_pages.py"


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.md")), ids=lambda path: path.stem)
def test_page_has_every_option(path: Path) -> None:
    """With a meaning, in the order of the part's own signature; or where another page has them."""
    text = path.read_text()
    blocks = re.findall(r"<!-- options: (\w+)\.(\w+) -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert blocks or path.name == "README.md" or re.search(r"\]\(\w+\.md#options\)", text)
    for group, name, table in blocks:
        rows = re.findall(r"^\| `(\w+)` \| .+ \| .* \| (.+\.) \|$", table, re.MULTILINE)
        schema = options_of(find(group, name, "test"), CONTEXT)
        assert [option for option, _ in rows] == list(schema.__struct_fields__)


def test_page_without_facts_is_rejected(tmp_path: Path) -> None:
    """Such as how the store represents strings and times."""
    (tmp_path / "foo.md").write_text("# Foo\n\n| numbers | doubles |\n")
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode
    assert "foo.md: the table 'What is stored' has no row integers, booleans" in done.stderr


def test_every_store_has_row() -> None:
    """Each sink has its options on one page, and each of several on a page its own facts."""
    text = "".join(path.read_text() for path in DIRECTORY.glob("*.md"))
    shown = re.findall(r"<!-- options: sinks\.(\w+) -->", text)
    assert sorted(shown) == sorted(entry_points("sinks").keys() - {"nats", "null", "stdout"})
    index = (DIRECTORY / "README.md").read_text()
    for path in DIRECTORY.glob("*.md"):
        sinks = re.findall(r"<!-- options: sinks\.(\w+) -->", path.read_text())
        rows = re.findall(rf"^\| \[[^]]+\]\({path.name}\)(?: `(\w+)`)? \|", index, re.MULTILINE)
        assert path.name == "README.md" or len(rows) >= len(sinks)
        assert len(sinks) < 2 or rows == sinks


def test_index_has_row_for_each_column_of_page(tmp_path: Path) -> None:
    """A table of several sinks becomes several rows, and none is left out."""
    facts = (
        "numbers",
        "integers",
        "booleans",
        "strings",
        "events",
        "units",
        "timestamps",
        "duplicates",
    )
    table = "| | `a` | `b` |\n|---|---|---|\n" + "".join(f"| {f} | yes | no |\n" for f in facts)
    page = tmp_path / "foo.md"
    page.write_text(f"# Foo\n\n## What is stored\n\n{table}")
    subprocess.run([sys.executable, SCRIPT, tmp_path], check=True)
    index = (tmp_path / "README.md").read_text()
    assert "| [Foo](foo.md) `a` | yes | yes |" in index
    assert "| [Foo](foo.md) `b` | no | no |" in index
    page.write_text(page.read_text().replace("| duplicates | yes | no |", "| duplicates | yes |"))
    done = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, check=False)
    assert b"has no row duplicates" in done.stderr
