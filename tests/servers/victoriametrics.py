"""A real victoria-metrics for the tests, and what it keeps of a message."""

import json
from pathlib import Path

from ccpipe.message import Message
from tests.conftest import free_port, program
from tests.servers.web import WebServer

Sample = tuple[str, frozenset[tuple[str, str]], float, int]
"""Name, labels, value and milliseconds, as the store keeps them."""


class VictoriaMetrics(WebServer):
    """A real victoria-metrics on loopback."""

    health = "/health"

    def __init__(self, directory: Path, *flags: str, executable: Path | None = None) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = directory.with_suffix(".log")
        self.command = [
            str(executable or program("victoria-metrics", "victoria-metrics")),
            f"-storageDataPath={directory}",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-influxSkipSingleField",
            "-retentionPeriod=100y",
            "-memory.allowedBytes=64MB",
            *flags,
        ]

    def samples(self, match: str = '{__name__!=""}') -> set[Sample]:
        self.get("/internal/force_flush")
        found = set()
        for line in self.get("/api/v1/export", {"match[]": match}).splitlines():
            series = json.loads(line)
            labels = series["metric"]
            name = labels.pop("__name__")
            for value, stamp in zip(series["values"], series["timestamps"], strict=True):
                found.add((name, frozenset(labels.items()), value, stamp))
        return found


def sample(message: Message, name: str = "") -> Sample:
    assert message.time is not None
    return (
        name or message.name,
        frozenset(message.tags.items()),
        float(message.value),
        message.time // 10**6,
    )
