"""Command lines in the pages are those that the command line accepts."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccpipe.cli.app import app
from tests.paths import ROOT

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *ROOT.glob("bridges/*.md")]
FENCE = re.compile(r"^ *```(?P<language>\S*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
SHELL = {"", "bash", "console", "sh"}
SCREEN = "ccpipe is up:"
"""How the output of ``ccpipe up`` begins, which pages show."""


def command_lines(page: str) -> Iterator[list[str]]:
    """Yield the arguments of each ``ccpipe`` in the blocks of shell commands of a page."""
    for block in FENCE.finditer(page):
        if block["language"] in SHELL:
            for line in block["text"].replace("\\\n", " ").splitlines():
                if re.search(r"(^|[|;&=/\s])ccpipe\s", line) and not line.startswith(SCREEN):
                    yield from calls(line)


def calls(line: str) -> Iterator[list[str]]:
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = "#"
    segment: list[str] = []
    for word in [*words, ";"]:
        if not set(word) <= set("|;&<>()"):
            segment.append(word)
            continue
        while segment and (segment[0] in ("$", "sudo") or re.match(r"[A-Z_]+=", segment[0])):
            del segment[0]
        if segment and Path(segment[0]).name == "ccpipe":
            yield segment[1:]
        segment = []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_command_lines_of_a_page_parse(path: Path) -> None:
    """Commands, options and their values exist, and so do the recipes that are named."""
    for call in command_lines(path.read_text(encoding="utf-8")):
        app.parse_args(call, exit_on_error=False, print_error=False)
        recipes = [word for word in call if re.fullmatch(r"bridges/[\w-]+\.toml", word)]
        assert all((ROOT / recipe).exists() for recipe in recipes), call


def test_command_lines_are_found() -> None:
    """Also after a pipe, behind variables, over two lines; comments and outputs are left alone."""
    page = """
```sh
CCPIPE_X=1 ccpipe tail --name 'cpu_*' > cpu.csv   # ccpipe no
sinfo | ccpipe nodelist compress && .venv/bin/ccpipe up \\
  --for 3s
```

```
ccpipe is up: cluster local
ccpipe-fritz  180211
```

```toml
ccpipe = 1
```
"""
    assert list(command_lines(page)) == [
        ["tail", "--name", "cpu_*"],
        ["nodelist", "compress"],
        ["up", "--for", "3s"],
    ]
    assert sum(len(list(command_lines(path.read_text()))) for path in PAGES) > 200
