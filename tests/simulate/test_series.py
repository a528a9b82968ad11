"""Series of a made node are those that the real collectors declare."""

import pytest

from ccpipe.cli.config.clustercockpit import FOOTPRINTS
from ccpipe.simulate.series import NodeParts, node_series


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
    """A large node has at least a thousand to choose from."""
    assert len(node_series(NodeParts(), limit)) == limit


def test_cards_are_only_where_there_are_any() -> None:
    """A node without accelerators has no metric of them."""
    kinds = {dict(each.tags)["type"] for each in node_series(NodeParts(), 10_000)}
    assert "accelerator" not in kinds
    assert {"node", "hwthread", "socket", "memoryDomain"} <= kinds
