"""A real victoria-metrics for the tests, and what it keeps of a message."""

import json
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from ccpipe.message import Message
from tests.certificates import Certificates
from tests.conftest import free_port, program

Sample = tuple[str, frozenset[tuple[str, str]], float, int]
"""Name, labels, value and milliseconds, as the store keeps them."""


class Store:
    """A real victoria-metrics on loopback."""

    def __init__(self, folder: Path, *flags: str, tls: Certificates | None = None) -> None:
        self.program = program("victoria-metrics", "victoria-metrics")
        self.folder, self.flags = folder, flags
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.tls = None
        if tls:
            self.url = self.url.replace("http", "https", 1)
            self.flags += ("-tls", f"-tlsCertFile={tls.cert}", f"-tlsKeyFile={tls.key}")
            self.tls = ssl.create_default_context(cafile=tls.ca)

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [
            str(self.program),
            f"-storageDataPath={self.folder}",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-influxSkipSingleField",
            "-retentionPeriod=100y",
            "-memory.allowedBytes=64MB",
            *self.flags,
        ]
        with (self.folder.parent / "store.log").open("ab") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file)
        deadline = time.monotonic() + 30
        while True:
            try:
                self.get("/health")
            except urllib.error.HTTPError:
                return  # it answers: that we must say who we are
            except OSError:
                assert self.process.poll() is None, "the store ended; see store.log"
                assert time.monotonic() < deadline, "the store does not answer"
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """End it and wait until it is gone."""
        self.process.terminate()
        self.process.wait()

    def get(self, path: str, **query: str) -> bytes:
        """Ask it something."""
        with urllib.request.urlopen(  # noqa: S310 - our own address
            f"{self.url}{path}?{urllib.parse.urlencode(query)}", context=self.tls
        ) as answer:
            body: bytes = answer.read()
            return body

    def samples(self, match: str = '{__name__!=""}') -> set[Sample]:
        """Return everything that it keeps of what matches."""
        self.get("/internal/force_flush")
        found = set()
        for line in self.get("/api/v1/export", **{"match[]": match}).splitlines():
            series = json.loads(line)
            labels = series["metric"]
            name = labels.pop("__name__")
            for value, stamp in zip(series["values"], series["timestamps"], strict=True):
                found.add((name, frozenset(labels.items()), value, stamp))
        return found


def sample(message: Message, name: str = "") -> Sample:
    """Say what the store must keep of a message."""
    assert message.time is not None
    return (
        name or message.name,
        frozenset(message.tags.items()),
        float(message.value),
        message.time // 10**6,
    )
