"""The programs of a flow: brokers, a store, bridges, a publisher; each a process of its own."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ccpipe.bus.nats.server import server_program
from tests.conftest import free_port

TICKS = os.sysconf("SC_CLK_TCK")
CLUSTER = "scale"
BROKER = """\
listen: 127.0.0.1:{port}
server_name: n{number}
jetstream {{ store_dir: "{directory}/js{number}", sync_interval: 10s, max_file_store: 60GB }}
"""
ROUTES = """\
cluster {{ name: scale, listen: "127.0.0.1:{port}", routes: [{routes}] }}
"""
NULL_RECIPE = """\
[source]
use = "nats"
subjects = ["metrics"]
durable = "scale"
[[translate]]
use = "select"
kinds = ["metric"]
numeric = true
[sink]
use = "null"
"""
SONAR_RECIPE = """\
[source]
use = "nats"
durable = "scale"
codec = "sonar"
[[translate]]
use = "sonar_to_cc"
[sink]
use = "null"
"""


class Program(NamedTuple):
    """A process that runs, and what it writes."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    def cpu(self) -> float:
        """Return CPU-seconds until now."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / TICKS

    def peak(self) -> int:
        """Return the largest number of bytes that were resident."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0

    def require_running(self) -> None:
        """Raise SystemExit with its log where it has ended."""
        if self.process.returncode is not None:
            raise SystemExit(f"{self.name} has ended:\n{self.log.read_text()[-3000:]}")


@contextlib.asynccontextmanager
async def running(
    name: str, command: Sequence[str], directory: Path, **environ: str
) -> AsyncIterator[Program]:
    """Run a program; it is ended with the context."""
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=output, stderr=output, cwd=directory, env={**os.environ, **environ}
        )
    try:
        yield Program(name, process, log)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 30)
            except TimeoutError:
                process.kill()
                await process.wait()


@contextlib.asynccontextmanager
async def brokers(count: int, directory: Path) -> AsyncIterator[tuple[list[Program], list[str]]]:
    """Run so many nats-servers, several as a cluster; gives programs and addresses."""
    ports = [free_port() for _ in range(2 * count)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports[count:])
    found = []
    async with contextlib.AsyncExitStack() as stack:
        for number in range(count):
            text = BROKER.format(port=ports[number], number=number, directory=directory)
            if count > 1:
                text += ROUTES.format(port=ports[count + number], routes=routes)
            config = directory / f"nats{number}.conf"
            config.write_text(text)
            command = [server_program(), "-c", str(config)]
            found.append(
                await stack.enter_async_context(running(f"nats{number}", command, directory))
            )
        for port in ports[:count]:
            await until_open(port, found[0])
        yield found, [f"nats://127.0.0.1:{port}" for port in ports[:count]]


class Store:
    """VictoriaMetrics, as the shipped recipe wants it; it may be ended and started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.program: Program | None = None
        self.cpu_before = 0.0
        """Of the processes that ran before."""
        self.peak_before = 0
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Run it until ``stop``."""
        command = [
            "victoria-metrics", "-influxSkipSingleField", "-retentionPeriod=100y",
            f"-httpListenAddr=127.0.0.1:{self.port}", f"-storageDataPath={self.directory}/store",
            "-loggerLevel=ERROR", "-search.maxUniqueTimeseries=20000000",
            "-search.latencyOffset=0s",
        ]  # fmt: skip
        self.program = await self._stack.enter_async_context(
            running("victoria-metrics", command, self.directory)
        )
        await until_open(self.port, self.program)

    async def stop(self) -> None:
        """End it; its data stays on disk."""
        if self.program:
            self.cpu_before, self.peak_before = self.cpu(), self.peak()
        self.program = None
        await self._stack.aclose()

    def cpu(self) -> float:
        """Return CPU-seconds of all its processes until now."""
        return self.cpu_before + (self.program.cpu() if self.program else 0.0)

    def peak(self) -> int:
        """Return the largest number of bytes that were resident."""
        return max(self.peak_before, self.program.peak() if self.program else 0)


