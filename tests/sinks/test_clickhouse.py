"""``ClickHouseSink`` with Debian's ClickHouse, the engine of a current one, and given responses."""

import asyncio
import importlib
import json
import math
import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.config import Duration
from ccpipe.errors import ConfigError, DeniedError, RejectedError, UnavailableError
from ccpipe.formats.clickhouse import COLUMNS, TABLE, RowBinary
from ccpipe.formats.lineprotocol import Lines, decode, to_lines
from ccpipe.message import Message
from ccpipe.records import Provenance
from ccpipe.sinks.clickhouse import ClickHouseSink, token_of
from tests.servers.clickhouse import ClickHouse
from tests.sinks.answers import Answers
from tests.sinks.conftest import (
    NOON,
    SECOND,
    Given,
    carry,
    carry_again,
    messages_with,
    metric,
    names,
)

INSERT = (
    "INSERT INTO default.metrics (name, cluster, hostname, type, type_id, stype, stype_id, tags, "
    "field, time, value, text) FORMAT RowBinary"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    with ClickHouse(tmp_path_factory.mktemp("clickhouse") / "server") as server:
        yield server


@pytest.fixture
def store(server: ClickHouse) -> ClickHouse:
    """Return the server with an empty table."""
    server.create_table()
    return server


def sink_of(store: ClickHouse, **options: Any) -> ClickHouseSink:
    """Return a sink as version 18 needs it."""
    options = {"create_table": False, "deduplicate": False} | options
    return ClickHouseSink(
        url=store.url, user="default", password_file=str(store.password_file),
        timeout=Duration(60), **options,
    )  # fmt: skip


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_values_and_texts_are_stored(store: ClickHouse, compression: str) -> None:
    """With tags in their columns and the time in nanoseconds."""
    lines = decode(
        b"cpu_user,cluster=fox,hostname=n1,type=hwthread,type-id=7 value=1.5 1740052800000000123\n"
        b'slurm,hostname=n1 event="drain\xc3\xa4" 1740052800\n'
        b"up,hostname=n1 value=true,other=3i 1740052800\n"
    )
    assert await carry(Given(lines), sink_of(store, compression=compression)) == []
    assert store.query("SELECT * FROM metrics ORDER BY name, field FORMAT TSV").splitlines() == [
        "cpu_user\tfox\tn1\thwthread\t7\t\t\t0\tvalue\t1740052800000000123\t1.5\t",
        "slurm\t\tn1\t\t\t\t\t0\tevent\t1740052800000000000\tnan\tdrainä",
        "up\t\tn1\t\t\t\t\t0\tother\t1740052800000000000\t3\t",
        "up\t\tn1\t\t\t\t\t0\tvalue\t1740052800000000000\t1\t",
    ]


async def test_no_row_is_lost_while_store_is_killed(store: ClickHouse) -> None:
    """Killed before the first write, it comes back; killed after the last, it has every row."""
    batches = [
        [metric(float(i), time=NOON + (50 * batch + i) * SECOND) for i in range(50)]
        for batch in range(20)
    ]

    def kill() -> None:
        store.process.kill()
        store.process.wait()

    await carry_again(Given(*batches, first=kill), sink_of(store), store.start)
    kill()
    await asyncio.to_thread(store.start)
    assert store.query("SELECT uniqExact(time), sum(value) FROM metrics") == "1000\t24500"


async def test_missing_table_is_waited_for(store: ClickHouse) -> None:
    """It is not the fault of the records."""
    store.query("DROP TABLE metrics")
    await carry_again(Given([metric(1.0)]), sink_of(store), store.create_table)
    assert store.query("SELECT count() FROM metrics") == "1"


async def test_wrong_password_is_denied(store: ClickHouse, tmp_path: Path) -> None:
    """Before any record is sent."""
    (tmp_path / "wrong").write_text("wrong")
    sink = ClickHouseSink(url=store.url, user="default", password_file=str(tmp_path / "wrong"))
    with pytest.raises(DeniedError):
        await sink.check()


async def test_insert_has_token_of_its_messages(answers: Answers) -> None:
    """After the table was created, once."""
    answers.status = 200
    lines = decode(b"m value=1 1\nm value=2 2\n")
    lines.provenance = provenance(7, 8)
    async with ClickHouseSink(url=answers.url) as sink:
        await sink.write(lines)
        await sink.write(decode(b"m value=3 3\n"))
    assert answers.bodies[:2] == [
        b"SELECT 1 FORMAT Null",
        TABLE.format(table="default.metrics").encode(),
    ]
    assert [dict(request.query) for request in answers.requests[2:]] == [
        {"query": INSERT, "async_insert": "0", "insert_deduplication_token": "ccpipe/b:7-8@70"},
        {"query": INSERT, "async_insert": "0"},
    ]


def provenance(*numbers: int) -> Provenance:
    """Return messages of one record each."""
    count = len(numbers)
    times = array("q", [10 * number for number in numbers])
    ends = array("q", range(1, count + 1))
    return Provenance([""] * count, ["ccpipe/b"] * count, array("q", numbers), times, ends)


def test_token_names_runs_of_messages() -> None:
    """Many as their digest; none if a message is unknown: the server then compares the rows."""
    assert token_of(provenance(7, 8, 11)) == "ccpipe/b:7-8@70,ccpipe/b:11-11@110"
    many = [token_of(provenance(*range(first, 1000, 2))) for first in (0, 1)]
    assert [len(token) for token in many] == [64, 64]
    assert many[0] != many[1]
    assert token_of(Provenance.of_message("local.metrics", 3)) == ""
    assert token_of(None) == ""


@pytest.mark.parametrize(
    ("status", "text", "error"),
    [
        (500, "Code: 252. Too many partitions for single INSERT block", RejectedError),
        (500, "Code: 252. Too many parts (300)", UnavailableError),
        (400, "Code: 36. Unknown setting", UnavailableError),
        (404, "Code: 60. Table does not exist", UnavailableError),
        (200, "<html>sign in</html>", UnavailableError),
        (403, "Code: 516. Authentication failed", DeniedError),
    ],
)
async def test_only_too_many_partitions_reject_records(
    answers: Answers, status: int, text: str, error: type[Exception]
) -> None:
    """They are split; other errors are the server's."""
    answers.status = 200
    async with ClickHouseSink(url=answers.url, create_table=False) as sink:
        answers.status, answers.text = status, text
        with pytest.raises(error):
            await sink.write(decode(b"m value=1 1\n"))


@pytest.mark.parametrize("option", ["database", "table"])
def test_names_cannot_contain_statements(option: str) -> None:
    """They are part of each statement."""
    options: dict[str, Any] = {option: "a; DROP TABLE b"}
    with pytest.raises(ConfigError, match=f"^{option}: 'a; DROP TABLE b' is not a name"):
        ClickHouseSink(**options)


# The engine of a current ClickHouse

Query = Callable[..., Any]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Query]:
    """Return a function that runs a statement, with the table of the sink."""
    try:
        chdb: Any = importlib.import_module("chdb.session")
    except ImportError:
        reason = "chdb is not installed: pip install 'ccpipe[clickhouse-engine]'"
        if os.environ.get("CCPIPE_TESTS_STRICT"):
            pytest.fail(reason)
        pytest.skip(reason)
    session = chdb.Session(str(tmp_path_factory.mktemp("engine")))

    def query(text: str) -> Any:
        answer = str(session.query(text, "JSONCompactEachRow"))
        return [json.loads(line) for line in answer.split("\n") if line]

    query("CREATE DATABASE IF NOT EXISTS d")
    yield query
    session.close()


