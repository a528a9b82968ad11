"""Telling the runs of a requeued job apart."""

import random

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.slurm_profile import NodeStep
from ccpipe.formats.slurm_profile.runs import NodeStepSpan, count_runs


def span(step: str, node: str, start: float, end: float, index: int | None = 0) -> NodeStepSpan:
    """Make a node-step."""
    return NodeStepSpan(NodeStep(step=step, node=node, node_index=index), start, end)


def test_each_run_has_one_batch_step() -> None:
    """Steps belong to the run whose batch step had begun."""
    spans = [
        span("0", "c1", 160, 300),
        span("batch", "c3", 0, 30),
        span("0", "c3", 1, 30),
        span("batch", "c1", 159, 300),
        span("1", "c1", 200, 300),
    ]
    assert count_runs(spans) == [1, 0, 0, 1, 1]


def test_nodes_of_one_step_are_one_run() -> None:
    """Their clocks may differ a little, and a node's share of the work be short."""
    spans = [
        span("0", "c1", 100, 101, 0),
        span("0", "c2", 95, 95, 1),
        span("0", "c3", 109, 200, 2),
        span("7", "c1", 900, 950, 0),
    ]
    assert count_runs(spans) == [0, 0, 0, 0]


def test_without_a_batch_step_the_same_index_begins_a_run() -> None:
    """A step has each index once, even where the second run came at once."""
    spans = [
        span("0", "c1", 100, 150, 0),
        span("0", "c2", 100, 150, 1),
        span("0", "c3", 140, 250, 0),
        span("0", "c4", 141, 250, 1),
    ]
    assert count_runs(spans) == [0, 0, 1, 1]


def test_without_indices_a_late_start_begins_a_run() -> None:
    """Long after the other node had ended."""
    spans = [span("0", "c1", 100, 150, None), span("0", "c2", 300, 400, None)]
    assert count_runs(spans) == [0, 1]


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.randoms())
def test_any_order_of_files_is_the_same(
    runs: int, nodes: int, steps: int, dice: random.Random
) -> None:
    """What comes out does not depend on how the files are listed."""
    expected: dict[NodeStepSpan, int] = {}
    for run in range(runs):
        begin = run * 10_000.0
        expected[span("batch", f"n{run}0", begin, begin + 5000)] = run
        for step in range(steps):
            for node in range(nodes):
                start = begin + 100 * step + node
                expected[span(str(step), f"n{run}{node}", start, start + 50, node)] = run
    spans = list(expected)
    dice.shuffle(spans)
    assert count_runs(spans) == [expected[one] for one in spans]
