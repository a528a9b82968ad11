"""The tables ``METRICS``, the pages written from them, errors told once, and rates."""

import importlib
import logging
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe import registry
from ccpipe.errors import ConfigError
from ccpipe.message import NODE_TYPES
from ccpipe.node.sampling import metrics
from ccpipe.node.sampling.metrics import Metric
from ccpipe.node.sampling.readings import SoftErrors, rates
from tests.node.conftest import Root, checked
from tests.paths import ROOT

FOLDER = ROOT / "docs/collectors"
PAGES = {path.stem: path for path in FOLDER.rglob("*.md")}
COLLECTORS = {
    entry.name: entry.module
    for entry in metadata.entry_points(group="ccpipe.collectors")
    if entry.module.startswith("ccpipe.")
}
EVERYTHING: dict[str, dict[str, object]] = {
    "cpu": {"hwthreads": ["*"]},
    "memory": {"domains": True},
    "network": {"exclude": []},
    "topprocs": {"num_procs": 20},
    "temperature": {"limits": True},
}
TREES = {  # in which a collector finds everything, where the one captured at first is not it
    "amd_gpu": "amd",
    "clock": "clock",
    "infiniband": "infiniband",
    "lustre": "lustre",
    "lustre_jobstats": "lustre-jobstats",
    "memory": "captured-sys",
    "nfs": "nfs",
    "numa": "captured-sys",
    "pressure": "pressure",
    "processes": "processes",
    "rapl": "rapl",
    "schedstat": "schedstat",
    "self": "self",
    "slurm_cgroup": "cgroup-v2",
    "temperature": "hwmon",
    "topprocs": "topprocs",
}
NO_FILES = {
    "beegfs_meta", "beegfs_storage", "command", "gpfs", "ipmi", "likwid", "nvidia", "perf",
    "portable", "smartmon",
}  # fmt: skip
"""What these read is in no tree: programs, libraries, the kernel's counters; see their tests."""


def test_the_pages_are_as_the_collectors_would_write_them(tmp_path: Path) -> None:
    """One for each collector and an index, written by the command that the index names."""
    index = (FOLDER / "README.md").read_text()
    command = re.search(r"`python (scripts/\S+) docs/collectors`", index)
    assert command
    subprocess.run([sys.executable, ROOT / command[1], tmp_path], check=True)
    written = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.md")}
    assert written == {path.relative_to(FOLDER): path.read_text() for path in PAGES.values()}
    assert PAGES.keys() == {"README", *COLLECTORS}


@pytest.mark.parametrize("name", sorted(COLLECTORS))
def test_a_page_lists_every_metric(name: str) -> None:
    """Metric, unit, type of value, node types, meaning and source, in the order of the table."""
    page = PAGES[name].read_text()
    rows = re.findall(
        r"^\| `(\S+)` \| (.*?) \| (int|float|str) \| (.+) \| (.+) \| `(.+)` \|$", page, re.MULTILINE
    )
    assert [(found, unit) for found, unit, *_ in rows] == [
        (row.name, row.unit) for row in _table(name)
    ]


@pytest.mark.parametrize("name", sorted(COLLECTORS.keys() - NO_FILES))
def test_the_sources_that_a_page_names_are_there(name: str, root: Root) -> None:
    """Of the files that it names for a metric, at least one stands in the collector's own tree."""
    root.show(f"{TREES.get(name, 'captured')}/first")
    page = PAGES[name].read_text()
    named = re.findall(r"`([^`]+)` \|$", page.partition("## Metrics")[2], re.MULTILINE)
    sources = {source for source in named if "/" in source}  # the others are system calls
    assert sources
    for source in sources:
        paths = [word.strip("/,") for word in source.split() if word.startswith("/")]
        patterns = [path.replace("…", "**") for path in paths]
        assert any(next(root.path.glob(pattern), None) for pattern in patterns), source


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


def test_tables_are_in_order() -> None:
    """Each metric stands once, with a meaning, a type of value and known node types."""
    for name in COLLECTORS:
        table = _table(name)
        assert len({row.name for row in table}) == len(table), name
        for row in table:
            assert row.meaning, row
            assert row.kind in (int, float, str), row
            assert NODE_TYPES.issuperset(row.types), row


def test_no_two_collectors_send_the_same_name() -> None:
    others = COLLECTORS.keys() - {"portable", "likwid"}  # which stand in for others
    names = [row.name for collector in others for row in _table(collector)]
    assert len(set(names)) == len(names)


def test_units_are_those_of_the_tables() -> None:
    units = metrics.units()
    assert (units["mem_used"], units["cpu_power"], units["clock"]) == ("kB", "W", "MHz")
    assert "cpu_load" not in units


def test_parts_are_averaged_by_the_unit() -> None:
    """Shares, temperatures and ratios are averaged, bytes and watts summed."""
    averaged = {row.name for row in metrics.declared() if row.is_averaged}
    assert {"cpu_user", "nv_util", "temperature", "nv_sm_clock", "ipc"} <= averaged
    assert not averaged & {"mem_used", "cpu_power", "net_bytes_in_bw", "nv_compute_processes"}
    assert not Metric("m", "parsec", float, "").is_averaged
    assert not Metric("m", "", int, "").is_averaged


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


def test_each_text_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Two of them with the same errors tell them both: each belongs to one collector."""
    one, other = SoftErrors(), SoftErrors()
    for errors in (one, one, other):
        errors.note("a")
        errors.note("b")
    assert [record.message for record in caplog.records] == ["a", "b", "a", "b"]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_text_counts_as_many_errors_as_it_stands_for() -> None:
    errors = SoftErrors()
    errors.note("a", times=3)
    errors.note("a")
    assert errors.count == 4


def test_an_unexpected_error_comes_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("no luck")
    except ValueError as error:
        SoftErrors().note("a", error)
    assert "test_metrics.py" in caplog.text


def test_memory_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Texts that are never the same stop being told, rather than being remembered without end."""
    errors = SoftErrors()
    for number in range(5000):
        errors.note(str(number))
    assert len(caplog.records) == 1000


@given(
    st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)), max_size=5),
    st.floats(0.001, 1e6),
)
def test_counters_grow_by_their_difference_over_the_time(
    pairs: list[tuple[int, int]], elapsed: float
) -> None:
    before, now = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if any(new < old for old, new in pairs):
        assert rates(before, now, elapsed) == []
    else:
        assert rates(before, now, elapsed) == [(new - old) / elapsed for old, new in pairs]


@pytest.mark.parametrize(
    ("before", "elapsed"), [(None, 1.0), ([1], 0.0), ([1], -1.0), ([1, 2], 1.0)]
)
def test_no_rate_is_made_up(before: list[int] | None, elapsed: float) -> None:
    """Neither for a new device, nor without time, nor where its counters are others now."""
    assert rates(before, [3], elapsed) == []
