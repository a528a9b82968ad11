"""The site of the pages: ``make docs``."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT


@pytest.mark.long
def test_site_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """Nor names a directory of the build machine.

    No link is broken, no heading skipped, and every page is in ``docs/README.md``.
    """
    out = tmp_path / "html"
    words = f"-b html --fail-on-warning --keep-going --quiet -c docs -d {tmp_path / 'doctrees'}"
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words.split(), ".", out],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "docs/README.html" in (out / "index.html").read_text()
    contents = (out / "docs/README.html").read_text(encoding="utf-8")
    assert 'href="collectors/storage/disk.html"' in contents
    assert 'href="../CONTRIBUTING.html"' in contents
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
