"""``docs/operations/limits.md`` has the values of constants, ``tests/limits.md`` their tests."""

import importlib
import re

from ccpipe.config import Recipe
from tests.paths import ROOT

PAGE = (ROOT / "docs/operations/limits.md").read_text(encoding="utf-8")
TABLE = (ROOT / "tests/limits.md").read_text(encoding="utf-8")
LIMITS, PARSERS = TABLE.split("## Parsers of external input")
VALUES = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE))
CONSTANTS = re.findall(r"^\| ([^|]+) \| `([\w.]+):(\w+)` \| `[^`]+` \|$", LIMITS, re.MULTILINE)
TESTS = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TABLE)
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "bytes": 1, "": 1}


def test_limit_of_page_equals_constant() -> None:
    """Its constant has this value."""
    for subject, module, name in CONSTANTS:
        found = re.fullmatch(r"([0-9 ]+?) ?([A-Za-z]*)", VALUES[subject])
        assert found, subject
        value = int(found[1].replace(" ", "")) * UNITS[found[2]]
        assert getattr(importlib.import_module(module), name) == value, (module, name)


def test_limit_has_existing_test() -> None:
    """In the file that the table names."""
    for path, name in TESTS:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), (path, name)


def test_page_has_no_unreadable_row() -> None:
    """No limit without a test, no row that the patterns above miss; options exist."""
    rows = re.findall(r"^\| (.+?) \| .*`.* \|$", LIMITS, re.MULTILINE)
    assert rows == [row for row in VALUES if row not in {"what", "---"}]
    options = re.findall(r"^\| [^|]+ \| `([a-z._]+)` \|", PAGE, re.MULTILINE)
    tested = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", LIMITS)
    assert len(rows) == len(tested) == len(CONSTANTS) + len(options)
    for option in options:
        value: object = Recipe(source={}, sink={})
        for step in option.split("."):
            value = getattr(value, step)


def test_page_lists_every_fuzzer() -> None:
    """And no other."""
    fuzzers = {path.name for path in (ROOT / "fuzz").glob("*.py")}
    assert set(re.findall(r"\| `([a-z_]+\.py)` \|", PARSERS)) == fuzzers