async def until_open(port: int, program: Program) -> None:
    """Wait until a program listens."""
    async with asyncio.timeout(60):
        while True:
            program.require_running()
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)


def write_recipe(directory: Path, *, sonar: bool) -> str:
    """Write the recipe of a bridge into nowhere; return its path."""
    path = directory / "recipe.toml"
    path.write_text(SONAR_RECIPE if sonar else NULL_RECIPE)
    return str(path)


def ccpipe(*arguments: str) -> list[str]:
    """Return the command line of one of ccpipe's commands."""
    return [sys.executable, "-m", "ccpipe", *arguments]


def environment(
    urls: Sequence[str],
    *,
    brokers: int = 1,
    partitions: int = 1,
    by_node: bool = False,
    compression: str = "none",
) -> dict[str, str]:
    """Return ccpipe's configuration: a stream large enough for everything that a run publishes."""
    subject = {"CCPIPE_BUS__SUBJECTS__METRICS": "{cluster}.metrics.{hostname}"}
    return {
        "CCPIPE_CLUSTER": CLUSTER,
        "CCPIPE_BUS__SERVERS": ",".join(urls),
        **(subject if by_node else {}),
        "CCPIPE_BUS__STREAM_MAX_BYTES": "40GiB",
        "CCPIPE_BUS__STREAM_DISCARD": "new",
        "CCPIPE_BUS__STREAM_COMPRESSION": compression,
        "CCPIPE_BUS__STREAM_REPLICAS": str(brokers),
        "CCPIPE_BUS__STREAM_PARTITIONS": str(partitions),
        "PYTHONHASHSEED": "0",
    }


class Report(msgspec.Struct):
    """The report of ``ccpipe simulate --report``."""

    messages: int
    lines: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    published: list[int]

    @property
    def first(self) -> float:
        """When the first message was published, in seconds since the epoch."""
        return min(self.published) / 1e9

    def by_number(self, before: int, last: int) -> dict[int, int]:
        """Return when each message was published, by its number in the stream.

        `before` and `last` are the numbers of the stream's last message before and after. Raises
        SystemExit if others have published meanwhile: messages are stored in their order.
        """
        if last - before != len(self.published):
            raise SystemExit(f"{last - before} messages instead of {len(self.published)} stored")
        return dict(enumerate(self.published, before + 1))


class Load(NamedTuple):
    """The messages of a simulated cluster."""

    nodes: int
    metrics: int
    samples: int
    speed: str = "max"
    sonar: bool = False
    start: str = ""
    """Time of the first sample; without it the last one is of now, or the first at speed 1."""

    def command(self, report: Path, seed: int) -> list[str]:
        """Return the command line that publishes it."""
        extra = ["--sonar", "10s"] if self.sonar else []
        extra += ["--since", self.start] if self.start else []
        return ccpipe(
            "simulate", "--nodes", str(self.nodes), "--metrics", str(self.metrics), "--gpus", "0",
            "--duration", f"{10 * self.samples}s", "--speed", self.speed, "--failures", "0",
            "--seed", str(seed), "--report", str(report), *extra,
        )  # fmt: skip

    def metric_lines(self, report: Report) -> int:
        """Return the lines published without those of events, which have one in each message.

        Nodes without a job lack some metrics, so that it is not a product.
        """
        return report.lines - (report.messages - self.nodes * self.samples)


async def publish(load: Load, directory: Path, environ: dict[str, str], seed: int = 1) -> Report:
    """Publish a load to its end."""
    path = directory / f"report-{seed}.json"
    async with running("simulate", load.command(path, seed), directory, **environ) as program:
        await program.process.wait()
        if program.process.returncode:
            program.require_running()
    return msgspec.json.decode(path.read_bytes(), type=Report)
