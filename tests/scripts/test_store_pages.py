"""``docs/stores/``: options and index are what the parts and the pages say."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ccpipe.cli.plugins import CONTEXT
from ccpipe.registry import find, options_of
from tests.paths import ROOT

FOLDER = ROOT / "docs/stores"
SCRIPT = ROOT / "scripts/store_pages.py"


def written(folder: Path) -> dict[str, str]:
    """Return the texts of a folder's pages."""
    return {path.name: path.read_text() for path in folder.glob("*.md")}


def test_the_pages_are_as_the_script_would_write_them(tmp_path: Path) -> None:
    """By the command that the index names."""
    assert "`python scripts/store_pages.py docs/stores`" in (FOLDER / "README.md").read_text()
    shutil.copytree(FOLDER, tmp_path / "stores")
    subprocess.run([sys.executable, SCRIPT, tmp_path / "stores"], check=True)
    assert written(tmp_path / "stores") == written(FOLDER)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.md")), ids=lambda path: path.stem)
def test_every_option_is_on_the_page(path: Path) -> None:
    """With a meaning, in the order of the part's own signature."""
    blocks = re.findall(
        r"<!-- options: (\w+)\.(\w+) -->\n(.*?)<!-- end -->", path.read_text(), re.DOTALL
    )
    assert blocks or path.name == "README.md"
    for group, name, table in blocks:
        rows = re.findall(r"^\| `(\w+)` \| .+ \| .* \| (.+\.) \|$", table, re.MULTILINE)
        schema = options_of(find(group, name, "test"), CONTEXT)
        assert [option for option, _ in rows] == list(schema.__struct_fields__)


def test_a_page_without_its_facts_is_refused(tmp_path: Path) -> None:
    """What a store does with texts, times and the rest is not left unsaid."""
    (tmp_path / "foo.md").write_text("# Foo\n\n| numbers | doubles |\n")
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode
    assert "foo.md: the table 'What is stored' has no row integers, booleans" in done.stderr
