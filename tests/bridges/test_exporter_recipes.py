"""The recipes of exporters make ClusterCockpit's metrics of their pages.

To write the expected lines again: ``python -m tests.bridges.test_exporter_recipes``.
"""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ccpipe.config import Interval, Site
from ccpipe.formats.exposition import KnownSeries, PageDecoder
from ccpipe.formats.lineprotocol import Lines, encode
from ccpipe.node.sampling.collector import declared
from ccpipe.pipeline import Translator, run
from ccpipe.sources.prometheus_scrape import PrometheusScrapeSource
from tests.bridges.test_recipes import BRIDGES, parts
from tests.conftest import eventually
from tests.paths import ROOT
from tests.servers.node_exporter import NodeExporter
from tests.sources.http_client import Gate

PAGES = ROOT / "tests/data/exporters"
EXPORTERS = ("dcgm", "lustre", "redfish", "slurm")
TIME = 1_740_027_960
OF_SLURM = {"cpus_allocated", "cpus_total", "gpus_allocated", "mem_allocated"}


def translators(exporter: str) -> Sequence[Translator[Any, Any]]:
    return parts(BRIDGES / f"{exporter}-exporter.toml", cluster="fritz")[1]


def lines(exporter: str) -> list[str]:
    """Return what a recipe makes of the second of two pages."""
    rules = translators(exporter)
    tags = {"cluster": "fritz", "hostname": "f0101", "type": "node"}
    decoder = PageDecoder(KnownSeries(), tags)
    for number in (1, 2):
        page = (PAGES / f"{exporter}.{number}.prom").read_bytes()
        found: Any = decoder.decode(page, (TIME + 15 * number) * 10**9).lines
        for rule in rules:
            found = rule.feed(found)
    assert isinstance(found, Lines)
    return sorted(encode(found).decode().splitlines())


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_recipe_makes_metrics_of_page(exporter: str) -> None:
    """As stored."""
    assert lines(exporter) == (PAGES / f"{exporter}.lp").read_text().splitlines()


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_metrics_of_recipe_are_those_of_collectors(exporter: str) -> None:
    """Name and type are declared by a collector, except what only Slurm knows."""
    known = {(row.name, kind) for row in declared() for kind in row.types}
    for line in lines(exporter):
        found = re.match(r"(\w+),.*\btype=(\w+)", line)
        assert found, line
        assert found[1] in OF_SLURM or (found[1], found[2]) in known, line


def most_used(written: Sequence[Any], threads: int) -> float:
    """Return the highest `cpu_used` possible, in percent, between the last two pages of `written`.

    A page has the time when its scrape began, and Linux' counters were read within its duration,
    each of seven states to a hundredth of a second.
    """
    before, last = sorted(m.time for m in written if m.name == "mem_total")[-2:]
    durations: dict[int, float] = {
        m.time: m.value for m in written if m.name == "scrape_duration_seconds"
    }
    seconds: float = (last - before) / 1e9
    return 100 * threads * (seconds + durations[last] + 7 * 0.01) / seconds


async def test_recipe_makes_metrics_of_node_exporter(tmp_path: Path) -> None:
    """Of Debian's: as many hardware threads and as much memory as Linux reports."""
    with NodeExporter(tmp_path) as exporter:
        site, interval = Site(cluster="fritz"), Interval(1)
        source = PrometheusScrapeSource(
            site=site, targets=[exporter.address], interval=interval, timeout=interval
        )
        store, stop = Gate(), asyncio.Event()
        rules = translators("node")
        pipe = asyncio.create_task(run(source, store, translators=rules, stop=stop))
        names: set[str] = set()
        wanted = {"cpu_user", "cpu_used", "num_cpus", "mem_used", "mem_total", "cpu_load", "up"}

        def has_all() -> bool:
            names.update(message.name for message in store.written)
            return wanted <= names

        await eventually(has_all)
        stop.set()
        await asyncio.wait_for(pipe, 30)
    of_node = {
        m.name: m for m in store.written if m.tags["type"] == "node" and "stype" not in m.tags
    }
    assert not [name for name in names if name.startswith(("node_", "go_", "process_"))]
    threads = {m.tags["type-id"] for m in store.written if m.tags["type"] == "hwthread"}
    assert of_node["num_cpus"].value == len(threads) > 0
    meminfo = Path("/proc/meminfo").read_text()
    total = re.search(r"MemTotal: +(\d+) kB", meminfo)
    assert total
    assert of_node["mem_total"].value == int(total[1])
    assert 0 < of_node["mem_used"].value < of_node["mem_total"].value
    assert 0 <= of_node["cpu_used"].value <= most_used(store.written, len(threads))
    known = {(row.name, kind) for row in declared() for kind in row.types}
    about = {"up", "scrape_duration_seconds", "scrape_samples_scraped"}
    assert not {(m.name, m.tags["type"]) for m in store.written if m.name not in about} - known


if __name__ == "__main__":
    for each in EXPORTERS:
        (PAGES / f"{each}.lp").write_text("".join(f"{line}\n" for line in lines(each)))
