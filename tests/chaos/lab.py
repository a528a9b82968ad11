"""Real processes that can be killed, frozen and started again, on loopback ports of their own."""

import asyncio
import contextlib
import json
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client as NatsClient

from ccpipe.bus.nats.credentials import public_nkey
from ccpipe.bus.nats.server import server_program
from ccpipe.process.die_with_parent import die_with_parent
from tests.cli.command import ccpipe, environment
from tests.conftest import free_port
from tests.servers.nats.daemon import accepts

CLUSTER = "c"
CONFIGURATION = 'jetstream { store_dir: "/var/lib/nats" }\n'


class Process:
    """A program that is started as often as it is needed."""

    def __init__(self, name: str, *command: str, log: Path, **environ: str) -> None:
        self.name = name
        self.command = command
        self.environ = environ
        self.log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        assert not self.is_running
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self.command, env=environment(**self.environ), preexec_fn=die_with_parent,
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def kill(self) -> None:
        """Send SIGKILL."""
        self.send(signal.SIGKILL)
        await self.wait()

    async def wait(self, seconds: float = 90) -> int:
        assert self._process is not None
        return await asyncio.wait_for(self._process.wait(), seconds)

    async def end(self) -> int:
        self.send(signal.SIGTERM)
        return await self.wait()

    async def freeze(self, seconds: float) -> None:
        self.send(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.send(signal.SIGCONT)

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class Broker(Process):
    """A nats-server with JetStream whose port and data outlive a kill."""

    def __init__(
        self,
        directory: Path,
        name: str = "nats",
        *,
        routes: Sequence[int] = (),
        own: int = 0,
        configuration: str = CONFIGURATION,
    ) -> None:
        self.port = free_port()
        conf = directory / f"{name}.conf"
        cluster = ""
        if routes:
            urls = ", ".join(f"nats-route://127.0.0.1:{port}" for port in routes)
            cluster = f'cluster {{ name: lab, listen: "127.0.0.1:{own}", routes: [{urls}] }}\n'
        conf.write_text(
            f'listen: "127.0.0.1:{self.port}"\nserver_name: {name}\n{cluster}'
            + configuration.replace('"/var/lib/nats"', json.dumps(str(directory / name)))
        )
        super().__init__(name, server_program(), "-c", str(conf), log=directory / f"{name}.log")

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def start(self) -> None:
        await super().start()
        await accepts(self.port)


class Lab:
    """Brokers, and ccpipe's commands with them."""

    def __init__(
        self,
        directory: Path,
        servers: int = 1,
        *,
        has_keys: bool = False,
        configuration: str = CONFIGURATION,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare; with `has_keys` everybody has the permissions that `ccpipe auth init` gives.

        `configuration` is the brokers', without ports and names. `environ` is added to the
        environment of all commands.
        """
        self.directory = directory
        self.subject = f"{CLUSTER}.metrics"
        self._keys = directory / "keys" if has_keys else None
        if self._keys:
            configuration = self._make_keys(self._keys)
        if servers == 1:
            self.brokers = [Broker(directory, configuration=configuration)]
        else:
            ports = [free_port() for _ in range(servers)]
            self.brokers = [
                Broker(directory, f"nats{i}", routes=ports, own=own, configuration=configuration)
                for i, own in enumerate(ports)
            ]
        self.settings = {
            "CCPIPE_CLUSTER": CLUSTER,
            "CCPIPE_HOSTNAME": "n1",
            "CCPIPE_BUS__SERVERS": ",".join(broker.url for broker in self.brokers),
            "CCPIPE_BUS__STREAM_REPLICAS": str(servers),
            "XDG_STATE_HOME": str(directory / "state"),
            **({"CCPIPE_CONFIG": str(self._keys / "ccpipe.toml")} if self._keys else {}),
            **(environ or {}),
        }
        self.processes: list[Process] = []

    def _make_keys(self, keys: Path) -> str:
        """Make keys of a node and a bridge; return the servers' configuration."""
        made = ccpipe(
            "auth", "init", keys, "--cluster", CLUSTER, "--node", "n1", "--bridge", "chaos"
        )
        assert made.code == 0, made.err
        self.subject += ".n1"
        written = (keys / "nats.conf").read_text()
        # Each server has its own name and ports.
        return re.sub(r"^(server_name|listen|http):.*$", "", written, flags=re.MULTILINE)

    def _key(self, role: str, name: str) -> dict[str, str]:
        if self._keys is None:
            return {}
        return {"CCPIPE_BUS__NKEY_FILE": str(self._keys / "nkeys" / role / f"{name}.nk")}

    async def connect(self, **options: Any) -> NatsClient:
        """Connect a plain client, as the bridge where there are keys."""
        if seed := self._key("bridge", "chaos").get("CCPIPE_BUS__NKEY_FILE"):
            public = public_nkey(seed, Path(seed).read_text().strip())
            options |= {"nkeys_seed": seed, "inbox_prefix": f"_INBOX.{public}".encode()}
        running = [broker.url for broker in self.brokers if broker.is_running]
        return await nats.connect(running, connect_timeout=20, **options)

    @property
    def broker(self) -> Broker:
        return self.brokers[0]

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Lab"]:
        """Start the brokers; in the end kill whatever still runs."""
        try:
            for broker in self.brokers:
                await Process.start(broker)
            for broker in self.brokers:
                await accepts(broker.port)
            yield self
        finally:
            for process in [*self.processes, *self.brokers]:
                if process.is_running:
                    process.send(signal.SIGCONT)
                    await process.kill()

    def process(self, name: str) -> Process | None:
        return next((each for each in self.processes if each.name == name), None)

    def ccpipe(self, name: str, *arguments: object, **environ: str) -> Process:
        words = [sys.executable, "-m", "ccpipe", *map(str, arguments)]
        log = self.directory / f"{name}.log"
        process = Process(name, *words, log=log, **{**self.settings, **environ})
        self.processes.append(process)
        return process

    def bridge(self, sink: str, *, translate: str = "", **environ: str) -> Process:
        recipe = self.directory / "recipe.toml"
        recipe.write_text(
            f"""
            [source]
            use = "nats"
            durable = "chaos"
            subjects = ["metrics"]
            ack_wait = "3s"
            {translate}
            [sink]
            {sink}
            [batch]
            max_records = 5000
            max_wait = "100ms"
            """
        )
        return self.ccpipe("bridge", "bridge", recipe, **self._key("bridge", "chaos"), **environ)

    def send(self, lines: bytes, *, rate: int, **environ: str) -> Process:
        path = self.directory / "lines.lp"
        path.write_bytes(lines)
        words = ("send", path, "--rate", rate)
        return self.ccpipe("send", *words, **self._key("node", "n1"), **environ)


def numbered(count: int, *, first: int = 0, start: int = 1_740_000_000) -> bytes:
    """Make lines whose values are their numbers: the ids of the account.

    The time of the line 0 is `start`, in any unit, and each line is one unit later.
    """
    return b"".join(
        b"m,cluster=c,hostname=n1,type=node value=%di %d\n" % (number, start + number)
        for number in range(first, first + count)
    )
