"""The site of the pages: ``make docs``.

The source directory is the top of the project, so that pages link to recipes, code and pages of
other directories by relative paths, as they do where the repository is browsed.
"""

from pathlib import Path

from sphinx.application import Sphinx

import ccpipe

project = "ccpipe"
copyright = "the authors of ccpipe"  # noqa: A001 - Sphinx's name for it
version = release = ccpipe.__version__

root_doc = "docs/index"
source_suffix = {".md": "markdown"}
extensions = ["myst_parser"]
include_patterns = ["*.md", "benchmarks/*.md", "bridges/*.md", "docs/**.md"]
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

ENTRY = '<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html">\n'


def setup(app: Sphinx) -> None:
    """Lead from the top directory of the site to its first page."""
    app.connect("build-finished", _write_entry)


def _write_entry(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        Path(app.outdir, "index.html").write_text(ENTRY)
