"""The latest values of all nodes and their history, and the bounds of both."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import decode
from ccpipe.live import nodes as module
from ccpipe.live.node import FIRST_INTERVAL, SILENT_INTERVALS
from ccpipe.live.nodes import FORGET_SECONDS, SILENT_DAYS, LiveNodes
from ccpipe.node.sampling.collector import Metric


def fed(
    *payloads: str, known: dict[str, Metric] | None = None, max_series: int = 1000
) -> LiveNodes:
    """Return nodes that were fed payloads, a second apart from 1000 on."""
    nodes = LiveNodes(known, max_series=max_series)
    for second, payload in enumerate(payloads):
        nodes.tick(1000.0 + second)
        nodes.feed(decode(payload.encode()), 1000.0 + second)
    nodes.tick(1000.0 + len(payloads))
    return nodes


def line(metric: str, value: float, host: str = "n1", more: str = ",type=node") -> str:
    return f"{metric},cluster=c,hostname={host}{more} value={value} 1740027951\n"


def test_column_has_every_node_in_natural_order() -> None:
    """Numbers in names count by their size; a node without the metric has NaN."""
    nodes = fed(line("load", 1, "n10") + line("load", 2, "n9") + line("other", 3, "n1"))
    assert [node.id for node in nodes.in_order()] == [("c", "n1"), ("c", "n9"), ("c", "n10")]
    column = nodes.column("load")
    assert math.isnan(column[0])
    assert list(column[1:]) == [2, 1]


def test_latest_value_is_kept() -> None:
    """A value is replaced by the next, in any spelling of the series."""
    nodes = fed(line("load", 1), "load,hostname=n1,type=node,cluster=c value=5 1740027952\n")
    assert list(nodes.column("load")) == [5]
    assert nodes.series == 1


def test_parts_are_summed_or_averaged() -> None:
    """Watts of sockets add up, degrees are averaged; the node's own value takes precedence."""
    known = {"temp": Metric("temp", "degC", float, "")}
    sockets = [f",type=socket,type-id={number}" for number in (0, 1)]
    payload = "".join(
        line("power", 100 + 10 * number, more=socket) + line("temp", 40 + 10 * number, more=socket)
        for number, socket in enumerate(sockets)
    )
    nodes = fed(payload, known=known)
    assert list(nodes.column("power")) == [210]
    assert list(nodes.column("temp")) == [45]
    nodes.feed(decode(line("power", 7).encode()), 1004.0)
    nodes.tick(1005.0)
    assert list(nodes.column("power")) == [7]


def test_parts_of_one_level_only_make_up_value_of_node() -> None:
    """Sockets before hardware threads: both are the same power; the threads once those are gone."""
    threads = "".join(
        f"power,cluster=c,hostname=n1,type=hwthread,type-id={n} value=2 1740027951\n"
        for n in range(4)
    )
    sockets = "power,cluster=c,hostname=n1,type=socket,type-id=0 value=9 1740027951\n"
    nodes = fed(threads, threads + sockets)
    assert list(nodes.column("power")) == [9]
    nodes.feed(decode(threads.encode()), 1000 + FORGET_SECONDS)
    nodes.tick(1004 + FORGET_SECONDS)
    nodes.forget()
    nodes.tick(1005 + FORGET_SECONDS)
    assert list(nodes.column("power")) == [8]


def test_events_and_other_fields_are_not_metrics() -> None:
    """Neither texts nor fields of another name become values."""
    nodes = fed(
        'job,cluster=c,hostname=n1,function=x,type=node event="{}" 1740027951\n'
        "cpu,cluster=c,hostname=n1 usage=5 1740027951\n"
        'load,cluster=c,hostname=n1,type=node value="text" 1740027951\n' + line("real", 1)
    )
    assert nodes.metric_counts() == {"real": 1}
    assert nodes.nodes["c", "n1"].lines == 4


def test_history_has_rows_two_seconds_apart() -> None:
    """Rows that a page has already are omitted; a slot added later has NaN before."""
    nodes = fed(line("a", 1), line("a", 2), line("a", 3) + line("b", 9), line("a", 4))
    node = nodes.nodes["c", "n1"]
    times, numbers = nodes.history([node.cells["a"], node.cells["b"]], after=0)
    assert times == [1000, 1002, 1004]
    assert numbers[2] == 2
    assert math.isnan(numbers[3])
    assert list(numbers[4:]) == [4, 9]
    assert nodes.history([node.cells["a"]], after=1002)[0] == [1004]


SILENT_SECONDS = SILENT_INTERVALS * FIRST_INTERVAL


