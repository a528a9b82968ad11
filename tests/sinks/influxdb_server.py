"""A real InfluxDB 1 for the tests."""

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.conftest import free_port, program

CONFIGURATION = """
reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
dir = "{folder}/meta"
[data]
dir = "{folder}/data"
wal-dir = "{folder}/wal"
[http]
bind-address = "127.0.0.1:{port}"
auth-enabled = {auth}
[monitor]
store-enabled = false
"""


class InfluxDB:
    """A real influxd on loopback with a database ``metrics``."""

    def __init__(self, folder: Path, *, auth: bool = False) -> None:
        self.program = program("influxd", "influxdb")
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        text = CONFIGURATION.format(
            folder=folder, port=self.port, rpc=free_port(), auth=str(auth).lower()
        )
        folder.mkdir()
        (folder / "influxdb.conf").write_text(text)

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            command = [str(self.program), "-config", str(self.folder / "influxdb.conf")]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/ping", timeout=5).close()  # noqa: S310
            except OSError:
                assert self.process.poll() is None, "influxd ended; see its log"
                assert time.monotonic() < deadline, "influxd does not answer"
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """End it and wait until it is gone."""
        self.process.terminate()
        self.process.wait(60)

    def query(self, text: str, **more: str) -> list[dict[str, Any]]:
        """Return the rows of a query, as dictionaries."""
        query = urllib.parse.urlencode({"db": "metrics", "q": text, "epoch": "ns", **more})
        request = urllib.request.Request(f"{self.url}/query?{query}", b"")  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            found = json.load(answer)["results"][0].get("series", [])
        return [
            dict(zip(series["columns"], row, strict=True), **series.get("tags", {}))
            for series in found
            for row in series["values"]
        ]

    def points(self, name: str) -> list[dict[str, Any]]:
        """Return the points of a measurement by time, without what they do not have."""
        rows = self.query(f'SELECT * FROM "{name}" WHERE time >= 0')  # noqa: S608 - our own name
        return [{k: v for k, v in row.items() if v is not None} for row in rows]
