"""End to end: messages of 500 lines through a real nats-server, into columns and into stores."""

import asyncio
import contextlib
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Self

import msgspec
import nats
from line_protocol_parser import parse_line
from nats.aio.msg import Msg

from benchmarks.timing import Result
from ccpipe.bus.nats.server import server_program
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Bus, Site
from ccpipe.formats.lineprotocol import decode
from ccpipe.pipeline import Limits, Records, Sink, run
from ccpipe.sinks.null import NullSink
from ccpipe.telemetry import Telemetry

LINES = 500  # in one message
SUBJECT = "bench.metrics"

_PUBLISHER = """
import asyncio, sys
import nats
from benchmarks.payloads import payload, realistic

async def main(url, subject, count):
    lines = realistic(50_000)
    bodies = [payload(lines[n:n + 500]) for n in range(0, len(lines), 500)]
    connection = await nats.connect(url)
    for number in range(count):
        await connection.publish(subject, bodies[number % len(bodies)])
        if number % 50 == 49:
            await connection.flush(60)
    await connection.drain()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@contextlib.asynccontextmanager
async def broker() -> AsyncIterator[str]:
    """Run a plain nats-server that waits for slow readers instead of dropping them."""
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = _write(Path(folder, "nats.conf"), port)
        with _running([server_program(), "-c", str(config)]):
            _await_port(port)
            yield f"nats://127.0.0.1:{port}"


def _write(config: Path, port: int, more: str = "") -> Path:
    text = f"listen: 127.0.0.1:{port}\nmax_pending: 1GB\nwrite_deadline: '60s'\n{more}\n"
    config.write_text(text)
    return config


def _await_port(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


async def publish(url: str, count: int) -> None:
    """Send `count` messages from a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PUBLISHER, url, SUBJECT, str(count)
    )
    assert await process.wait() == 0


async def callbacks(url: str, count: int, take: Callable[[bytes], int]) -> float:
    """Receive by nats-py's callback; return lines per CPU-second."""
    lines = messages = 0
    done = asyncio.Event()

    async def receive(message: Msg) -> None:
        nonlocal lines, messages
        lines += take(message.data)
        messages += 1
        if messages == count:
            done.set()

    connection = await nats.connect(url)
    await connection.subscribe(
        SUBJECT, cb=receive, pending_msgs_limit=10**7, pending_bytes_limit=2**31
    )
    await connection.flush()
    sender = asyncio.create_task(publish(url, count))
    begin = time.process_time()
    await asyncio.wait_for(done.wait(), 120)
    spent = time.process_time() - begin
    await sender
    await connection.close()
    assert lines == count * LINES, f"{lines} of {count * LINES} lines arrived"
    return lines / spent


def naive(body: bytes) -> int:
    """Parse line by line and write each again: what a bridge of a few lines does."""
    count = 0
    for line in body.decode().splitlines():
        parsed = parse_line(line)
        tags = "".join(f",{key}={value}" for key, value in parsed["tags"].items())
        fields = ",".join(f"{key}={value}" for key, value in parsed["fields"].items())
        count += len(f"{parsed['measurement']}{tags} {fields} {parsed['time']}\n") > 0
    return count


def joined(size: int) -> Callable[[bytes], int]:
    """Return a taker that decodes a mebibyte at a time, as a bridge joins messages."""
    waiting: list[bytes] = []
    messages = 0

    def take(body: bytes) -> int:
        nonlocal messages
        waiting.append(body)
        messages += 1
        if len(waiting) < 2**20 // len(body) and messages < size:
            return 0
        lines = decode(b"".join(waiting))
        waiting.clear()
        return len(lines)

    return take


class _Counting(Sink):
    """A sink around another that ends the source when everything has arrived."""

    def __init__(self, sink: Sink, expected: int, stop: asyncio.Event) -> None:
        self.sink, self.expected, self.stop = sink, expected, stop
        self.takes, self.limits = sink.takes, sink.limits
        self.done = 0.0

    async def __aenter__(self) -> Self:
        if isinstance(self.sink, contextlib.AbstractAsyncContextManager):
            await self.sink.__aenter__()
        return self

    async def __aexit__(self, *exit_: object) -> None:
        if isinstance(self.sink, contextlib.AbstractAsyncContextManager):
            await self.sink.__aexit__(None, None, None)

    async def write(self, records: Records) -> None:
        await self.sink.write(records)
        self.expected -= len(records)
        if self.expected <= 0:
            self.done = time.process_time()
            self.stop.set()


