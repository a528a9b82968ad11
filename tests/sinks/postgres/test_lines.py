"""``PostgresSink`` against a real server: what is sent is what it keeps."""

import asyncio
import importlib
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.config import Duration
from ccpipe.errors import (
    ConfigError,
    DeniedError,
    MissingExtra,
    RejectedError,
    UnavailableError,
)
from ccpipe.formats.lineprotocol import Lines, decode, to_lines
from ccpipe.message import Message, Uint, Value
from ccpipe.sinks.postgres import PostgresSink, lines
from ccpipe.sinks.postgres.migrations import LOCK
from ccpipe.sinks.postgres.series_rows import TAG_COLUMNS
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.servers.postgres import PASSWORD, Server, sent
from tests.sinks.conftest import NOON, SECOND, Given, carry, messages_with, metric, names


def without_nul(message: Message) -> bool:
    """Say whether PostgreSQL can keep the message."""
    return not (isinstance(message.value, str) and "\0" in message.value)


@settings(max_examples=30)
@given(
    st.lists(
        messages_with(**dict.fromkeys(TAG_COLUMNS, names)).filter(without_nul),
        min_size=1,
        max_size=20,
    )
)
def test_what_is_sent_is_what_it_keeps(server: Server, messages: list[Message]) -> None:
    """Every type of value, every name and every nanosecond arrive exactly, and nothing else."""

    async def send() -> Counter[Any]:
        async with server.sink() as sink:
            await sink.database.connection.execute("TRUNCATE samples")
            await sink.write(messages)
            return await server.messages("postgres")

    assert asyncio.run(send()) == Counter(map(sent, messages))


async def test_the_outermost_values(server: Server) -> None:
    """Integers of 64 bits are exact, a line without time is kept, and long names have room."""
    database = await server.database()
    numbers: Sequence[Value] = [-(2**63), 2**63 - 1, Uint(0), Uint(10**16), Uint(2**64 - 1), -0.0]
    messages = [metric(value, n=str(n)) for n, value in enumerate(numbers)]
    messages += [
        Message("m", {}, "no time", None),
        Message("m", {"t": "x" * 10_000}, "long " * 100_000, NOON + 1),
        metric(1.0, time=-(2**63) + 2),
        metric(1.0, time=2**63 - 2),
    ]
    async with server.sink(database) as sink:
        await sink.write(messages)
    assert await server.messages(database) == Counter(map(sent, messages))
    rows = await server.ask(database, "SELECT name FROM messages WHERE time = '-infinity'")
    assert rows == [("m",)]


async def test_a_series_is_stored_once(server: Server) -> None:
    """However it is spelled, in whichever payload, by whichever bridge; fields keep it apart."""
    database = await server.database()
    payloads = [
        b"m,a=1,hostname=n1 value=1,other=2 1740052800\n",
        b"m,hostname=n1,a=1 value=3 1740052801\n",
        b"m,hostname=n2,a=1 value=4 1740052801\n",
    ]
    for _ in range(2):
        async with server.sink(database) as sink:
            for payload in payloads:
                await sink.write(decode(payload))
    rows = await server.ask(database, "SELECT hostname, field, tags::text FROM series")
    assert Counter(rows) == Counter(
        [
            ("n1", "value", '{"a": "1"}'),
            ("n1", "other", '{"a": "1"}'),
            ("n2", "value", '{"a": "1"}'),
        ]
    )
    assert await server.ask(database, "SELECT count(*) FROM messages") == [(8,)]


async def test_several_bridges_at_once(server: Server) -> None:
    """Bridges that start together make the tables once, and one id for each series."""
    database = await server.database()
    batches = [[metric(float(n), n=str(n), round=str(r)) for n in range(300)] for r in range(3)]

    async def bridge(order: int) -> None:
        async with server.sink(database) as sink:
            for batch in batches:
                await sink.write(batch[::order])

    other = await asyncpg.connect(server.url(database), password=PASSWORD)
    try:
        await other.execute(f"SELECT pg_advisory_lock({LOCK})")
        bridges = asyncio.gather(*(bridge(order) for order in (1, -1, 1, -1)))
        await server.waiting(database, 4)  # so that all find no tables at one moment
    finally:
        await other.close()
    await bridges
    assert await server.ask(database, "SELECT count(*) FROM series") == [(900,)]
    expected = Counter(sent(message) for batch in batches for message in batch * 4)
    assert await server.messages(database) == expected


