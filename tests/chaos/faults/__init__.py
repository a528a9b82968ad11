"""The faults: each is done to real processes and ends in an account of every line."""

import shutil

from scripts import java_servers, otlp_receivers
from tests.chaos.faults import (
    clusters,
    databases,
    deliveries,
    network,
    nodes,
    processes,
    spools,
    stores,
)
from tests.chaos.faults.flow import FAULTS, LINES, RATE, Fault
from tests.servers.s3 import minio_program

__all__ = [
    "FAULTS",
    "LINES",
    "RATE",
    "Fault",
    "clusters",
    "deliveries",
    "is_possible",
    "network",
    "processes",
]


PROGRAMS = {
    databases.kill_clickhouse: "clickhouse-server",
    databases.kill_victoriametrics: "victoria-metrics",
}
"""What faults of some stores need, which are packages of Debian by the same name."""


JAVA = "QuestDB is not installed: python3 scripts/java_servers.py install questdb"
MINIO = "MinIO is not compiled: python3 scripts/minio_server.py install"
PROMETHEUS = "Prometheus 3 is not compiled: python3 scripts/otlp_receivers.py install"


def is_possible(name: str) -> str:
    """Return why a fault cannot be made here; empty if it can."""
    made = FAULTS[name]
    program = PROGRAMS.get(made)
    if program is not None and shutil.which(program) is None:
        return f"{program} is not installed: apt-get install {program}"
    reasons = {
        "mounting a tmpfs needs root": made in (stores.full_disk, spools.spool_on_full_disk)
        and not stores.can_mount(),
        "libfaketime is not installed: apt-get install libfaketime": made is nodes.wall_clock_jumps
        and nodes.fake_clock() is None,
        "PostgreSQL is not installed: apt-get install postgresql": made
        in (stores.kill_all_postgres, databases.refused_rows)
        and not stores.has_postgres(),
        JAVA: made is databases.kill_questdb and not java_servers.is_installed("questdb"),
        MINIO: made is stores.kill_all_delta and not minio_program().is_file(),
        PROMETHEUS: made is databases.kill_all_prometheus
        and otlp_receivers.find("prometheus-3.16") is None,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")
