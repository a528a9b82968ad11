"""When a node is silent: after three of its own intervals."""

import contextlib
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.live.node import MIN_SILENT_SECONDS, LiveNode, read_node_states


def sent(times: Iterable[float]) -> tuple[LiveNode, list[float]]:
    """Return a node that sent at these times, and the seconds at which it was overdue."""
    node, overdue = LiveNode(("c", "n1")), []
    arrivals = sorted(times)
    now = arrivals[0]
    for arrival in arrivals:
        while now < arrival:
            if node.is_overdue(now) and node.seen:
                overdue.append(now)
            now += 1
        node.arrive(arrival)
    return node, overdue


def silent_after(node: LiveNode) -> int:
    """Return after how many seconds without metrics the node is overdue."""
    return next(n for n in range(10_000) if node.is_overdue(node.seen + n))


@pytest.mark.parametrize(
    ("interval", "seconds"), [(1, MIN_SILENT_SECONDS), (2, MIN_SILENT_SECONDS), (10, 30), (90, 270)]
)
def test_node_is_silent_after_three_of_its_intervals(interval: float, seconds: float) -> None:
    """Never before, although payloads jitter by a tenth; but not before some seconds."""
    draw = random.Random(1)
    times = [5000 + interval * (number + draw.uniform(-0.1, 0.1)) for number in range(50)]
    node, overdue = sent(times)
    assert overdue == []
    assert seconds <= silent_after(node) <= 1.2 * seconds + 1


def test_node_of_several_programs_has_longest_of_their_gaps() -> None:
    """Metrics and Sonar's at an interval of 90 s each, a few seconds apart."""
    node, overdue = sent(5000 + 90 * number + late for number in range(8) for late in (0, 5, 5.3))
    assert overdue == []
    assert silent_after(node) > 3 * 80


def test_node_that_was_down_keeps_its_interval() -> None:
    """An hour without metrics is a failure, no interval."""
    up = [5000 + 10 * number for number in range(20)]
    node, overdue = sent(up + [8790 + 10 * number for number in range(3)])
    assert overdue[0] == 5190 + 31
    assert silent_after(node) == 31


def test_node_adopts_changed_interval() -> None:
    """From 90 s to 2 s after eight payloads, and back after two."""
    slow = [5000 + 90 * number for number in range(8)]
    fast = [slow[-1] + 2 * number for number in range(1, 10)]
    assert silent_after(sent(slow + fast)[0]) == MIN_SILENT_SECONDS + 1
    again = [fast[-1] + 90 * number for number in range(1, 3)]
    assert silent_after(sent(slow + fast + again)[0]) == 271


def test_new_node_is_not_silent_before_its_interval_is_known() -> None:
    """Of a node with a long interval a few payloads have arrived, close together."""
    assert silent_after(sent([5000])[0]) > 270
    assert silent_after(sent([5000, 5005, 5010])[0]) > 270


def test_interval_is_bounded() -> None:
    """A node that sends once an hour is silent meanwhile."""
    node, _ = sent(5000 + 3600 * number for number in range(10))
    assert silent_after(node) == 901


def test_clock_set_back_makes_no_interval() -> None:
    """Nor is the node silent."""
    node, _ = sent([5000, 5010, 5020, 5030, 5040])
    node.arrive(4000)
    assert node.interval == 10
    assert not node.is_overdue(4001)


def test_node_states_are_read_from_event() -> None:
    """In lower case; a node without a name is left out."""
    nodes = '[{"hostname": "n1", "states": ["DOWN", "drain"]}, {"hostname": ""}]'
    text = f'{{"cluster": "c", "nodes": {nodes}}}'
    assert list(read_node_states(text, "")) == [(("c", "n1"), ("down", "drain"))]
    assert list(read_node_states('{"cluster": "", "nodes": [{"hostname": "n1"}]}', "x")) == [
        (("x", "n1"), ())
    ]


@given(st.text(max_size=100))
def test_node_states_accept_any_text(text: str) -> None:
    """A text that is not a nodestate raises DataError."""
    with contextlib.suppress(DataError):
        list(read_node_states(text, "c"))
