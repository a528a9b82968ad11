"""The faults: each is done to real processes and ends in an account of every line."""

import shutil

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


def is_possible(name: str) -> str:
    """Return why a fault cannot be made here; empty if it can."""
    made = FAULTS[name]
    if made in (stores.full_disk, spools.spool_on_full_disk) and not stores.can_mount():
        return "mounting a tmpfs needs root"
    if made is nodes.wall_clock_jumps and nodes.fake_clock() is None:
        return "libfaketime is not installed: apt-get install libfaketime"
    if made is databases.kill_victoriametrics and shutil.which("victoria-metrics") is None:
        return "VictoriaMetrics is not installed: apt-get install victoria-metrics"
    if made is databases.kill_clickhouse and shutil.which("clickhouse-server") is None:
        return "ClickHouse is not installed: apt-get install clickhouse-server"
    if made in (stores.kill_all_postgres, databases.refused_rows) and not stores.has_postgres():
        return "PostgreSQL is not installed: apt-get install postgresql"
    if made is stores.kill_all_delta and not minio_program().is_file():
        return "MinIO is not compiled: python3 scripts/minio_server.py install"
    return ""
