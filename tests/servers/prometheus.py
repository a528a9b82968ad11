"""A real Prometheus for the tests."""

import json
from pathlib import Path
from typing import Any

from tests.conftest import free_port, program
from tests.servers.web import WebServer

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


class Prometheus(WebServer):
    """A real prometheus on loopback that takes remote write."""

    health = "/-/ready"

    def __init__(
        self,
        directory: Path,
        *,
        late: bool = False,
        scrape: str = "",
        executable: Path | None = None,
    ) -> None:
        address = f"127.0.0.1:{free_port()}"
        self.url, self.log = f"http://{address}", directory / "log"
        self.command = [
            str(executable or program("prometheus", "prometheus")),
            f"--config.file={directory}/prometheus.yml",
            f"--storage.tsdb.path={directory}/data",
            f"--web.listen-address={address}",
            "--web.enable-remote-write-receiver",
        ]
        directory.mkdir()
        text = CONFIGURATION + late * LATE + (SCRAPE % scrape if scrape else "")
        (directory / "prometheus.yml").write_text(text)

    def query(self, text: str, at: float) -> list[tuple[dict[str, str], Any]]:
        answer = self.get("/api/v1/query", {"query": text, "time": str(at)})
        found = json.loads(answer)["data"]["result"]
        return [(one["metric"], one.get("values") or one.get("value")) for one in found]
