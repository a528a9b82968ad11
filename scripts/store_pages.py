"""Write what is generated in ``docs/stores/``: options from the parts, the index from the pages.

::

    python scripts/store_pages.py docs/stores

A page is prose by hand. Between two marks, of which it may have several pairs, it holds the
options of a part as the registry knows it::

    <!-- options: sinks.victoriametrics -->
    <!-- end -->

Its title and its table *What it holds* become a row of the index, ``README.md``.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ccpipe.cli.plugins import Option, read
from ccpipe.registry import names

INDEX = """\
# Stores

What each store keeps of a message, store by store; the pages say how to run it, with which
recipe, and what is lost when it is killed. This table and the options on the pages are written by
`python scripts/store_pages.py docs/stores`, and a test checks that they are current.

A value that a store cannot hold becomes a dead letter with the reason; the recipes in
[bridges/](../../bridges/README.md) leave it out before.

"""

FACTS = ("numbers", "integers", "booleans", "texts", "events", "units", "times", "twice")
"""The rows of a page's table, and the columns of the index."""

_OPTIONS = re.compile(r"(<!-- options: (\w+)\.(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_FACT = re.compile(r"^\| ([a-z]+) \| (.+) \|$", re.MULTILINE)


def page(text: str) -> str:
    """Return a page with the options as the parts have them today."""
    return _OPTIONS.sub(lambda found: found[1] + _table(found[2], found[3]) + found[4], text)


def index(pages: dict[str, str]) -> str:
    """Return the index of some pages, by the names of their files."""
    head = f"| store | {' | '.join(FACTS)} |\n|{'---|' * (1 + len(FACTS))}\n"
    return INDEX + head + "".join(_row(name, text) for name, text in sorted(pages.items()))


def _row(name: str, text: str) -> str:
    facts = dict(_FACT.findall(text))
    if missing := [fact for fact in FACTS if fact not in facts]:
        raise LookupError(f"{name}: the table 'What it holds' has no row {', '.join(missing)}")
    title = text.partition("\n")[0].removeprefix("# ")
    return f"| [{title}]({name}) | {' | '.join(facts[fact] for fact in FACTS)} |\n"


def _table(group: str, name: str) -> str:
    """Return the options of a part as a table."""
    part = read(group, names(group)[name])
    if part.problem:
        raise LookupError(f"{group}.{name}: {part.problem}")
    meanings = dict(reversed([*_meanings(part.help)]))  # the nearest class says it first
    rows = [
        f"| `{option.name}` | {_escape(option.type)} | {_default(option)} "
        f"| {_escape(meanings[option.name])} |\n"
        for option in part.options
    ]
    return "\n| option | type | default | meaning |\n|---|---|---|---|\n" + "".join(rows) + "\n"


def _default(option: Option) -> str:
    if option.required:
        return "required"
    empty = option.default in (None, "", [], {})
    return "" if empty else f"`{msgspec.json.encode(option.default).decode()}`"


def _meanings(doc: str) -> Iterator[tuple[str, str]]:
    """Read the options' meanings off the sections *Parameters* of docstrings."""
    for section in re.findall(r"^Parameters\n-{3,}\n(.*?)(?=\n\n\S|\Z)", doc, _SECTION):
        for block in re.split(r"\n(?=\S)", section):
            heads, _, text = block.partition("\n")
            for head in heads.split(", "):
                yield head, " ".join(text.split())


_SECTION = re.DOTALL | re.MULTILINE


def _escape(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def pages(folder: Path) -> dict[str, str]:
    """Return each page of a folder as it should be, by the name of its file."""
    found = {
        path.name: page(path.read_text(encoding="utf-8"))
        for path in folder.glob("*.md")
        if path.name != "README.md"
    }
    return {**found, "README.md": index(found)}


if __name__ == "__main__":
    for file, content in pages(Path(sys.argv[1])).items():
        (Path(sys.argv[1]) / file).write_text(content, encoding="utf-8")
