"""A real PostgreSQL for tests, and what it must keep of a message."""

import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any, Self

import asyncpg

from ccpipe.formats.lineprotocol.arrow import TAG_COLUMNS
from ccpipe.message import Message
from ccpipe.sinks.postgres import PostgresSink
from tests.conftest import free_port, program
from tests.servers import stopped_on_failure

PASSWORD = "pä:ss @/"  # noqa: S105 - of servers that live for seconds


def programs() -> Path:
    """Return the directory of the server's programs, which Debian keeps out of ``PATH``."""
    found = list(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    newest = max(found, key=lambda path: float(path.parts[-3]), default=None)
    return (newest or program("postgres", "postgresql")).parent


class Server:
    """A real PostgreSQL on loopback, with password authentication, without durability."""

    def __init__(self, directory: Path) -> None:
        self.programs = programs()
        self.data, self.log = directory / "data", directory / "server.log"
        self.secret = directory / "password"
        self.port = free_port()
        self.secret.write_text(f"{PASSWORD}\n")
        # The server refuses to run as root.
        self.user = "nobody" if os.geteuid() == 0 else None
        if self.user:
            shutil.chown(directory, self.user)
            shutil.chown(self.secret, self.user)
        command = ["initdb", "-D", str(self.data), "-U", "bridge", "-E", "UTF8", "--locale=C"]
        self._run(*command, "-A", "scram-sha-256", f"--pwfile={self.secret}", "--no-sync")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, name: str, *options: str) -> None:
        command = [str(self.programs / name), *options]
        subprocess.run(command, user=self.user, cwd="/", check=True, capture_output=True)

    def url(self, database: str = "postgres", user: str = "bridge") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def sink(self, database: str = "postgres", **options: Any) -> PostgresSink:
        options = {"password_file": str(self.secret)} | options
        return PostgresSink(url=self.url(database), **options)

    def start(self) -> None:
        options = [f"-p{self.port}", "-F", "-clisten_addresses=127.0.0.1", "-k", ""]
        with self.log.open("ab") as file:
            self.process = subprocess.Popen(
                [str(self.programs / "postgres"), "-D", str(self.data), *options],
                user=self.user,
                cwd="/",
                stdout=file,
                stderr=file,
            )
        with stopped_on_failure(self.stop):
            self._wait()

    def _wait(self) -> None:
        ready = [str(self.programs / "pg_isready"), "-q", "-h127.0.0.1", f"-p{self.port}"]
        deadline = time.monotonic() + 60
        while subprocess.run(ready, check=False).returncode:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it without waiting for connected clients."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)

    async def ask(self, database: str, query: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self.url(database), password=PASSWORD)
        try:
            return [tuple(row) for row in await connection.fetch(query)]
        finally:
            await connection.close()

    async def run(self, database: str, script: str) -> None:
        connection = await asyncpg.connect(self.url(database), password=PASSWORD)
        try:
            await connection.execute(script)
        finally:
            await connection.close()

    async def waiting(self, database: str, expected: int) -> None:
        query = f"""
            SELECT FROM pg_stat_activity WHERE datname = '{database}' AND wait_event_type = 'Lock'
        """
        deadline = time.monotonic() + 20
        while (count := len(await self.ask(database, query))) != expected:
            assert time.monotonic() < deadline, f"{count} wait, not {expected}"

    async def database(self) -> str:
        name = f"db{uuid.uuid4().hex}"
        await self.ask("postgres", f"CREATE DATABASE {name}")
        return name

    async def messages(self, database: str) -> Counter[Any]:
        rows = await self.ask(database, _MESSAGES)
        return Counter(kept(*row) for row in rows)


_MESSAGES = """
    SELECT name, field, tags::text, cluster, hostname, type, type_id, stype, stype_id,
           CASE WHEN isfinite(time)
                THEN (extract(epoch FROM time) * 1000000)::numeric(40) * 1000 + ns END,
           value, "int", uint, bool, text
    FROM messages
"""


def kept(name: str, field: str, tags: str, *rest: Any) -> tuple[Any, ...]:
    *own, timestamp, value, exact, unsigned, boolean, text = rest
    columns = dict(zip(TAG_COLUMNS, own, strict=True))
    tags_said = json.loads(tags) | {key: tag for key, tag in columns.items() if tag is not None}
    if value is not None:  # every number also as a double
        assert value == float(next((v for v in (exact, unsigned, boolean) if v is not None), value))
    unsigned = None if unsigned is None else int(unsigned)
    whole = {"int": exact, "Uint": unsigned, "bool": boolean, "str": text}
    typed = [pair for pair in whole.items() if pair[1] is not None]
    (one,) = typed or [("float", repr(value))]
    return (
        name,
        field,
        frozenset(tags_said.items()),
        None if timestamp is None else int(timestamp),
        one,
    )


def sent(message: Message) -> tuple[Any, ...]:
    value, tags = message.value, frozenset(message.tags.items())
    typed = (type(value).__name__, repr(value) if isinstance(value, float) else value)
    return message.name, message.field, tags, message.time, typed