def test_silent_node_has_no_values() -> None:
    """It has values again with its next line."""
    nodes = fed(line("load", 1, "n1") + line("load", 2, "n2"))
    nodes.tick(1000 + SILENT_SECONDS / 2)
    nodes.feed(decode(line("load", 2, "n2").encode()), 1000 + SILENT_SECONDS / 2)
    nodes.tick(1002.0 + SILENT_SECONDS)
    assert [node.is_silent for node in nodes.in_order()] == [True, False]
    assert math.isnan(nodes.column("load")[0])
    assert nodes.column("load")[1] == 2
    nodes.feed(decode(line("load", 5, "n1").encode()), 1002.0 + SILENT_SECONDS)
    nodes.tick(1003.0 + SILENT_SECONDS)
    assert list(nodes.column("load")) == [5, 2]


def test_silent_node_stays_listed_after_its_series_are_forgotten() -> None:
    """With the time of its last metrics; its next metrics make it live again."""
    nodes = fed(line("load", 1, "n1"))
    nodes.tick(1000 + FORGET_SECONDS + 1)
    nodes.forget()
    nodes.tick(1000 + 7200)
    nodes.forget()
    assert nodes.series == 0
    [node] = nodes.silent
    assert (node.id, node.seen) == (("c", "n1"), 1000)
    nodes.feed(decode(line("load", 4, "n1").encode()), 1000.0 + 7200)
    nodes.tick(1001 + 7200)
    assert (nodes.silent, list(nodes.column("load"))) == ([], [4])


def test_dismissed_node_is_listed_again_when_it_sends() -> None:
    """Only a silent node is dismissed; once its series are forgotten, nothing is left of it."""
    nodes = fed(line("load", 1, "n1") + line("load", 1, "n2"))
    assert not nodes.dismiss(("c", "n1"))
    nodes.tick(1001 + SILENT_SECONDS)
    assert nodes.dismiss(("c", "n1"))
    assert not nodes.dismiss(("c", "n1"))
    assert nodes.dismiss(("c", "n2"))
    assert nodes.in_order() == []
    nodes.feed(decode(line("load", 2, "n1").encode()), 1002 + SILENT_SECONDS)
    assert [node.id[1] for node in nodes.in_order()] == ["n1"]
    nodes.tick(1000 + FORGET_SECONDS + 100)
    nodes.forget()
    assert list(nodes.nodes) == [("c", "n1")]


def test_silent_nodes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In number and in time; the ones that were seen last are kept."""
    monkeypatch.setattr(module, "MAX_SILENT", 2)
    nodes = fed(*(line("load", 1, f"n{number}") for number in range(4)))
    nodes.tick(1010 + FORGET_SECONDS)
    nodes.forget()
    assert [node.id[1] for node in nodes.in_order()] == ["n2", "n3"]
    nodes.tick(1010 + SILENT_DAYS * 86400)
    nodes.forget()
    assert nodes.in_order() == []


def test_scheduler_state_lists_node_without_metrics() -> None:
    """Until the scheduler no longer reports it."""
    nodes = fed(line("load", 1, "n1"))
    nodes.report(("c", "n1"), ("mixed",), 1000.0)
    nodes.report(("c", "n2"), ("down", "drain"), 1000.0)
    found = [(node.id[1], node.scheduler and node.scheduler.states) for node in nodes.in_order()]
    assert found == [("n1", ("mixed",)), ("n2", ("down", "drain"))]
    nodes.report(("c", "n1"), ("idle",), 5000.0)
    nodes.tick(5000.0)
    nodes.forget()
    [node] = nodes.in_order()
    assert (node.id[1], node.scheduler and node.scheduler.states) == ("n1", ("idle",))


def test_restored_node_is_silent_until_it_sends() -> None:
    """A node that has sent since is unaffected."""
    nodes = LiveNodes()
    nodes.restore(("c", "n1"), 1000.0, 10.0)
    nodes.restore(("c", "n2"), 1000.0, 10.0)
    nodes.feed(decode(line("load", 1, "n2").encode()), 2000.0)
    nodes.restore(("c", "n2"), 1000.0, 10.0)
    nodes.tick(2000.0)
    assert [(node.id[1], node.seen) for node in nodes.silent] == [("n1", 1000)]


def test_node_that_sends_before_first_tick_is_not_silent() -> None:
    """Lines arrive as soon as the connection is open."""
    nodes = LiveNodes()
    nodes.feed(decode(line("load", 1).encode()), 5000.0)
    nodes.tick(5000.5)
    assert not nodes.in_order()[0].is_silent
    assert list(nodes.column("load")) == [1]


def test_ended_series_are_forgotten() -> None:
    """Their slots are reused, and a dismissed node is removed; histories are not mixed."""
    nodes = fed(line("old", 1, "n1") + line("load", 2, "n2"))
    later = 1010.0 + FORGET_SECONDS
    nodes.tick(later)
    assert nodes.dismiss(("c", "n1"))
    nodes.feed(decode(line("load", 3, "n2").encode()), later)
    nodes.forget()
    assert list(nodes.nodes) == [("c", "n2")]
    nodes.feed(decode((line("new", 4, "n3") + line("load", 6, "n2")).encode()), later)
    nodes.tick(later + 1)
    assert nodes.series == 2
    assert nodes.column("load")[0] == 6
    assert nodes.nodes["c", "n3"].cells["new"] in (1, 2)


def test_parts_are_added_up_if_node_stops_sending_sum() -> None:
    """The node's own value is forgotten, the parts' values are kept."""
    parts = line("power", 100, more=",type=socket,type-id=0")
    nodes = fed(parts + line("power", 300))
    later = 1001.0 + FORGET_SECONDS
    nodes.feed(decode(parts.encode()), later)
    nodes.tick(later)
    nodes.forget()
    nodes.tick(later + 1)
    assert list(nodes.column("power")) == [100]


def test_quantities_are_in_base_units() -> None:
    """By the sender's tag ``unit``, else by the unit that collectors declare."""
    rows = Metric("mem_used", "kB", int, ""), Metric("temp", "degC", float, "")
    nodes = fed(
        line("mem_used", 3, "n1") + line("mem_used", 2, "n2", ",type=node,unit=GBytes")
        + line("mem_used", 5, "n3", ",type=node,unit=bytes") + line("odd", 7, "n1")
        + line("mem_used", 9, "n4", ",type=accelerator,type-id=0,unit=MB"),
        known={row.name: row for row in rows},
    )  # fmt: skip
    found = [nodes.quantity(nodes.nodes["c", f"n{n}"], "mem_used") for n in (1, 2, 3, 4)]
    assert found == [3000, 2e9, 5, 9e6]
    assert nodes.quantity(nodes.nodes["c", "n4"], "mem_used", "accelerator 0") == 9e6
    assert nodes.quantity(nodes.nodes["c", "n1"], "odd") == 7
    assert math.isnan(nodes.quantity(nodes.nodes["c", "n1"], "none"))
    assert math.isnan(nodes.quantity(nodes.nodes["c", "n1"], "mem_used", "accelerator 0"))