async def bridge(url: str, count: int, sink: Sink, limits: Limits) -> float:
    """Run ccpipe's own pipe from the bus into a sink; return lines per CPU-second."""
    telemetry, stop = Telemetry(), asyncio.Event()
    source = NatsSource(
        site=Site(cluster="bench", bus=Bus(servers=[url], jetstream=False)),
        telemetry=telemetry,
        subjects=[SUBJECT],
    )
    counting = _Counting(sink, count * LINES, stop)
    pipe = asyncio.create_task(run(source, counting, limits=limits, telemetry=telemetry, stop=stop))
    while not telemetry.ready:  # it is a plain flag
        if pipe.done():
            await pipe  # to raise what ended it
        await asyncio.sleep(0.01)
    sender = asyncio.create_task(publish(url, count))
    begin = time.process_time()
    await asyncio.wait_for(pipe, 120)
    await sender
    return count * LINES / (counting.done - begin)


async def end_to_end(*, quick: bool = False) -> list[Result]:
    """Measure all ways from the bus; stores that are not installed are named and left out."""
    few, many = (20, 200) if quick else (200, 1500)
    rounds = 1 if quick else 3
    async with broker() as url:
        ways: dict[str, Callable[[], Awaitable[float]]] = {
            "naive: nats-py, line_protocol_parser, re-serialised": lambda: callbacks(
                url, few, naive
            ),
            "nats-py callback → ccpipe columns, message by message": lambda: callbacks(
                url, many, lambda body: len(decode(body))
            ),
            "nats-py callback → ccpipe columns, joined to 1 MiB": lambda: callbacks(
                url, many, joined(many)
            ),
        }
        results = [Result(name, await best(way, rounds)) for name, way in ways.items()]
        for name, opened, limits in _stores():
            soon = msgspec.structs.replace(limits, age=1.0)
            with opened as sink:
                speed = await best(functools.partial(bridge, url, many, sink, soon), rounds)
            results.append(Result(f"ccpipe bridge → {name}", speed))
    return results


async def best(way: Callable[[], Awaitable[float]], rounds: int) -> float:
    """Return the best of some rounds: the machine's other work only makes one slower."""
    return max([await way() for _ in range(rounds)])


def _stores() -> Iterator[tuple[str, contextlib.AbstractContextManager[Sink], Limits]]:
    yield "null sink", contextlib.nullcontext(NullSink()), NullSink.limits
    if shutil.which("victoria-metrics"):
        from ccpipe.sinks.victoriametrics import VictoriaMetricsSink

        yield "VictoriaMetrics", _victoriametrics(), VictoriaMetricsSink.limits
    else:
        print("VictoriaMetrics is not installed and left out")
    from ccpipe.sinks.parquet import ParquetSink

    yield "Parquet", _parquet(), ParquetSink.limits
    if found := sorted(Path("/usr/lib/postgresql").glob("*/bin")):
        from ccpipe.sinks.postgres import PostgresSink

        yield "PostgreSQL", _postgres(found[-1]), PostgresSink.limits
    else:
        print("PostgreSQL is not installed and left out")


@contextlib.contextmanager
def _parquet() -> Iterator[Sink]:
    from ccpipe.sinks.parquet import ParquetSink

    with tempfile.TemporaryDirectory() as folder:
        yield ParquetSink(dir=folder)


@contextlib.contextmanager
def _victoriametrics() -> Iterator[Sink]:
    from ccpipe.sinks.victoriametrics import VictoriaMetricsSink

    port = _free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        _running(
            [
                "victoria-metrics",
                f"-httpListenAddr=127.0.0.1:{port}",
                f"-storageDataPath={folder}",
                "-retentionPeriod=100y",
                "-loggerLevel=ERROR",
            ]
        ),
    ):
        _await_port(port)
        yield VictoriaMetricsSink(url=f"http://127.0.0.1:{port}")


@contextlib.contextmanager
def _postgres(programs: Path) -> Iterator[Sink]:
    from ccpipe.sinks.postgres import PostgresSink

    port = _free_port()
    user = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root
    with tempfile.TemporaryDirectory() as folder:
        if user:
            shutil.chown(folder, user)
        subprocess.run(  # noqa: S603 - ours
            [programs / "initdb", "-D", f"{folder}/data", "-U", "bench", "-A", "trust"],
            user=user,
            cwd="/",
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with _running(
            [str(programs / "postgres"), "-D", f"{folder}/data", f"-p{port}", "-k", ""], user
        ):
            _await_port(port)
            yield PostgresSink(url=f"postgresql://bench@127.0.0.1:{port}/postgres")


@contextlib.contextmanager
def _running(command: list[str], user: str | None = None) -> Iterator[None]:
    process = subprocess.Popen(  # noqa: S603 - ours
        command, stderr=subprocess.DEVNULL, user=user, cwd="/" if user else None
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
