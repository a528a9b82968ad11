"""Pages on migration from other programs: names exist, or do not, as the pages claim."""

import importlib
import re
from importlib import metadata
from typing import Any

import msgspec

from ccpipe.config import Recipe
from ccpipe.registry import entry_points
from tests.paths import ROOT

COLLECTOR = (ROOT / "docs/clustercockpit/from-cc-metric-collector.md").read_text(encoding="utf-8")
SONAR = (ROOT / "docs/sonar/from-sonar.md").read_text(encoding="utf-8")


def section(page: str, heading: str) -> str:
    return page.split(f"\n## {heading}\n")[1].split("\n## ", maxsplit=1)[0]


def column(text: str, number: int) -> set[str]:
    """Return the quoted names in one column of the tables of a text, but for the heads."""
    rows = [line.split("|") for line in text.splitlines() if line.strip().startswith("|")]
    return {name for row in rows for name in re.findall(r"`([\w.*<>]+)`", row[number])}


def metrics() -> set[str]:
    modules = {entry.module for entry in metadata.entry_points(group="ccpipe.collectors")}
    tables = [getattr(importlib.import_module(name), "METRICS", ()) for name in modules]
    return {row.name for table in tables for row in table}


def test_replacement_collectors_exist() -> None:
    """With the options that are named."""
    assert column(section(COLLECTOR, "Collectors"), 2) <= set(entry_points("collectors"))


def test_new_names_exist_and_old_ones_do_not() -> None:
    """No old name is a metric here."""
    text = section(COLLECTOR, "Names")
    assert column(text, 2) - {"stype-id"} <= metrics()
    assert not {name for name in column(text, 1) if "<" not in name} & metrics() - {"package"}


def test_unavailable_metrics_do_not_exist() -> None:
    """A metric that is added is removed from the list."""
    listed = {
        name.rstrip("*") for name in re.findall(r"`(\w+\*?)`", section(COLLECTOR, "Not available"))
    }
    known = metrics()
    assert not {name for name in listed if name in known}


def test_replacement_keys_for_sonar_exist() -> None:
    """Each key that replaces one of Sonar's."""
    for key in column(section(SONAR, "Steps"), 2):
        kind: Any = Recipe
        for step in key.split("."):
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
            assert step in fields, key
            kind = fields[step]
