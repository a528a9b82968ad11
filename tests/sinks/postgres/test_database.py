"""The connection to a real PostgreSQL: its errors are named, outages waited for."""

import socket
from collections import Counter
from pathlib import Path

import asyncpg
import pytest

from ccpipe.config import Duration
from ccpipe.errors import ConfigError, DeniedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.sinks.postgres import PostgresSink
from tests.servers.postgres import PASSWORD, Server, sent
from tests.sinks.conftest import NOON, SECOND, Given, carry_again, metric


async def test_writes_continue_after_server_restart(server: Server) -> None:
    """While the server is down writes may be retried; then it gets the missing ones, once."""
    database = await server.database()
    messages = [metric(float(n), time=NOON + n * SECOND) for n in range(4)]
    async with server.sink(database) as sink:
        await sink.write(to_lines([messages[0]]))
        server.stop()
        try:
            for _ in range(2):
                with pytest.raises(UnavailableError, match=f"127.0.0.1:[0-9]+/{database}"):
                    await sink.write(to_lines([messages[1]]))
            with pytest.raises(UnavailableError):
                await sink.check()
            source = Given([messages[2]], [messages[3]])
            await carry_again(source, server.sink(database), server.start)
        finally:
            if server.process.poll() is not None:
                server.start()
        await sink.write(to_lines([messages[1]]))
    assert await server.messages(database) == Counter(map(sent, messages))


async def test_write_to_silent_server_times_out() -> None:
    """After `timeout` it is abandoned, and may be retried."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/db"
        async with PostgresSink(url=url, timeout=Duration(0.1)) as sink:
            with pytest.raises(UnavailableError, match="(?i)timeout"):
                await sink.write(to_lines([metric(1.0)]))


async def test_write_to_locked_table_times_out(server: Server) -> None:
    """An abandoned write is not executed later."""
    database = await server.database()
    async with server.sink(database, timeout=Duration(60)) as sink:
        await sink.write(to_lines([metric(1.0)]))
        other = await asyncpg.connect(server.url(database), password=PASSWORD)
        try:
            await other.execute("BEGIN; LOCK TABLE samples")
            sink.time_limit = 0.3
            with pytest.raises(UnavailableError, match="timeout|Timeout"):
                await sink.write(to_lines([metric(2.0)]))
            await server.waiting(database, 0)
        finally:
            sink.time_limit = 60.0
            await other.close()
        await sink.write(to_lines([metric(2.0)]))
    assert await server.messages(database) == Counter(map(sent, [metric(1.0), metric(2.0)]))


async def test_check_reports_wrong_password(server: Server, tmp_path: Path) -> None:
    """So it does a missing one, if the server requires it."""
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    with pytest.raises(DeniedError, match="password authentication failed"):
        async with server.sink(password_file=str(wrong)):
            pass
    with pytest.raises(DeniedError, match="password"):
        await server.sink(password_file="").check()


async def test_check_creates_no_tables(server: Server) -> None:
    """It succeeds before and after they exist."""
    database = await server.database()
    await server.sink(database).check()
    assert await server.ask(database, "SELECT to_regclass('samples')::text") == [(None,)]
    async with server.sink(database):
        pass
    await server.sink(database).check()


async def test_missing_privileges_are_denied(server: Server) -> None:
    """Privileges on the tables suffice to write to them."""
    database = await server.database()
    await server.ask(database, f"CREATE ROLE guest_{database} LOGIN PASSWORD '{PASSWORD}'")
    await server.ask(database, "REVOKE CREATE ON SCHEMA public FROM public")
    guest = PostgresSink(
        url=server.url(database, f"guest_{database}"), password_file=str(server.secret)
    )
    with pytest.raises(DeniedError, match="no permission to write"):
        await guest.check()
    with pytest.raises(DeniedError, match="permission denied"):
        async with guest:
            pass
    async with server.sink(database):
        pass
    with pytest.raises(DeniedError, match="no permission to write"):
        await guest.check()
    async with guest:
        with pytest.raises(DeniedError, match="permission denied"):
            await guest.write(to_lines([metric(1.0)]))
    await server.ask(
        database, f"GRANT SELECT, INSERT, DELETE ON series, samples, delivered TO guest_{database}"
    )
    await guest.check()
    async with guest:
        await guest.write(to_lines([metric(1.0)]))
    assert await server.messages(database) == Counter([sent(metric(1.0))])


async def test_tables_are_created_in_search_path(server: Server) -> None:
    """``search_path`` is a parameter of the URL."""
    database = await server.database()
    await server.ask(database, "CREATE SCHEMA monitoring")
    url = server.url(database) + "?search_path=monitoring"
    async with PostgresSink(url=url, password_file=str(server.secret)) as sink:
        await sink.write(to_lines([metric(1.0)]))
    assert await server.ask(database, "SELECT value FROM monitoring.messages") == [(1.0,)]


async def test_check_names_missing_database_and_schema(server: Server) -> None:
    database = await server.database()
    with pytest.raises(ConfigError, match='url: .*"nowhere" does not exist'):
        await server.sink("nowhere").check()
    with pytest.raises(ConfigError, match="no schema has been selected"):
        async with PostgresSink(
            url=server.url(database) + "?search_path=nowhere", password_file=str(server.secret)
        ):
            pass


@pytest.mark.parametrize("name", ["series", "samples", "messages"])
async def test_check_refuses_foreign_table_of_same_name(server: Server, name: str) -> None:
    """Nothing is created."""
    database = await server.database()
    await server.ask(database, f"CREATE TABLE {name} (mine int)")
    with pytest.raises(ConfigError, match=f'url: .*"{name}" already exists'):
        async with server.sink(database):
            pass
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    assert await server.ask(database, tables) == [(name,)]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1", "url: .* is not a postgresql://"),
        ("127.0.0.1:5432", "url: .* is not a postgresql://"),
        ("postgres//u:secret@h", r"url: '\*\*\*@h' is not a postgresql://"),
        ("postgresql://127.0.0.1:port/db", "url: .* is not a postgresql://"),
        ("postgresql://u:p@host/db", "url: must not contain a password"),
        ("postgresql://host/db?user=u&password=p", "url: must not contain a password"),
    ],
)
def test_invalid_url_is_refused(url: str, reason: str) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError, match=reason):
        PostgresSink(url=url)


async def test_invalid_url_parameter_is_refused() -> None:
    """Also if only the library knows the parameter."""
    sink = PostgresSink(url="postgresql://127.0.0.1/db?sslmode=perhaps")
    with pytest.raises(ConfigError, match="url: .*sslmode"):
        await sink.check()


async def test_unreadable_password_file_is_named(tmp_path: Path) -> None:
    """With its option and path."""
    path = tmp_path / "password"
    with pytest.raises(ConfigError, match=f"password_file: {path}"):
        await PostgresSink(password_file=str(path)).check()
