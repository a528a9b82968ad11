"""The site of the pages: ``make docs``."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT


def build(builder: str, folder: Path) -> Path:
    out = folder / builder
    words = f"-b {builder} --fail-on-warning --keep-going --quiet -c docs -d {folder / 'doctrees'}"
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words.split(), ".", out],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return out


def test_every_page_can_be_read_and_reached(tmp_path: Path) -> None:
    """No link is broken, no heading skipped, no page without a place in ``docs/index.md``."""
    build("dummy", tmp_path)


@pytest.mark.long
def test_the_site_stands_alone(tmp_path: Path) -> None:
    """It loads nothing from elsewhere and names no folder of the machine that built it."""
    out = build("html", tmp_path)
    assert "docs/index.html" in (out / "index.html").read_text()
    pages = list(out.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert str(ROOT) not in text, page
        assert str(tmp_path) not in text, page
        loaded = re.findall(r'<(?:script|img|iframe)\b[^>]*\bsrc="([^"]+)"', text)
        loaded += re.findall(r'<link\b[^>]*\bhref="([^"]+)"', text)
        assert loaded or page == out / "index.html", page
        assert not [url for url in loaded if url.startswith(("http:", "https:", "//"))], page
