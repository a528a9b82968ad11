"""Servers with an HTTP interface: start, queries, stop."""

import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Self

from tests.servers import stopped_on_failure


class WebServer:
    """A program that answers at `url`."""

    command: list[str]
    log: Path
    url: str
    health: str
    """The path that answers when it is ready."""
    start_seconds = 60
    """How long it may take to start on a busy machine."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        with stopped_on_failure(self.stop):
            self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + self.start_seconds
        while True:
            try:
                self.get(self.health)
            except OSError as error:
                if getattr(error, "code", None) == HTTPStatus.UNAUTHORIZED:
                    return  # it wants to know who we are
                assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, f"{self.command[0]} does not answer"
                time.sleep(0.02)
            else:
                return

    def get(
        self, path: str, query: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> bytes:
        """Return what it answers to a query; with a body, it is posted."""
        address = self.url + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        request = urllib.request.Request(address, body)  # noqa: S310 - our own
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            content: bytes = answer.read()
            return content

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)
