"""Every store that can be paused and resumed: a server by SIGSTOP, a directory by its lock."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Bus, Duration, Site
from ccpipe.pipeline import Sink
from ccpipe.registry import build
from ccpipe.telemetry import Telemetry
from tests.conftest import free_port, until_listening
from tests.servers.kafka import Kafka
from tests.servers.mosquitto import Mosquitto
from tests.servers.postgres import Server as Postgres
from tests.servers.s3 import BUCKET, moto

TIMEOUT = Duration(1)
"""Of a write: longer than a loaded machine takes, and over several times in a short test."""

ANSWERING = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

status, body = int(sys.argv[2]), sys.argv[3].encode()

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        is_query = self.command != "POST"
        self.send_response(200 if is_query else status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = answer

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass  # the client has timed out meanwhile

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
"""A server with the same response to every request: stored data are not tested here."""


@dataclass(frozen=True)
class Stalling:
    """A sink, and the functions that stop and resume its store."""

    sink: Sink[Any]
    stall: Callable[[], None]
    wake: Callable[[], None]


Open = Callable[[Path], contextlib.AbstractAsyncContextManager[Stalling]]


def sink_of(name: str, site: Site | None = None, **options: Any) -> Sink[Any]:
    context = {"site": site or Site(cluster="fox", hostname="n1"), "telemetry": Telemetry()}
    table = {"use": name, **options}
    made = build("sinks", table, where="test", path="sink", context=context)
    assert isinstance(made, Sink)
    return made


def stopping(sink: Sink[Any], pid: int | None) -> Stalling:
    """Stop a server with all its processes: its sockets stay open, and the kernel accepts more."""
    assert pid is not None

    def send(number: signal.Signals) -> None:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)

    return Stalling(sink, lambda: send(signal.SIGSTOP), lambda: send(signal.SIGCONT))


@contextlib.contextmanager
def waking(stalling: Stalling) -> Iterator[Stalling]:
    """Resume a store at the end, since a stopped one cannot be shut down."""
    try:
        yield stalling
    finally:
        stalling.wake()


def http(name: str, status: int = 204, body: str = "", **options: Any) -> Open:
    @contextlib.asynccontextmanager
    async def open_(directory: Path) -> AsyncIterator[Stalling]:
        port, log = free_port(), directory / "log"
        command = [sys.executable, "-c", ANSWERING, str(port), str(status), body]
        with log.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            await until_listening(port, process, log)
            url = f"http://127.0.0.1:{port}"
            sink = sink_of(name, url=url, timeout=f"{TIMEOUT:.0f}s", **options)
            with waking(stopping(sink, process.pid)) as stalling:
                yield stalling
        finally:
            process.kill()
            process.wait()

    return open_


def postgres(name: str) -> Open:
    @contextlib.asynccontextmanager
    async def open_(directory: Path) -> AsyncIterator[Stalling]:
        with Postgres(directory) as server:
            options: dict[str, Any] = {"url": server.url()}
            options["password_file"] = str(server.secret)
            sink = sink_of(name, timeout=f"{TIMEOUT:.0f}s", **options)
            with waking(stopping(sink, server.process.pid)) as stalling:
                yield stalling

    return open_


@contextlib.asynccontextmanager
async def kafka(directory: Path) -> AsyncIterator[Stalling]:
    server = Kafka(directory)
    await server.start()
    try:
        broker = {"servers": list(server.broker.servers), "timeout": "2s"}
        sink = sink_of("kafka", broker=broker, codec="line")
        with waking(stopping(sink, server.process.pid)) as stalling:
            yield stalling
    finally:
        server.stop()


@contextlib.asynccontextmanager
async def mqtt(directory: Path) -> AsyncIterator[Stalling]:
    server = Mosquitto(directory / "mosquitto")
    await server.start()
    try:
        broker = {"url": server.url, "timeout": f"{TIMEOUT:.0f}s"}
        with waking(stopping(sink_of("mqtt", broker=broker), server.process.pid)) as stalling:
            yield stalling
    finally:
        server.stop()


@contextlib.asynccontextmanager
async def delta(directory: Path) -> AsyncIterator[Stalling]:
    storage = await moto(directory)
    try:
        sink = sink_of("delta", url=f"s3://{BUCKET}/site", **storage.options)
        with waking(stopping(sink, storage.process.pid)) as stalling:
            yield stalling
    finally:
        storage.stop()


@contextlib.asynccontextmanager
async def nats(directory: Path) -> AsyncIterator[Stalling]:
    async with NatsServer(directory / "nats", port=free_port()) as server:
        site = Site(cluster="fox", hostname="n1", bus=Bus(servers=[server.url]))
        with waking(stopping(sink_of("nats", site), server.pid)) as stalling:
            yield stalling


def locked(name: str, held: str, /, **options: Any) -> Open:
    """Return a function that opens a sink of files while another process locks one of them.

    An unreachable file server blocks a write in the same way: in the kernel, without end.
    """

    @contextlib.asynccontextmanager
    async def open_(directory: Path) -> AsyncIterator[Stalling]:
        stack = contextlib.ExitStack()
        paths: dict[str, Any] = {key: str(directory / value) for key, value in options.items()}

        def stall() -> None:
            descriptor = os.open(directory / held, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)

        with waking(Stalling(sink_of(name, **paths), stall, stack.close)) as stalling:
            yield stalling

    return open_


@contextlib.asynccontextmanager
async def stdout(directory: Path) -> AsyncIterator[Stalling]:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)  # less than a batch
    may_read = threading.Event()
    may_read.set()

    def read() -> None:
        while os.read(reading, 4096):
            may_read.wait()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with os.fdopen(writing, "w") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", file)
        with waking(Stalling(sink_of("stdout"), may_read.clear, may_read.set)) as stalling:
            yield stalling
    reader.join()
    os.close(reading)


STORES: dict[str, Open] = {
    "cc_backend": http("cc_backend", 201, "{}"),
    "cc_metric_store": http("cc_metric_store", 200),
    "clickhouse": http("clickhouse", 200),
    "delta": delta,
    "file": locked("file", "lines.lp", path="lines.lp"),
    "http_post": http("http_post"),
    "influxdb": http("influxdb", database="fox"),
    "kafka": kafka,
    "mqtt": mqtt,
    "nats": nats,
    "otlp": http("otlp", 200),
    "parquet": locked("parquet", ".", dir="."),
    "postgres": postgres("postgres"),
    "postgres_sonar": postgres("postgres_sonar"),
    "prometheus": http("prometheus"),
    "stdout": stdout,
    "jobanalyzer": locked("jobanalyzer", "fox/2025/04/07/0+sample-n1.json", dir="."),
    "victoriametrics": http("victoriametrics"),
}

CANNOT_STALL = {
    "hdf5": "it writes below a directory that no other process locks",
    "null": "it keeps nothing",
    "prometheus_scrape": "it is scraped, and keeps a bounded number of series",
}
