"""The tables ``METRICS``, the pages generated from them, errors and rates."""

import importlib
import logging
import re
from importlib import metadata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe import registry
from ccpipe.errors import ConfigError
from ccpipe.message import NODE_TYPES
from ccpipe.node.sampling.collector import (
    Metric,
    SoftErrors,
    declared,
    rates,
    units,
)
from tests.node.conftest import Root, checked
from tests.paths import ROOT

DIRECTORY = ROOT / "docs/collectors"
PAGES = {path.stem: path for path in DIRECTORY.rglob("*.md")}
COLLECTORS = {
    entry.name: entry.module
    for entry in metadata.entry_points(group="ccpipe.collectors")
    if entry.module.startswith("ccpipe.")
}
EVERYTHING: dict[str, dict[str, object]] = {
    "cpu": {"hwthreads": ["*"]},
    "cpu_limits": {"hwthreads": True},
    "memory": {"domains": True},
    "network": {"exclude": []},
    "topprocs": {"num_procs": 20},
    "temperature": {"limits": True},
}
TREES = {  # with all files of a collector, if its first captured tree lacks some
    "amd_gpu": "amd",
    "clock": "clock",
    "cpu_limits": "cpu-limits",
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
"""Collectors without a captured tree: programs, libraries, kernel counters; see their tests."""


def test_page_exists_for_every_collector() -> None:
    """And there is an index."""
    assert PAGES.keys() == {"README", *COLLECTORS}


@pytest.mark.parametrize("name", sorted(COLLECTORS))
def test_page_lists_every_metric(name: str) -> None:
    """Metric, unit, type of value, node types and meaning, in the order of the table.

    A family is one row, and its names are listed below the table.
    """
    page = PAGES[name].read_text()
    rows = re.findall(
        r"^\| `(\S+)` \| (.*?) \| (?:int|float|str) \| .+ \| .+ \|$", page, re.MULTILINE
    )
    assert rows == list(dict.fromkeys((row.family or row.name, row.unit) for row in _table(name)))
    families = dict(re.findall(r"^`(\S+)`: (.+)\.$", page, re.MULTILINE))
    for row in _table(name):
        assert not row.family or f"`{row.name}`" in families[row.family].split(", ")


def test_page_names_source_of_all_metrics_once() -> None:
    """Above the table, if it is the same."""
    text = PAGES["memory"].read_text()
    assert text.count("/proc/meminfo and, of domains,") == 1
    assert "| source |" in PAGES["disk"].read_text()


@pytest.mark.parametrize("name", sorted(COLLECTORS.keys() - NO_FILES))
def test_page_names_existing_source_of_each_metric(name: str, root: Root) -> None:
    """At least one of the files named for a metric is in the collector's test tree."""
    root.show(f"{TREES.get(name, 'captured')}/first")
    page = PAGES[name].read_text()
    table = page.partition("## Metrics")[2]
    named = re.findall(r"`([^`]+)` \|$|^Source: `(.+)`\.$", table, re.MULTILINE)
    sources = {source for found in named for source in found if "/" in source}  # not system calls
    assert sources
    for source in sources:
        paths = [word.strip("/,") for word in source.split() if word.startswith("/")]
        patterns = [path.replace("…", "**") for path in paths]
        assert any(next(root.path.glob(pattern), None) for pattern in patterns), source


@pytest.mark.parametrize("name", sorted(COLLECTORS.keys() - NO_FILES))
def test_collector_sends_exactly_its_declared_metrics(name: str, root: Root) -> None:
    """Names, types of values and node types; with all options every row occurs."""
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
    in_table = {(row.name, row.kind, of, row.stype) for row in _table(name) for of in row.types}
    assert sent == in_table


def test_tables_are_valid() -> None:
    """No duplicates; each metric has a meaning, a type of value and known node types."""
    for name in COLLECTORS:
        table = _table(name)
        assert len({row.name for row in table}) == len(table), name
        for row in table:
            assert row.meaning, row
            assert row.kind in (int, float, str), row
            assert NODE_TYPES.issuperset(row.types), row


def test_collectors_have_distinct_metric_names() -> None:
    others = COLLECTORS.keys() - {"portable", "likwid"}  # which replace others
    names = [row.name for collector in others for row in _table(collector)]
    assert len(set(names)) == len(names)


def test_units_match_tables() -> None:
    of_metrics = units()
    assert tuple(of_metrics[name] for name in ("mem_used", "cpu_power", "clock")) == (
        "kB",
        "W",
        "MHz",
    )
    assert "cpu_load" not in of_metrics


def test_metric_is_averaged_by_unit() -> None:
    """Shares, temperatures and ratios are averaged, bytes and watts summed."""
    averaged = {row.name for row in declared() if row.is_averaged}
    assert {"cpu_user", "nv_util", "temperature", "nv_sm_clock", "ipc"} <= averaged
    assert not averaged & {"mem_used", "cpu_power", "net_bytes_in_bw", "nv_compute_processes"}
    assert not Metric("m", "parsec", float, "").is_averaged
    assert not Metric("m", "", int, "").is_averaged


def test_invalid_option_is_named() -> None:
    """Options are checked against annotations, as for sources and sinks."""
    disk = registry.find("collectors", "disk", "")
    with pytest.raises(ConfigError, match=r"unknown key 'excluded'; did you mean 'exclude'"):
        registry.construct(disk, {"excluded": []}, where="t", path="disk", context={})
    with pytest.raises(ConfigError, match=r"disk\.exclude: expected a list, got an integer"):
        registry.construct(disk, {"exclude": 5}, where="t", path="disk", context={})


def _table(name: str) -> tuple[Metric, ...]:
    table: tuple[Metric, ...] = importlib.import_module(COLLECTORS[name]).METRICS
    return table


def test_soft_errors_log_each_text_once(caplog: pytest.LogCaptureFixture) -> None:
    """Per collector: two collectors with the same error both log it."""
    first, other = SoftErrors(), SoftErrors()
    for errors in (first, first, other):
        errors.note("a")
        errors.note("b")
    assert [record.message for record in caplog.records] == ["a", "b", "a", "b"]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_soft_errors_count_text_several_times() -> None:
    errors = SoftErrors()
    errors.note("a", times=3)
    errors.note("a")
    assert errors.count == 4


def test_soft_errors_log_traceback_of_unexpected_error(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("no luck")
    except ValueError as error:
        SoftErrors().note("a", error)
    assert "test_collector.py" in caplog.text


def test_soft_errors_remember_limited_number_of_texts(caplog: pytest.LogCaptureFixture) -> None:
    """Beyond it new texts are no longer logged."""
    errors = SoftErrors()
    for number in range(5000):
        errors.note(str(number))
    assert len(caplog.records) == 1000


@given(
    st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)), max_size=5),
    st.floats(0.001, 1e6),
)
def test_rates_are_differences_per_second(pairs: list[tuple[int, int]], elapsed: float) -> None:
    before, now = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if any(new < old for old, new in pairs):
        assert rates(before, now, elapsed) == []
    else:
        assert rates(before, now, elapsed) == [(new - old) / elapsed for old, new in pairs]


@pytest.mark.parametrize(
    ("before", "elapsed"), [(None, 1.0), ([1], 0.0), ([1], -1.0), ([1, 2], 1.0)]
)
def test_rates_are_empty_without_comparable_reading(
    before: list[int] | None, elapsed: float
) -> None:
    """For a new device, without elapsed time, or when counters changed in number or were reset."""
    assert rates(before, [3], elapsed) == []
