"""A real InfluxDB 1 for the tests."""

import json
from pathlib import Path
from typing import Any

from tests.conftest import free_port, program
from tests.servers.web import WebServer

CONFIGURATION = """
reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
dir = "{directory}/meta"
[data]
dir = "{directory}/data"
wal-dir = "{directory}/wal"
[http]
bind-address = "127.0.0.1:{port}"
[monitor]
store-enabled = false
"""


class InfluxDB(WebServer):
    """A real influxd on loopback with a database ``metrics``."""

    health = "/ping"

    def __init__(self, directory: Path) -> None:
        port, configuration = free_port(), directory / "influxdb.conf"
        self.url = f"http://127.0.0.1:{port}"
        self.log = directory / "log"
        self.command = [str(program("influxd", "influxdb")), "-config", str(configuration)]
        directory.mkdir()
        configuration.write_text(
            CONFIGURATION.format(directory=directory, port=port, rpc=free_port())
        )

    def query(self, text: str, **more: str) -> list[dict[str, Any]]:
        query = {"db": "metrics", "q": text, "epoch": "ns"} | more
        answer = self.get("/query", query, b"")
        found = json.loads(answer)["results"][0].get("series", [])
        return [
            dict(zip(series["columns"], row, strict=True), **series.get("tags", {}))
            for series in found
            for row in series["values"]
        ]

    def points(self, name: str) -> list[dict[str, Any]]:
        """Return the points of a measurement by time, without what they do not have."""
        rows = self.query(f'SELECT * FROM "{name}" WHERE time >= 0')  # noqa: S608 - our own name
        return [{k: v for k, v in row.items() if v is not None} for row in rows]
