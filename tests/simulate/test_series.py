"""Which series a simulated node has, and their values."""

import pytest

from ccpipe.cli.config.clustercockpit import FOOTPRINTS
from ccpipe.node.sampling.collector import Metric
from ccpipe.simulate.series import RING, NodeParts, node_series, rings


def test_every_series_is_that_of_a_collector_and_stands_once() -> None:
    """No metric is made up, and no two lines of a sample are of one series."""
    found = node_series(NodeParts(hwthread=8, accelerator=4), 1000)
    assert len(set(found)) == len(found)
    assert {"cpu_load", "mem_used", "cpu_user", "nv_util"} <= {each.metric.name for each in found}
    for each in found:
        assert dict(each.tags)["type"] in each.metric.types


def test_a_small_limit_has_what_cc_backend_shows_of_a_job() -> None:
    """Its footprint, CPU time, and the power of each socket; with GPUs also theirs."""
    names = [each.metric.name for each in node_series(NodeParts(accelerator=2), 10)]
    assert set(names) > {*FOOTPRINTS, "cpu_user", "cpu_power", "nv_util"}
    assert names.count("cpu_power") == names.count("nv_util") == 2


@pytest.mark.parametrize("limit", [1, 100, 1000])
def test_a_node_has_as_many_series_as_were_asked_for(limit: int) -> None:
    assert len(node_series(NodeParts(), limit)) == limit


def test_cards_are_only_where_there_are_any() -> None:
    """A node without accelerators has no metric of them."""
    kinds = {dict(each.tags)["type"] for each in node_series(NodeParts(), 10_000)}
    assert "accelerator" not in kinds
    assert {"node", "hwthread", "socket", "memoryDomain"} <= kinds


def test_an_integer_is_spelled_as_one() -> None:
    """As on the wire: with an ``i``."""
    found = rings(Metric("procs", "", int, ""), seed=1)
    assert all(value.endswith(b"i") and int(value[:-1]) >= 0 for value in found.busy)


def test_a_busy_node_does_more_than_an_idle_one() -> None:
    """Per cent of a gauge: at most 5 and at least 60."""
    found = rings(Metric("cpu_user", "percent", float, ""), seed=1)
    assert max(map(float, found.idle)) <= 5
    assert 60 <= min(map(float, found.busy)) <= max(map(float, found.busy)) <= 100


def test_a_counter_never_falls_and_does_not_depend_on_jobs() -> None:
    found = rings(Metric("net_bytes_in", "bytes", int, ""), seed=1)
    assert found.idle is found.busy
    counts = [int(value[:-1]) for value in found.busy]
    assert counts == sorted(counts)
    assert len(counts) == RING


def test_a_busy_node_is_not_idle() -> None:
    """Nor are all of its hardware threads loaded while it is."""
    idle = rings(Metric("cpu_idle", "percent", float, ""), seed=1)
    load = rings(Metric("cpu_load", "", float, ""), seed=1, scale=64)
    assert max(map(float, idle.busy)) < min(map(float, idle.idle))
    assert max(map(float, load.idle)) < 2
    assert min(map(float, load.busy)) > 50


@pytest.mark.parametrize(("seed", "is_same"), [(1, True), (2, False)])
def test_the_seed_decides(seed: int, is_same: bool) -> None:
    metric = Metric("cpu_load", "", float, "")
    assert (rings(metric, seed) == rings(metric, 1)) is is_same


def test_what_never_changes_is_constant() -> None:
    assert len(set(rings(Metric("mem_total", "kB", int, ""), seed=1).busy)) == 1
