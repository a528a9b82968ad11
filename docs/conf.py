"""The site of the pages: ``make docs``.

The source directory is the top of the project, so that pages link to recipes, code and pages of
other directories by relative paths, as they do where the repository is browsed.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx

import ccpipe

project = "ccpipe"
copyright = "the authors of ccpipe"  # noqa: A001 - Sphinx's name for it
version = release = ccpipe.__version__

root_doc = "docs/README"
source_suffix = {".md": "markdown"}
extensions = ["myst_parser"]
include_patterns = ["*.md", "benchmarks/*.md", "bridges/*.md", "docs/**.md", "examples/*/README.md"]
exclude_patterns = [".*", "build", "ccpipe", "dist", "tests"]
nitpicky = True
smartquotes = False  # two dashes begin an option
# Pygments knows neither line protocol nor DuckDB's SQL; such blocks are shown in one colour.
suppress_warnings = ["misc.highlighting_failure"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = "ccpipe"
html_copy_source = False
html_show_sphinx = False

HERE = Path(__file__).parent
ENTRY = '<!doctype html><meta http-equiv="refresh" content="0; url=docs/README.html">\n'


def setup(app: Sphinx) -> None:
    """Make the index the contents of the site, and lead to it from the top directory."""
    app.connect("source-read", _add_contents)
    app.connect("build-finished", _write_entry)


def _add_contents(_: Sphinx, name: str, source: list[str]) -> None:
    """Add the pages that each section of the index links to, as a part of the site's contents."""
    if name == root_doc:
        parts = re.split(r"^## (.+)\n", source[0], flags=re.MULTILINE)[1:]
        for title, text in zip(parts[::2], parts[1::2], strict=True):
            source[0] += "".join(_contents(title, re.findall(r"\]\(([\w./-]+)\.md\)", text)))


def _contents(title: str, pages: list[str]) -> Iterator[str]:
    """Yield the pages of a section, then each directory whose index is among them."""
    plain = [page for page in dict.fromkeys(pages) if not _is_directory(page)]
    yield _toctree(title, plain)
    for page in filter(_is_directory, pages):
        directory = Path(page).parent
        found = sorted((HERE / directory).rglob("*.md"))
        names = [path.relative_to(HERE).with_suffix("").as_posix() for path in found]
        yield _toctree(
            directory.name.capitalize(), [page, *(each for each in names if each != page)]
        )


def _is_directory(page: str) -> bool:
    return page.endswith("/README") and not page.startswith("..")


def _toctree(caption: str, pages: list[str]) -> str:
    return "\n".join(
        ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""]
    )


def _write_entry(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        Path(app.outdir, "index.html").write_text(ENTRY)
