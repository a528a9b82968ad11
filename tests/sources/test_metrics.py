"""The tables ``METRICS`` and the page that is written from them."""

import importlib
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from ccpipe import registry
from ccpipe.errors import ConfigError
from ccpipe.message import NODE_TYPES
from ccpipe.sources import metrics
from ccpipe.sources.metrics import Metric
from tests.sources.conftest import Root, checked

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
COLLECTORS = {
    entry.name: entry.module
    for entry in metadata.entry_points(group="ccpipe.collectors")
    if entry.module.startswith("ccpipe.")
}
EVERYTHING: dict[str, dict[str, object]] = {
    "clock": {"hwthreads": True},
    "cpu": {"hwthreads": True},
    "memory": {"domains": True},
    "network": {"exclude": []},
}
TREES = {  # in which a collector finds everything, where the one captured at first is not it
    "amd_gpu": "amd",
    "clock": "clock",
    "infiniband": "infiniband",
    "lustre": "lustre",
    "memory": "captured-sys",
    "nfs": "nfs",
    "numa": "captured-sys",
    "pressure": "pressure",
    "processes": "processes",
    "rapl": "rapl",
    "slurm_cgroup": "cgroup-v2",
    "temperature": "hwmon",
}
NO_FILES = {"command", "nvidia"}
"""What these read lies in no tree: a command prints what it likes, test_nvidia has the other."""


def test_the_page_is_what_the_tables_say() -> None:
    """docs/metrics.md is written by ``python -m ccpipe.sources.metrics``, not by hand."""
    assert PAGE.read_text() == metrics.page()
    command = [sys.executable, "-m", "ccpipe.sources.metrics"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True)
    assert printed.stdout == metrics.page()


@pytest.mark.parametrize("name", sorted(COLLECTORS.keys() - NO_FILES))
def test_a_collector_sends_exactly_what_its_table_declares(name: str, root: Root) -> None:
    """Names, types of values and node types: nothing more, and with all options nothing less."""
    options = {"root": str(root), **EVERYTHING.get(name, {})}
    tree = TREES.get(name, "captured")
    root.show(f"{tree}/first")
    collector = registry.construct(
        registry.find("collectors", name, ""), options, where="test", path=name, context={}
    )
    messages = list(collector.collect(1))
    root.show(f"{tree}/second")
    messages += collector.collect(2)
    sent = {
        (m.name, type(m.value), m.tags["type"], m.tags.get("stype", ""))
        for m in map(checked, messages)
    }
    declared = {(row.name, row.kind, of, row.stype) for row in _table(name) for of in row.types}
    assert sent == declared


@pytest.mark.parametrize("name", sorted(COLLECTORS))
def test_a_table_is_in_order(name: str) -> None:
    """Each metric stands once, with a meaning, a type of value and known node types."""
    table = _table(name)
    assert len({row.name for row in table}) == len(table)
    for row in table:
        assert row.meaning
        assert row.kind in (int, float)
        assert NODE_TYPES.issuperset(row.types)


def test_no_two_collectors_send_the_same_name() -> None:
    """A name means one thing."""
    names = [row.name for collector in COLLECTORS for row in _table(collector)]
    assert len(set(names)) == len(names)


def test_units_are_those_of_the_tables() -> None:
    """A plain number has none."""
    units = metrics.units()
    assert (units["mem_used"], units["cpu_power"], units["clock"]) == ("kB", "W", "MHz")
    assert "cpu_load" not in units


def test_a_wrong_option_is_named() -> None:
    """A collector's options are checked by their annotations, as those of every part are."""
    disk = registry.find("collectors", "disk", "")
    with pytest.raises(ConfigError, match=r"unknown key 'excluded'; did you mean 'exclude'"):
        registry.construct(disk, {"excluded": []}, where="t", path="disk", context={})
    with pytest.raises(ConfigError, match=r"disk\.exclude: Expected `array`, got `int`"):
        registry.construct(disk, {"exclude": 5}, where="t", path="disk", context={})


def _table(name: str) -> tuple[Metric, ...]:
    table: tuple[Metric, ...] = importlib.import_module(COLLECTORS[name]).METRICS
    return table
