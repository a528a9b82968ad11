"""``docs/operations/limits.md`` names constants and tests that exist, with their values."""

import importlib
import re

from ccpipe.config import Recipe
from tests.paths import ROOT

PAGE = (ROOT / "docs/operations/limits.md").read_text(encoding="utf-8")
LIMITS, PARSERS = PAGE.split("## Parsers of external input")
CONSTANTS = re.findall(
    r"^\| [^|]+ \| ([^|]+) \| `([\w.]+):(\w+)` \| [^|]+ \| `[^`]+` \|$", PAGE, re.MULTILINE
)
TESTS = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "bytes": 1, "": 1}


def test_a_limit_is_what_the_page_says() -> None:
    """Its constant has this value."""
    for limit, module, name in CONSTANTS:
        found = re.fullmatch(r"([0-9 ]+?) ?([A-Za-z]*)", limit.strip())
        assert found, limit
        value = int(found[1].replace(" ", "")) * UNITS[found[2]]
        assert getattr(importlib.import_module(module), name) == value, (module, name)


def test_a_limit_is_held_by_a_test() -> None:
    """Which stands where the page says."""
    for path, name in TESTS:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), (path, name)


def test_every_row_was_read() -> None:
    """No limit without a test, no row that the patterns above miss; options exist."""
    rows = [line for line in LIMITS.splitlines() if line.startswith("| ") and "`" in line]
    options = re.findall(r"^\| [^|]+ \| `([a-z.]+)` \|", PAGE, re.MULTILINE)
    held = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", LIMITS)
    assert len(rows) == len(held) == len(CONSTANTS) + len(options)
    for option in options:
        value: object = Recipe(source={}, sink={})
        for step in option.split("."):
            value = getattr(value, step)


def test_every_fuzzer_is_on_the_page() -> None:
    """And no other."""
    fuzzers = {path.name for path in (ROOT / "fuzz").glob("*.py")}
    assert set(re.findall(r"\| `([a-z_]+\.py)` \|", PARSERS)) == fuzzers
