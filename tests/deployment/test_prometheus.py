"""bridges/prometheus: promtool accepts it, the rules' own tests pass, and the metrics exist."""

import re
import subprocess

import pytest
import yaml

from ccpipe.node.sampling.collector import declared
from ccpipe.telemetry import Telemetry
from tests.conftest import program
from tests.deployment.compose import BRIDGES
from tests.paths import ROOT

DIRECTORY = ROOT / "bridges/prometheus"
RULES = sorted((DIRECTORY / "rules").glob("*.yml"))
ALERTS = [
    rule
    for path in RULES
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]
SCRAPED = {"up"}


def promtool(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(program("promtool", "prometheus")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


class Connected:
    """A connection to a broker, which ``ccpipe_connected`` is about."""

    is_connected = True


def names_of_telemetry() -> set[str]:
    telemetry = Telemetry()
    telemetry.connections.append(Connected())
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in telemetry.registry.collect()
    }


def test_prometheus_accepts_configuration() -> None:
    """Keys, expressions and templates are known to Prometheus."""
    done = promtool("check", "config", DIRECTORY / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_pass_rule_tests_of_prometheus() -> None:
    done = promtool("test", "rules", DIRECTORY / "tests.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_rule_test() -> None:
    """In which it fires, and one in which it does not."""
    tests = yaml.safe_load((DIRECTORY / "tests.yml").read_text())["tests"]
    fired = {
        case["alertname"]
        for test in tests
        for case in test["alert_rule_test"]
        if "exp_alerts" in case
    }
    assert fired == {alert["alert"] for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_metrics_of_alerts_exist(alert: dict[str, str]) -> None:
    """Each is one of /metrics, or one that a collector declares."""
    expression = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\([a-z, ]*\)(?= \()", "", alert["expr"])
    names = set(re.findall(r"[a-z]+(?:_[a-z]+)+|\bup\b", expression)) - {"cluster", "hostname"}
    assert names
    assert names <= names_of_telemetry() | {row.name for row in declared()} | SCRAPED


def test_every_bridge_of_compose_is_scraped() -> None:
    """A bridge that is added to compose.yaml is monitored as well."""
    scraped = yaml.safe_load((DIRECTORY / "prometheus.yml").read_text())["scrape_configs"]
    assert sorted(BRIDGES) == scraped[0]["dns_sd_configs"][0]["names"]


def test_page_has_every_alert() -> None:
    """With what to do about it, and no alert that does not exist."""
    page = (ROOT / "docs/operations/health.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[A-Z]\w+`.*?) \| .+ \|$", page, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(rule["alert"] for rule in ALERTS)
