"""Servers on free loopback ports, in temporary directories: brokers and stores to measure with."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from ccpipe.bus.nats.server import server_program
from tests.conftest import free_port
from tests.servers.clickhouse import ClickHouse
from tests.servers.victoriametrics import VictoriaMetrics


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """Run a plain nats-server that waits for slow readers instead of dropping them."""
    with _nats("") as url:
        yield url


@contextlib.contextmanager
def jetstream() -> Iterator[str]:
    """Run one with streams."""
    with (
        tempfile.TemporaryDirectory() as directory,
        _nats(f"jetstream {{ store_dir: {directory} }}\n") as url,
    ):
        yield url


@contextlib.contextmanager
def _nats(options: str) -> Iterator[str]:
    port = free_port()
    patient = "max_pending: 1GB\nwrite_deadline: '60s'\n"
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "nats.conf")
        config.write_text(f"listen: 127.0.0.1:{port}\n{patient}{options}")
        with running([server_program(), "-c", str(config)]):
            await_port(port)
            yield f"nats://127.0.0.1:{port}"


@contextlib.contextmanager
def victoriametrics(program: Path | None = None) -> Iterator[str]:
    """Run a VictoriaMetrics, Debian's or `program`, with the memory it takes; yield its URL."""
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory, "data")
        store = VictoriaMetrics(data, "-memory.allowedBytes=0", executable=program)
        store.start()
        try:
            yield store.url
        finally:
            store.stop()


@contextlib.contextmanager
def clickhouse() -> Iterator[ClickHouse]:
    """Run a ClickHouse as old as Debian's, with a table."""
    with (
        tempfile.TemporaryDirectory() as directory,
        ClickHouse(Path(directory, "server")) as store,
    ):
        store.create_table()
        yield store


def postgres_programs() -> Path | None:
    """Return the directory of the newest PostgreSQL's programs, as Debian installs them."""
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """Run a PostgreSQL; yield the URL of a database."""
    programs = postgres_programs()
    assert programs is not None
    port = free_port()
    user = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root
    with tempfile.TemporaryDirectory() as directory:
        if user:
            shutil.chown(directory, user)
        subprocess.run(  # noqa: S603 - ours
            [programs / "initdb", "-D", f"{directory}/data", "-U", "bench", "-A", "trust"],
            user=user,
            cwd="/",
            check=True,
            stdout=subprocess.DEVNULL,
        )
        server = [str(programs / "postgres"), "-D", f"{directory}/data", f"-p{port}", "-k", ""]
        with running(server, user):
            await_port(port)
            yield f"postgresql://bench@127.0.0.1:{port}/postgres"


@contextlib.contextmanager
def running(
    command: list[str], user: str | None = None, *, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program for a while."""
    process = subprocess.Popen(  # noqa: S603 - ours
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=user,
        cwd="/" if user else None,
        env=environment,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def await_port(port: int) -> None:
    """Wait until a server listens."""
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
