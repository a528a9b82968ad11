"""``docs/reference/configuration.md`` agrees with the code."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ccpipe.config import Recipe, Site, load
from tests.paths import ROOT

PAGE = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")


def rows() -> list[tuple[str, str, str, str]]:
    """Read the page's tables: key path, type, default and meaning of each key."""
    table, found = "", []
    for line in PAGE.splitlines():
        if heading := re.fullmatch(r"#+ (?:`\[(.+)\]`|.*)", line):
            table = f"{heading[1]}." if heading[1] else ""
        if cells := re.fullmatch(r"\| `(\w+)` \| (.+?) \| (.+?) \| (.+) \|", line):
            found.append((table + cells[1], cells[2], cells[3].strip("`"), cells[4]))
    return found


def test_page_has_every_key() -> None:
    """Each leaf of the Structs has a row with a meaning."""

    def leaves(kind: type[msgspec.Struct], path: str = "") -> Iterator[str]:
        for field in msgspec.structs.fields(kind):
            if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
                yield from leaves(field.type, f"{path}{field.encode_name}.")
            else:
                yield path + field.encode_name

    assert sorted(key for key, *_ in rows()) == sorted(leaves(Recipe))
    assert all(meaning.endswith(".") for *_, meaning in rows())


def test_page_has_defaults_of_code(tmp_path: Path) -> None:
    """A file of all the defaults on the page changes nothing."""
    path = tmp_path / "ccpipe.toml"
    lines = []
    for key, kind, default, _ in rows():
        if default not in ("required", "none", "the machine's"):
            quoted = f'"{default}"' if kind in ("duration", "interval", "size") else default
            lines.append(f"{key} = {quoted}\n")
    path.write_text("".join(lines))
    assert len(lines) >= 20
    given = {"source": {"use": "null"}, "sink": {"use": "null"}}
    assert load(path, Recipe, environ={}, below=given) == load(
        None, Recipe, environ={}, below=given
    )


def test_variables_of_page_are_ignored() -> None:
    """Those listed as not being configuration."""
    variables = re.findall(r"`(CCPIPE_[A-Z]+)`", PAGE)
    assert len(variables) == 3
    assert load(None, Site, environ=dict.fromkeys(variables, "x")) == Site()
