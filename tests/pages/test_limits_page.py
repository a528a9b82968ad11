"""``docs/operations/limits.md`` names constants and tests that exist, with their values."""

import ast
import importlib
import re

import pytest

from ccpipe.config import Recipe
from tests.paths import ROOT

PAGE = (ROOT / "docs/operations/limits.md").read_text(encoding="utf-8")
LIMITS, PARSERS = PAGE.split("## Parsers of external input")
CONSTANTS = re.findall(
    r"^\| [^|]+ \| ([^|]+) \| `([\w.]+):(\w+)` \| [^|]+ \| `[^`]+` \|$", PAGE, re.MULTILINE
)
TESTS = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "bytes": 1, "": 1}


@pytest.mark.parametrize(("limit", "module", "name"), CONSTANTS)
def test_a_limit_is_what_the_page_says(limit: str, module: str, name: str) -> None:
    """Its constant has this value."""
    found = re.fullmatch(r"([0-9 ]+?) ?([A-Za-z]*)", limit.strip())
    assert found, limit
    assert getattr(importlib.import_module(module), name) == int(
        found[1].replace(" ", "")
    ) * UNITS[found[2]]  # fmt: skip


@pytest.mark.parametrize(("path", "name"), TESTS)
def test_a_limit_is_held_by_a_test(path: str, name: str) -> None:
    """Which stands where the page says."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = {
        node.name for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }  # fmt: skip
    assert name in names


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
