"""Values of a made metric are of its kind, and within what its unit allows."""

import pytest

from ccpipe.node.sampling.metrics import Metric
from ccpipe.simulate.values import RING, rings


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
    """Bytes and packets grow."""
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
    """The same seed gives the same values, another one others."""
    metric = Metric("cpu_load", "", float, "")
    assert (rings(metric, seed) == rings(metric, 1)) is is_same


def test_what_never_changes_is_constant() -> None:
    """A node's memory does not grow."""
    assert len(set(rings(Metric("mem_total", "kB", int, ""), seed=1).busy)) == 1
