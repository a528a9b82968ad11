"""A real Prometheus for the tests."""

import json
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.conftest import free_port, program

CONFIGURATION = """
global: {scrape_interval: 200ms}
"""
LATE = """
storage: {tsdb: {out_of_order_time_window: 1h}}
"""
SCRAPE = """
scrape_configs:
  - job_name: ccpipe
    honor_labels: true
    static_configs: [{targets: ["%s"]}]
"""


class Prometheus:
    """A real prometheus on loopback that takes remote write."""

    def __init__(self, folder: Path, *, late: bool = False, scrape: str = "") -> None:
        self.flags = ["--web.enable-remote-write-receiver"]
        self.program = program("prometheus", "prometheus")
        self.folder = folder
        self.url = f"http://127.0.0.1:{free_port()}"
        folder.mkdir()
        text = CONFIGURATION + late * LATE + (SCRAPE % scrape if scrape else "")
        (folder / "prometheus.yml").write_text(text)

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [
            str(self.program),
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            *self.flags,
        ]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/-/ready", timeout=5).close()  # noqa: S310
            except OSError:
                assert self.process.poll() is None, "prometheus ended; see its log"
                assert time.monotonic() < deadline, "prometheus does not answer"
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """End it and wait until it is gone."""
        self.process.terminate()
        self.process.wait(60)

    def query(self, text: str, at: float) -> list[tuple[dict[str, str], Any]]:
        """Return labels and value or values of what a query finds."""
        query = urllib.parse.urlencode({"query": text, "time": at})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=30) as answer:  # noqa: S310
            found = json.load(answer)["data"]["result"]
        return [(one["metric"], one.get("values") or one.get("value")) for one in found]
