"""Real receivers of OpenTelemetry for the tests: Prometheus 3 and a VictoriaMetrics of 2025."""

import os
import shutil
from pathlib import Path

import pytest

from scripts.otlp_receivers import find
from tests.servers.prometheus import Prometheus
from tests.servers.victoriametrics import VictoriaMetrics

PROMOTED = """
otlp: {promote_resource_attributes: [host.name, hpc.cluster.name]}
"""
"""What docs/stores/otlp.md says to configure."""


def compiled(name: str) -> Path:
    """Return the path of a program that ``scripts/otlp_receivers.py`` compiles.

    Without Go, the test is skipped by name; in CI, which sets ``CCPIPE_TESTS_STRICT``, it fails.
    """
    path = find(name)
    if path is None:
        reason = f"{name} is not compiled: python3 scripts/otlp_receivers.py install"
        if shutil.which("go") or os.environ.get("CCPIPE_TESTS_STRICT"):
            pytest.fail(reason)
        pytest.skip(f"{reason} (needs Go)")
    return path


def prometheus_3(directory: Path, *, late: bool) -> Prometheus:
    """Return a Prometheus that is configured as the page says, with or without the window."""
    store = Prometheus(directory, late=late, executable=compiled("prometheus-3.16"))
    store.command.append("--web.enable-otlp-receiver")
    with (directory / "prometheus.yml").open("a") as file:
        file.write(PROMOTED)
    return store


def victoriametrics_2025(directory: Path, *flags: str) -> VictoriaMetrics:
    return VictoriaMetrics(directory, *flags, executable=compiled("victoria-metrics-2025"))
