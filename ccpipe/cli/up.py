"""``ccpipe up``: everything on this machine with one command."""

import asyncio
import contextlib
import fcntl
import importlib.util
import json
import logging
import os
import shutil
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from cyclopts import Parameter

from ccpipe.atomic_file import write_private
from ccpipe.bus.nats.announcement import RunningServer
from ccpipe.bus.nats.server import NatsServer, free_port
from ccpipe.bus.subjects import escape
from ccpipe.cli.console.options import DURATION, ExitAfter, On, SiteOptions, check_port, seconds
from ccpipe.config import ENVIRONMENT, Interval, Recipe, Site, state_directory
from ccpipe.errors import ConfigError, CreateError, MissingExtra, UsageError, create_reason
from ccpipe.process import child
from ccpipe.process.background import background
from ccpipe.process.signals import stop_signals
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import note, paint

log = logging.getLogger(__name__)

STOP_SECONDS = {"dashboard": 1.0, "publisher": 1.5, "bridge": 2.5}
"""Time limit for each child to end; together with the server under 5 s."""
MAX_PAUSE = 5.0
DASHBOARD_PORT = 8770

LOGIN = (
    "user",
    "password_file",
    "credentials_file",
    "nkey_file",
    "ca_file",
    "cert_file",
    "key_file",
)
"""Keys of [bus] that flags and a NATS context set; the children get them from their environment."""

_RECIPE_KEYS = {*Recipe.__struct_fields__} - {*Site.__struct_fields__}

RECIPE = """\
# Written by `ccpipe up` at every start. Run it alone with: ccpipe bridge THIS_FILE
[source]
use = "nats"
durable = {durable}
ack_wait = "5s"
drain_timeout = "1500ms"

[sink]
use = "parquet"
dir = {dir}

[batch]
max_wait = {age}
"""


async def up(
    *,
    dir_: Annotated[Path | None, Parameter(name="--dir")] = None,
    port: int | None = None,
    interval: Annotated[str, DURATION] = "2s",
    file_interval: Annotated[str, DURATION] = "1m",
    dashboard: On = True,
    dashboard_port: int | None = None,
    sync: Annotated[str, DURATION] = "10s",
    for_: ExitAfter = None,
    where: SiteOptions = SiteOptions(),
) -> None:
    """Start everything on this machine: server, publisher, Parquet bridge, dashboard.

    Needs no configuration. The server listens on 127.0.0.1 with a password
    that only this user can read; `ccpipe tail`, run by the same user, finds it
    automatically. Ctrl-C or SIGTERM stops everything without losing data.

    Examples:
      ccpipe up
      ccpipe up --for 30s --dir /tmp/demo
      ccpipe up --server nats://10.0.0.1:4222 --cluster fritz

    Parameters
    ----------
    dir_
        Data directory; default: one in the user's state directory.
    port
        Port of the embedded server; default: 4222, or any free port.
    interval
        Time between samples.
    file_interval
        Time after which a Parquet file is closed and a new one started.
    dashboard
        Serve the dashboard, on this machine only.
    dashboard_port
        Port of the dashboard; default: 8770, or any free port.
    sync
        How often the server syncs to disk; a power failure can lose messages
        received since. "always" syncs every message.
    """
    directory = (dir_ or state_directory() / "up").absolute()
    check_port(port, "--port")
    check_port(dashboard_port, "--dashboard-port")
    seconds(interval, "--interval", Interval)
    site = where.site(**{"publish.interval": interval})
    seconds(file_interval, "--file-interval")
    duration = seconds(for_, "--for")
    if sync != "always":
        sync = f"{seconds(sync, '--sync') or 0:.3f}s"
    telemetry = Telemetry()
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_exclusive(directory))
        if site.telemetry.listen:
            stack.callback(telemetry.serve(site.telemetry.listen).close)
        url = ",".join(site.bus.servers)
        is_found = not url
        if not url:
            server = NatsServer(directory / "nats", port=port, telemetry=telemetry, sync=sync)
            url = server.url
            here = RunningServer(url, os.getpid(), site.cluster, str(directory))
            stack.callback(here.withdraw)
            # First, so that commands that wait for it get the password.
            is_found = here.announce()
            await stack.enter_async_context(server)
        recipe = _write_recipe(directory, file_interval, site)
        config = _write_config(directory, site, url)
        environment = _environment(site, url, directory, where.path())
        stop = await stack.enter_async_context(stop_signals())
        # Left in reverse: the publisher ends first, so that the bridge still gets its last lines.
        bridge = Child("bridge", ["bridge", str(recipe)], environment, stop, telemetry)
        publisher = Child("publisher", ["publish"], environment, stop, telemetry)
        await stack.enter_async_context(bridge)
        await stack.enter_async_context(publisher)
        page = _dashboard(directory, dashboard_port) if dashboard else None
        if page is not None:
            shown = Child("dashboard", page.arguments, environment, stop, telemetry, vital=False)
            await stack.enter_async_context(shown)
        _print_welcome(
            site, url, directory, file_interval, page, "" if is_found else f" --config {config}"
        )
        if duration is not None:
            asyncio.get_running_loop().call_later(duration, stop.set)
        await stop.wait()
        note("stopping")
        for command in (bridge, publisher):
            if command.failure is not None:
                raise command.failure