def test_dropped_series_show_that_node_is_alive() -> None:
    """They use no memory."""
    nodes = LiveNodes(keeps=lambda name, _: name == "load")
    nodes.feed(decode((line("load", 1, "n1") + line("other", 1, "n2")).encode()), 1000.0)
    nodes.tick(1000.0)
    assert [node.id for node in nodes.in_order()] == [("c", "n1")]
    assert {id_: (node.lines, node.seen) for id_, node in nodes.nodes.items()} == {
        ("c", "n1"): (1, 1000.0), ("c", "n2"): (1, 1000.0),
    }  # fmt: skip
    assert nodes.series == 1


def test_event_about_node_does_not_make_it_live() -> None:
    """A bridge may send it; it counts only for a node without metrics."""
    nodes = LiveNodes()
    event = 'job,cluster=c,hostname={},function=x event="" 1740027951\n'
    nodes.feed(decode(line("load", 1, "n1").encode()), 1000.0)
    nodes.feed(decode((event.format("n1") + event.format("n2")).encode()), 1400.0)
    nodes.tick(1400.0)
    silent = {id_[1]: node.is_silent for id_, node in nodes.nodes.items()}
    assert silent == {"n1": True, "n2": False}


def test_number_of_nodes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up names do not fill the memory; known nodes stay correct."""
    monkeypatch.setattr(module, "MAX_NODES", 1)
    nodes = fed(line("load", 1, "n1") + line("load", 2, "n2"), line("load", 3, "n1"))
    assert list(nodes.nodes) == [("c", "n1")]
    assert list(nodes.column("load")) == [3]


def test_number_of_series_is_bounded() -> None:
    """Job ids in tags cannot fill the memory: further series are counted, once."""
    many = "".join(line("m", 1, f"n{number}") for number in range(50))
    nodes = fed(many, many, line("m", 2, "n" + "x" * 2000), max_series=20)
    assert nodes.series <= 20
    assert nodes.left_out >= 31
    before = nodes.left_out
    nodes.feed(decode(many.encode()), 1010.0)
    assert nodes.left_out == before


def test_history_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many series have a shorter history."""
    monkeypatch.setattr(module, "MAX_HISTORY_BYTES", 4 * 11 * 5)
    nodes = fed("".join(line(f"m{number}", 1) for number in range(10)))
    for second in range(1010, 1100, 2):
        nodes.tick(float(second))
    assert len(nodes.rows) == 5
    assert nodes.rows[-1][0] == 1098


def test_values_beyond_floats_are_infinite() -> None:
    """A double that is too large for 32 bits raises nothing."""
    nodes = fed(line("big", 1e300))
    assert list(nodes.column("big")) == [math.inf]


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_nodes_accept_any_bytes(payloads: list[bytes]) -> None:
    """Counts stay within the bounds and every column has every node."""
    nodes = LiveNodes(max_series=30)
    for second, payload in enumerate(payloads):
        nodes.feed(decode(payload, lenient=True), float(second))
        nodes.tick(float(second))
    assert nodes.series <= 30
    for metric in nodes.metric_counts():
        assert len(nodes.column(metric)) == len(nodes.in_order())
