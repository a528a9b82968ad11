"""Rows that the site's own constraints and triggers refuse become dead letters; others arrive."""

from array import array
from collections import Counter

import pytest

from ccpipe.errors import RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.message import Message
from ccpipe.sinks.postgres.sonar import PostgresSonarSink
from tests.bus.envelopes import JOBS, SAMPLE
from tests.deliveries import delivered, provenance_of
from tests.servers.postgres import Server, sent
from tests.sinks.conftest import NOON, Given, carry, metric

RAISING = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF {condition} THEN RAISE EXCEPTION 'not here'{how}; END IF;
        RETURN NEW;
    END $$
"""
BEFORE = "CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()"
DEFERRED = """
    CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION refuse()
"""


def trigger(table: str, condition: str, how: str = "", when: str = BEFORE) -> list[str]:
    return [RAISING.format(condition=condition, how=how), when.format(table=table)]


REFUSALS = {
    "check": ["ALTER TABLE samples ADD CHECK (value <> 7)"],
    "not null": ["ALTER TABLE samples ALTER value SET NOT NULL"],
    "unique": ["CREATE UNIQUE INDEX ON samples (time, value)"],
    "foreign key": [
        "CREATE TABLE hosts (name text PRIMARY KEY)",
        "INSERT INTO hosts VALUES ('n1')",
        "ALTER TABLE series ADD FOREIGN KEY (hostname) REFERENCES hosts",
    ],
    "trigger": trigger("samples", "NEW.value = 7"),
    "trigger of series": trigger("series", "NEW.hostname = 'elsewhere'"),
    "state of its own": trigger("samples", "NEW.value = 7", " USING ERRCODE = '45001'"),
    "division by zero": trigger("samples", "1 / (NEW.value - 7)::int = 5"),
    "at the commit": trigger("samples", "NEW.value = 7", when=DEFERRED),
}


@pytest.mark.parametrize(("name", "statements"), REFUSALS.items(), ids=REFUSALS)
async def test_refused_rows_become_dead_letters(
    server: Server, name: str, statements: list[str]
) -> None:
    """All other rows of the batch and of later ones are stored, and the bridge continues."""
    database = await server.database()
    async with server.sink(database) as sink:
        await sink.write(to_lines([metric(-1.0)]))
    for statement in statements:
        await server.ask(database, statement)
    good = [metric(float(value), time=NOON + value) for value in range(100, 400)]
    bad = [metric("text" if name == "not null" else 7.0, hostname="elsewhere") for _ in range(3)]
    kept = [metric(-1.0), *good, *bad[: name == "unique"]]
    letters = await carry(
        Given([*good[:60], bad[0], *good[60:100]], [*good[100:], *bad[1:]]), server.sink(database)
    )
    assert await server.messages(database) == Counter(map(sent, kept))
    assert len(letters) == (2 if name == "unique" else 3)
    for letter in letters:
        assert b"hostname=elsewhere" in letter.original
        assert "\n" not in letter.reason
        assert database in letter.reason


async def test_refused_rows_inside_message_become_dead_letters(server: Server) -> None:
    """The halves of one message are stored too, and its id with the rest of it."""
    database = await server.database()
    async with server.sink(database):
        pass
    await server.ask(database, "ALTER TABLE samples ADD CHECK (value::int % 10 <> 7)")
    records = [metric(float(value), time=NOON + value) for value in range(500)]
    column = array("q", [1])
    message = provenance_of(["consumer"], column, column, array("q", [len(records)]))

    letters = await carry(Given(delivered(records, message)), server.sink(database))
    assert len(letters) == 50
    letters = await carry(Given(delivered(records, message)), server.sink(database))
    good = [record for record in records if int(record.value) % 10 != 7]
    assert await server.ask(database, "SELECT count(*) FROM delivered") == [(1,)]
    stored = await server.messages(database)
    assert set(stored) == set(map(sent, good))


async def test_refused_envelopes_become_dead_letters(server: Server) -> None:
    """A constraint on one of Sonar's tables rejects the envelope whose rows violate it."""
    database = await server.database()
    secret = str(server.secret)
    async with PostgresSonarSink(url=server.url(database), password_file=secret) as sink:
        await server.ask(database, "ALTER TABLE sonar_jobs ADD CHECK (cluster = 'elsewhere')")
        with pytest.raises(RejectedError, match="violates check constraint"):
            await sink.write(Envelopes([JOBS]))
        await sink.write(Envelopes([SAMPLE]))


async def test_dropped_partition_is_created_again(server: Server) -> None:
    """PostgreSQL reports it as a violated check, but the rows are not at fault."""
    database = await server.database()
    first, second = metric(1.0), metric(2.0)
    async with server.sink(database) as sink:
        for _ in range(2):  # the second finds the partition in the sink's memory
            await sink.write(to_lines([first]))
        [(name,)] = await server.ask(
            database, "SELECT inhrelid::regclass::text FROM pg_inherits "
            "WHERE inhparent = 'samples'::regclass AND inhrelid::regclass::text ~ '[0-9]{8}$'"
        )  # fmt: skip
        await server.ask(database, "DROP TABLE samples_other")
        await server.ask(database, f"DROP TABLE {name}")
        with pytest.raises(UnavailableError, match="no partition"):
            await sink.write(to_lines([second]))
        await sink.write(to_lines([second]))
    assert await server.messages(database) == Counter([sent(second)])


async def test_exhausted_sequence_rejects_no_row(server: Server) -> None:
    """Series without a number wait for the administrator; nothing becomes a dead letter."""
    database = await server.database()
    async with server.sink(database) as sink:
        await sink.write(to_lines([metric(1.0)]))
        await server.ask(database, "ALTER TABLE series ALTER id SET MAXVALUE 2")
        new = [Message(name, {"hostname": "n1"}, 1.0, NOON) for name in ("a", "b")]
        with pytest.raises(UnavailableError, match="reached maximum value"):
            await sink.write(to_lines(new))
        await server.ask(database, "ALTER TABLE series ALTER id SET NO MAXVALUE")
        await sink.write(to_lines(new))
