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


async def test_a_server_that_goes_and_comes_back(server: Server) -> None:
    """While the server is down writes may be tried again; back, it gets what it missed, once."""
    database = await server.database()
    messages = [metric(float(n), time=NOON + n * SECOND) for n in range(4)]
    async with server.sink(database) as sink:
        await sink.write(to_lines([messages[0]]))
        server.stop()
        try:
            for _ in range(2):
                with pytest.raises(UnavailableError, match=f"127.0.0.1/{database}"):
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


async def test_a_server_that_says_nothing() -> None:
    """After `timeout` a write is given up, to be tried again."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/db"
        async with PostgresSink(url=url, timeout=Duration(0.1)) as sink:
            with pytest.raises(UnavailableError, match="(?i)timeout"):
                await sink.write(to_lines([metric(1.0)]))


async def test_a_lock_that_stays(server: Server) -> None:
    """A table that somebody holds costs us `timeout`; what we gave up is not written later."""
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


async def test_a_wrong_password(server: Server, tmp_path: Path) -> None:
    """A wrong password is told before anything starts, and so is none where one is needed."""
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    with pytest.raises(DeniedError, match="password authentication failed"):
        async with server.sink(password_file=str(wrong)):
            pass
    with pytest.raises(DeniedError, match="password"):
        await server.sink(password_file="").check()


async def test_check_touches_nothing(server: Server) -> None:
    """``check()`` is content before the tables are there and after, and makes none."""
    database = await server.database()
    await server.sink(database).check()
    assert await server.ask(database, "SELECT to_regclass('samples')::text") == [(None,)]
    async with server.sink(database):
        pass
    await server.sink(database).check()


async def test_rights(server: Server) -> None:
    """Without rights we are denied; rights on the tables are enough to write to them."""
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


async def test_a_schema_of_its_own(server: Server) -> None:
    """``search_path`` in the address says where the tables are."""
    database = await server.database()
    await server.ask(database, "CREATE SCHEMA monitoring")
    url = server.url(database) + "?search_path=monitoring"
    async with PostgresSink(url=url, password_file=str(server.secret)) as sink:
        await sink.write(to_lines([metric(1.0)]))
    assert await server.ask(database, "SELECT value FROM monitoring.messages") == [(1.0,)]


async def test_places_that_are_wrong(server: Server) -> None:
    """No such database and no such schema are named before the start."""
    database = await server.database()
    with pytest.raises(ConfigError, match='url: .*"nowhere" does not exist'):
        await server.sink("nowhere").check()
    with pytest.raises(ConfigError, match="no schema has been selected"):
        async with PostgresSink(
            url=server.url(database) + "?search_path=nowhere", password_file=str(server.secret)
        ):
            pass


@pytest.mark.parametrize("name", ["series", "samples", "messages"])
async def test_a_name_that_is_taken(server: Server, name: str) -> None:
    """A table of somebody else in our place is named before the start, and nothing is made."""
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
def test_an_address_that_cannot_be(url: str, reason: str) -> None:
    """A wrong address is named before anything starts."""
    with pytest.raises(ConfigError, match=reason):
        PostgresSink(url=url)


async def test_an_option_in_the_address_that_cannot_be() -> None:
    """What only the library understands of the address is named as early."""
    sink = PostgresSink(url="postgresql://127.0.0.1/db?sslmode=perhaps")
    with pytest.raises(ConfigError, match="url: .*sslmode"):
        await sink.check()


async def test_a_password_that_cannot_be_read(tmp_path: Path) -> None:
    """It is named by its option and file."""
    path = tmp_path / "password"
    with pytest.raises(ConfigError, match=f"password_file: {path}"):
        await PostgresSink(password_file=str(path)).check()