async def test_many_new_series(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made some at a time, each once, also where bridges meet the same ones."""
    monkeypatch.setattr(lines, "MAX_ASKED", 7)
    database = await server.database()
    batch = [metric(float(n), n=str(n)) for n in range(100)]

    async def bridge(order: int) -> None:
        async with server.sink(database) as sink:
            await sink.write(batch[::order])

    await asyncio.gather(*(bridge(order) for order in (1, -1, 1)))
    assert await server.ask(database, "SELECT count(*) FROM series") == [(100,)]
    assert await server.messages(database) == Counter(sent(message) for message in batch * 3)


async def test_a_write_is_all_or_nothing(server: Server) -> None:
    """Where a row is refused no other of its batch stays."""
    database = await server.database()
    async with server.sink(database) as sink:
        await sink.write([metric(1.0)])
        await server.ask(database, "ALTER TABLE samples ADD CHECK (value < 100)")
        with pytest.raises(UnavailableError, match="violates check constraint"):
            await sink.write([*(metric(2.0) for _ in range(1000)), metric(100.0)])
        await sink.write([metric(3.0)])
    assert await server.ask(database, "SELECT value FROM samples") == [(1.0,), (3.0,)]


async def test_texts_with_nul(server: Server) -> None:
    """PostgreSQL has no text with NUL: such a record is named, and its neighbours are kept."""
    database = await server.database()
    records = [metric(1.0), metric("a\0b"), metric("text"), metric("\0")]
    async with server.sink(database) as sink:
        with pytest.raises(RejectedError, match="NUL") as caught:
            await sink.write(records)
    assert caught.value.indices == [1, 3]
    letters = await carry(Given(to_lines(records)), server.sink(database))
    assert [letter.original.count(b"\0") for letter in letters] == [1, 1]
    assert await server.messages(database) == Counter(map(sent, [records[0], records[2]]))


async def test_names_with_nul(server: Server) -> None:
    """A name with NUL, which Influx' grammar allows, becomes a dead letter; the others arrive."""
    database = await server.database()
    body = b"m,t=a value=1 1740052800\nm,t=\0 value=2 1740052800\n\0m value=3 1740052800\n"
    lines = decode(body + b"m,t=b value=4 1740052800\n", dialect="influx")
    assert len(lines) == 4
    letters = await carry(Given(lines), server.sink(database))
    assert len(letters) == 2
    rows = await server.ask(database, "SELECT value FROM samples")
    assert sorted(rows) == [(1.0,), (4.0,)]


async def test_nothing_is_sent_of_nothing(server: Server) -> None:
    """An empty batch is safe at once."""
    async with server.sink() as sink:
        await sink.write([])
        await sink.write(Lines())


async def test_a_server_that_goes_and_comes_back(server: Server) -> None:
    """While the server is down writes may be tried again; back, it gets what it missed, once."""
    database = await server.database()
    messages = [metric(float(n), time=NOON + n * SECOND) for n in range(4)]
    telemetry = Telemetry()

    async def come_back() -> None:
        await eventually(lambda: telemetry.total(telemetry.retries) > 0)
        await asyncio.to_thread(server.start)

    async with server.sink(database) as sink:
        await sink.write([messages[0]])
        server.stop()
        try:
            for _ in range(2):
                with pytest.raises(UnavailableError, match=f"127.0.0.1/{database}"):
                    await sink.write([messages[1]])
            with pytest.raises(UnavailableError):
                await sink.check()
            source = Given([messages[2]], [messages[3]])
            letters, _ = await asyncio.gather(
                carry(source, server.sink(database), telemetry), come_back()
            )
        finally:
            if server.process.poll() is not None:
                server.start()
        assert letters == []
        await sink.write([messages[1]])
    assert await server.messages(database) == Counter(map(sent, messages))


async def test_a_server_that_says_nothing() -> None:
    """After `timeout` a write is given up, to be tried again."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/db"
        async with PostgresSink(url=url, timeout=Duration(0.1)) as sink:
            with pytest.raises(UnavailableError, match="(?i)timeout"):
                await sink.write([metric(1.0)])


async def test_a_lock_that_stays(server: Server) -> None:
    """A table that somebody holds costs us `timeout`; what we gave up is not written later."""
    database = await server.database()
    async with server.sink(database, timeout=Duration(0.3)) as sink:
        await sink.write([metric(1.0)])
        other = await asyncpg.connect(server.url(database), password=PASSWORD)
        try:
            await other.execute("BEGIN; LOCK TABLE samples")
            with pytest.raises(UnavailableError, match="timeout|Timeout"):
                await sink.write([metric(2.0)])
            await server.waiting(database, 0)
        finally:
            await other.close()
        await sink.write([metric(2.0)])
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
            await guest.write([metric(1.0)])
    await server.ask(
        database, f"GRANT SELECT, INSERT, DELETE ON series, samples, delivered TO guest_{database}"
    )
    await guest.check()
    async with guest:
        await guest.write([metric(1.0)])
    assert await server.messages(database) == Counter([sent(metric(1.0))])


async def test_a_schema_of_its_own(server: Server) -> None:
    """``search_path`` in the address says where the tables are."""
    database = await server.database()
    await server.ask(database, "CREATE SCHEMA monitoring")
    url = server.url(database) + "?search_path=monitoring"
    async with PostgresSink(url=url, password_file=str(server.secret)) as sink:
        await sink.write([metric(1.0)])
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


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two\nlines", b"\xff"])
async def test_a_password_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    """A password that is missing or no line of text is named by its option and file."""
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"password_file: {path}"):
        await PostgresSink(password_file=str(path)).check()


def test_without_asyncpg(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library is missing the error says what to type."""
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    for name in [name for name in sys.modules if name.startswith("ccpipe.sinks.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match=r"pip install 'ccpipe\[postgres\]'"):
        importlib.import_module("ccpipe.sinks.postgres")
