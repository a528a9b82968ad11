"""Thresholds of the shipped alert rules, checked against live values."""

from typing import Any

import yaml

from ccpipe.formats.lineprotocol import decode
from ccpipe.live.nodes import LiveNodes
from ccpipe.live.thresholds import LAG, NODE_THRESHOLDS, Threshold, exceeded
from tests.paths import ROOT

RULES = ROOT / "bridges" / "prometheus" / "rules"


def rules(name: str) -> dict[str, dict[str, Any]]:
    content = yaml.safe_load((RULES / name).read_text())
    return {rule["alert"]: rule for group in content["groups"] for rule in group["rules"]}


def matches(row: Threshold, rule: dict[str, Any]) -> bool:
    return (row.hold, row.severity) == (rule["for"], rule["labels"]["severity"])


def test_thresholds_match_shipped_rules() -> None:
    """Every rule that compares a metric of nodes with a number has a threshold."""
    found = rules("nodes.yml")
    compared = {name for name, rule in found.items() if " > " in rule["expr"]}
    assert compared == {row.alert for row in NODE_THRESHOLDS}
    for row in NODE_THRESHOLDS:
        assert found[row.alert]["expr"] == row.expression
        assert matches(row, found[row.alert])
    lag = rules("pipe.yml")[LAG.alert]
    assert lag["expr"] == f"{LAG.metric} > {LAG.limit:g}".replace("1e+05", "100000")
    assert matches(LAG, lag)


def test_exceeded_thresholds_name_nodes_with_largest_value_first() -> None:
    """In the metrics' own units; a silent node exceeds nothing."""
    lines = [
        f"{name},cluster=c,hostname={host},type=node{unit} value={value} 1740027951\n"
        for host, memory, waiting in (("n1", 96, 11), ("n2", 99, 5), ("n3", 10, 1))
        for name, value, unit in (
            ("mem_used", memory, ",unit=MB"),
            ("mem_total", 100_000, ",unit=kB"),
            ("psi_memory_full", waiting, ",unit=percent"),
        )
    ]
    nodes = LiveNodes()
    nodes.feed(decode("".join(lines).encode()), 1000.0)
    nodes.tick(1000.0)
    memory, waiting = exceeded(nodes, nodes.in_order())
    assert (memory["alert"], memory["count"]) == ("NodeMemoryFull", 2)
    assert memory["places"] == [("c", "n2", 0.99), ("c", "n1", 0.96)]
    assert waiting["places"] == [("c", "n1", 11)]
    nodes.tick(5000.0)
    assert list(exceeded(nodes, nodes.in_order())) == []