def insert(engine: Query, path: Path, lines: Lines, settings: str = "") -> None:
    """Insert rows as the sink sends them."""
    path.write_bytes(RowBinary().encode(lines))
    columns = ", ".join(COLUMNS)
    engine(
        f"INSERT INTO d.metrics ({columns}) SETTINGS async_insert=0{settings} "  # noqa: S608
        f"SELECT * FROM file('{path}', RowBinary, '{structure(engine)}')"
    )


def structure(engine: Query) -> str:
    rows = engine("SELECT name, type FROM system.columns WHERE database = 'd' ORDER BY position")
    return ", ".join(f"{name} {kind}" for name, kind in rows).replace("'", "\\'")


@pytest.fixture
def table(engine: Query) -> Query:
    engine("DROP TABLE IF EXISTS d.metrics")
    engine(TABLE.format(table="d.metrics"))
    return engine


@pytest.mark.long
def test_repeated_insert_is_ignored(table: Query, tmp_path: Path) -> None:
    """By its token; the same rows under another one are one row with FINAL, or after a merge."""
    lines = decode(b"m,device=sda,hostname=n1,type=node value=1 1740052800000000123\n")
    counts = "SELECT (SELECT count() FROM d.metrics), (SELECT count() FROM d.metrics FINAL)"
    for token, expected in [("a", [1, 1]), ("a", [1, 1]), ("b", [2, 1])]:
        insert(table, tmp_path / "rows", lines, f", insert_deduplication_token='{token}'")
        assert [[int(n) for n in row] for row in table(counts)] == [expected]
    table("OPTIMIZE TABLE d.metrics FINAL")
    assert table("SELECT count() = 1, toString(any(time)), any(tags['device']) FROM d.metrics") == [
        [1, "2025-02-20 12:00:00.000000123", "sda"]
    ]


@pytest.mark.long
def test_later_value_of_same_time_is_kept(table: Query, tmp_path: Path) -> None:
    """As other stores do."""
    for value in (1, 2):
        insert(table, tmp_path / "rows", decode(f"m,type=node value={value} 1\n".encode()))
    assert table("SELECT value FROM d.metrics FINAL") == [[2]]


@pytest.mark.long
def test_engine_reads_back_any_message(engine: Query, tmp_path_factory: Any) -> None:
    """Names, tags, values and nanoseconds survive."""
    path = tmp_path_factory.mktemp("any") / "rows"
    times = st.integers(0, 2**62)

    @given(st.lists(messages_with(type=names).flatmap(
        lambda message: times.map(lambda time: Message(
            message.name, message.tags, message.value, time, message.field
        ))
    ), max_size=5))  # fmt: skip
    def check(messages: list[Message]) -> None:
        engine("DROP TABLE IF EXISTS d.metrics")
        text = TABLE.format(table="d.metrics").replace("Replacing", "")
        engine(text.replace("PARTITION BY toDate(time)\n", ""))  # an insert has many days
        lines = to_lines(messages)
        insert(engine, path, lines, ", insert_deduplicate=0")
        found = engine(
            "SELECT name, type, tags, field, toString(toUnixTimestamp64Nano(time)), "
            "toString(reinterpretAsUInt64(value)), text FROM d.metrics"
        )
        assert sorted(map(repr, found)) == sorted(repr(row_of(each)) for each in lines)

    check()


def row_of(message: Message) -> list[Any]:
    is_text = isinstance(message.value, str)
    number = math.nan if is_text else float(message.value)
    others = {key: value for key, value in message.tags.items() if key != "type"}
    bits = int.from_bytes(array("d", [number]).tobytes(), "little")
    return [
        message.name, message.tags.get("type", ""), others, message.field,
        str(message.time), str(bits), message.value if is_text else "",
    ]  # fmt: skip
