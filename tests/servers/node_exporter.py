"""A real node_exporter for the tests."""

from pathlib import Path

from tests.conftest import free_port, program
from tests.servers.web import WebServer


class NodeExporter(WebServer):
    """Debian's prometheus-node-exporter on loopback."""

    health = "/metrics"

    def __init__(self, directory: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.url, self.log = f"http://{self.address}", directory / "node_exporter.log"
        self.command = [
            str(program("prometheus-node-exporter", "prometheus-node-exporter")),
            f"--web.listen-address={self.address}",
        ]