class Child:
    """A ccpipe command as a child process, restarted whenever it dies."""

    def __init__(
        self,
        name: str,
        arguments: list[str],
        environment: dict[str, str],
        stop: asyncio.Event,
        telemetry: Telemetry,
        *,
        vital: bool = True,
    ) -> None:
        """Prepare to run ``ccpipe`` with `arguments`; only a `vital` one ends the others."""
        self.vital = vital
        telemetry.declare(telemetry.restarts, name)
        self.stop = stop
        self.telemetry = telemetry
        self.name = name
        self.arguments = arguments
        self.environment = environment
        self.process: asyncio.subprocess.Process | None = None
        self.failure: ConfigError | None = None
        """Why restarting is pointless; then `stop` is set."""
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._start()
        self._watch = background(self._keep_alive(), f"ccpipe-{self.name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._watch is not None
        self._watch.cancel()
        if not await child.end(self.process, STOP_SECONDS[self.name]):
            log.warning("%s did not end in %.1f s", self.name, STOP_SECONDS[self.name])

    async def _start(self) -> None:
        # -P: no module is imported from the current directory, which may be anybody's.
        command = [sys.executable, "-P", "-m", "ccpipe", *self.arguments]
        self.process = await child.start(command, environment=self.environment)

    async def _keep_alive(self) -> None:
        pause = 0.1
        while True:
            assert self.process is not None
            started = time.monotonic()
            code = await self.process.wait()
            pause = 0.1 if time.monotonic() - started > MAX_PAUSE else pause * 2
            if code in (UsageError.exit_code, ConfigError.exit_code):
                if not self.vital:
                    log.warning("%s cannot start and is left out; see above", self.name)
                    return
                self.failure = ConfigError(f"the {self.name} cannot start; see above")
                self.stop.set()
                return
            self.telemetry.count(self.telemetry.restarts, self.name)
            log.warning("%s ended with %s; restarting it", self.name, code)
            await asyncio.sleep(min(pause, MAX_PAUSE))
            await self._start()


@contextlib.contextmanager
def _exclusive(directory: Path) -> Iterator[None]:
    """Lock the data directory; raises UsageError if another has it, else CreateError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("w")
    except OSError as error:
        raise CreateError(f"--dir {directory}: {create_reason(error)}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another `ccpipe up` is running in {directory}; give --dir") from None
        yield


class Dashboard(NamedTuple):
    """How the dashboard is started, and its address."""

    arguments: list[str]
    url: str


def _dashboard(directory: Path, port: int | None) -> Dashboard | None:
    """Return how to start the dashboard; None, with a note, if a library is missing."""
    libraries = ("aiohttp", "numpy", "duckdb", "pytz")
    missing = [name for name in libraries if importlib.util.find_spec(name) is None]
    for name in libraries[:2]:
        if name in missing:
            note(f"no dashboard: {MissingExtra(name, 'dashboard')}")
            return None
    address = f"127.0.0.1:{port or free_port(DASHBOARD_PORT)}"
    arguments = ["dashboard", "--listen", address]
    if not missing:
        (directory / "parquet").mkdir(exist_ok=True)  # the bridge begins to write later
        arguments += ["--history", str(directory / "parquet")]
    return Dashboard(arguments, f"http://{address}/")


def _write_recipe(directory: Path, file_interval: str, site: Site) -> Path:
    path = directory / "parquet.toml"
    # Bridges of one durable name share the messages: each directory has a name of its own.
    durable = f"up-{escape(site.hostname)}-{zlib.crc32(os.fsencode(directory)):08x}"
    given = {"dir": str(directory / "parquet"), "age": file_interval, "durable": durable}
    # JSON's strings are TOML's.
    quoted = {key: json.dumps(value) for key, value in given.items()}
    path.write_text(RECIPE.format(**quoted))
    return path


def _write_config(directory: Path, site: Site, url: str) -> Path:
    """Write the configuration for other commands: it has the password, so only for the user."""
    path = directory / "ccpipe.toml"
    text = f"""\
# Written by `ccpipe up` at every start: ccpipe tail --config THIS_FILE
cluster = {json.dumps(site.cluster)}

[bus]
servers = {json.dumps(url.split(","))}
"""
    write_private(path, text)
    return path


def _environment(site: Site, url: str, directory: Path, config: Path | None) -> dict[str, str]:
    """Return the children's environment; flags would show the password to all users in `ps`."""
    ours = {name: value for name, value in os.environ.items() if not _is_of_recipes(name)}
    return {
        **ours,
        **({"CCPIPE_CONFIG": str(config.absolute())} if config else {}),
        "CCPIPE_BUS__SERVERS": url,
        **{
            f"CCPIPE_BUS__{key.upper()}": value
            for key in LOGIN
            if (value := getattr(site.bus, key))
        },
        "CCPIPE_CLUSTER": site.cluster,
        "CCPIPE_PUBLISH__INTERVAL": str(float(site.publish.interval)),
        "CCPIPE_PUBLISH__DEAD_LETTER_FILE": str(directory / "dead.lp"),
        "CCPIPE_PUBLISH__SPOOL__DIR": str(directory / "spool"),
        "CCPIPE_TELEMETRY__LISTEN": "",  # its address is ours
        "CCPIPE_LOGLEVEL": logging.getLevelName(logging.getLogger().level),
    }


def _is_of_recipes(variable: str) -> bool:
    """Whether a variable configures a bridge's parts, and so is not for the recipe of `up`."""
    key = variable.removeprefix(ENVIRONMENT).lower().partition("__")[0]
    return variable.startswith(ENVIRONMENT) and key in _RECIPE_KEYS


def _print_welcome(
    site: Site, url: str, directory: Path, file_interval: str, page: Dashboard | None, option: str
) -> None:
    address = url.rpartition("@")[2].removeprefix("nats://")
    title = f"ccpipe is up: cluster {site.cluster}, node {site.hostname}"
    shown = paint(page.url, "bold") if page else "off"
    is_default = directory == (state_directory() / "up").absolute()
    ccpipe = _program()
    ask = f"{ccpipe} query" + ("" if is_default else f" --dir {directory / 'parquet'}")
    print(
        f"""\
{paint(title, "green")}
  dashboard  {shown}
  server     nats://{address}
  Parquet    {directory / "parquet"} (a file every {file_interval})
  dead       {directory / "dead.lp"} (dead letters, if any)

Next, in another shell:
  {ccpipe} tail{option} --name cpu_load
  {ccpipe} top{option}
  {ask} 'select name, avg(value) from metrics group by name'

Ctrl-C stops everything.""",  # noqa: S608 - for people
        flush=True,
    )


def _program() -> str:
    program = Path(sys.executable).with_name("ccpipe")
    found = shutil.which("ccpipe")
    if found and Path(found) == program:
        return "ccpipe"
    here = Path.cwd()
    return str(program.relative_to(here) if program.is_relative_to(here) else program)
