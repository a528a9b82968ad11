"""``InfluxdbSink`` against the real InfluxDB 1, and the documentation of 2 and 3."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.config import Duration
from ccpipe.errors import ConfigError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Precision, decode, encode, to_lines
from ccpipe.message import Message, Uint, Value
from ccpipe.sinks.influxdb import InfluxdbSink, payload
from tests.conftest import free_port
from tests.servers.influxdb import InfluxDB
from tests.sinks.answers import Answers
from tests.sinks.conftest import NOON, SECOND, Given, carry, carry_again, metric, names


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InfluxDB]:
    with InfluxDB(tmp_path_factory.mktemp("store") / "influxdb") as store:
        store.query("CREATE DATABASE metrics")
        yield store


def sink_of(store: InfluxDB, **options: Any) -> InfluxdbSink:
    return InfluxdbSink(url=store.url, database="metrics", timeout=Duration(60), **options)


@pytest.mark.parametrize("precision", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_checked_lines_are_sent_unchanged(
    store: InfluxDB, precision: Precision, compression: Literal["none", "gzip"]
) -> None:
    """As the same bytes, for any unit of their timestamps."""
    name = f"through_{precision}_{compression}"
    digits = {"s": "", "ms": "123", "us": "123456", "ns": "123456789"}[precision]
    line = f"{name},hostname=n1,type-id=0,a=b\\ c value=1.5,other=3i 1740052800{digits}\n".encode()
    lines = decode(line + b"bad line\n", precision=precision)
    assert payload(lines) == (line, precision)
    async with sink_of(store, compression=compression) as sink:
        await sink.write(lines)
    assert store.points(name) == [
        {"time": int(f"1740052800{digits:0<9}"), "hostname": "n1", "type-id": "0", "a": "b c",
         "value": 1.5, "other": 3}
    ]  # fmt: skip


values: st.SearchStrategy[Value] = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)


@given(
    values,
    st.dictionaries(names.map("t".__add__), names, max_size=2),
    st.integers(0, 2**62),
    st.booleans(),
)
def test_influxdb_stores_records_exactly(
    store: InfluxDB, value: Value, tags: dict[str, str], when: int, are_lines: bool
) -> None:
    """Numbers, integers of 64 bits, booleans, texts with any character, names, nanoseconds."""
    name = f"sent_{time.time_ns()}"
    message = Message(name, tags, value, when)

    async def send() -> None:
        async with sink_of(store) as sink:
            records = decode(encode([message], precision="ns"), precision="ns")
            await sink.write(to_lines(records if are_lines else [message]))

    asyncio.run(send())
    (kept,) = store.points(name)
    assert type(kept["value"]) is type(value) or isinstance(value, float)
    if isinstance(value, float):  # which it prints without an exponent
        kept["value"] = float(kept["value"])
    assert kept == {"time": when, "value": value, **tags}


async def test_influxdb_reads_numbers_with_bare_point(store: InfluxDB) -> None:
    """Unlike other stores."""
    async with sink_of(store) as sink:
        await sink.write(decode(b"dot,n=1 value=.5 1\ndot,n=2 value=1. 1\ndot,n=3 value=-.5e1 1\n"))
    assert [row["value"] for row in store.points("dot")] == [0.5, 1, -5]


async def test_texts_and_numbers_of_one_line_are_one_point(store: InfluxDB) -> None:
    """With the escapes that this store knows."""
    line = b'both,hostname=n1 value=1.5,note="a\\nb \\"c\\" \\\\ \\t" 1740052800\n'
    async with sink_of(store) as sink:
        await sink.write(decode(line))
    (kept,) = store.points("both")
    assert (kept["value"], kept["note"]) == (1.5, 'a\nb "c" \\ \t')


async def test_field_of_conflicting_type_is_dead_letter(store: InfluxDB) -> None:
    """With the store's own text; other lines are kept."""
    async with sink_of(store) as sink:
        await sink.write(to_lines([Message("typed", {"n": "0"}, 1.0, NOON)]))
        with pytest.raises(RejectedError, match="field type conflict"):
            await sink.write(to_lines([Message("typed", {"n": "1"}, "text", NOON)]))
    records = [Message("typed", {"n": str(n)}, 7 if n == 3 else 1.5, NOON) for n in range(2, 6)]
    letters = await carry(Given(to_lines(records)), sink_of(store))
    assert [letter.original for letter in letters] == [b"typed,n=3 value=7i 1740052800"]
    assert "field type conflict" in letters[0].reason
    assert {row["n"] for row in store.points("typed")} == {"0", "2", "4", "5"}


async def test_influxdb_1_refuses_unsigned_integers(store: InfluxDB) -> None:
    async with sink_of(store) as sink:
        with pytest.raises(RejectedError, match="invalid number"):
            await sink.write(to_lines([Message("unsigned", {}, Uint(7), NOON)]))


async def test_integers_are_sent_as_floats_if_configured(store: InfluxDB) -> None:
    """So that a metric may have both types."""
    records = decode(b"either,n=1 value=7i 1\neither,n=2 value=7u 1\neither,n=3 value=t,x=1.5 1\n")
    async with sink_of(store, as_floats=True) as sink:
        await sink.write(to_lines([Message("either", {"n": "0"}, 1.5, NOON)]))
        await sink.write(records[:2])
    assert [row["value"] for row in store.points("either")] == [7.0, 7.0, 1.5]
    assert payload(records[2:], as_floats=True)[0] == b"either,n=3 value=t,x=1.5 1\n"


def test_precision_is_unit_of_timestamps() -> None:
    """``auto`` keeps the received one."""
    lines = decode(b"m value=1.5 1740052800123\n")
    assert payload(lines) == (b"m value=1.5 1740052800123\n", "ms")
    assert payload(lines, "s") == (b"m value=1.5 1740052800\n", "s")
    assert payload(lines, "ns") == (b"m value=1.5 1740052800123000000\n", "ns")
    assert payload(decode(b"m value=1.5\n")) == (b"m value=1.5\n", "ns")


async def test_rows_sent_twice_are_stored_once(store: InfluxDB) -> None:
    """After a kill a bridge may receive records again that are already stored."""
    async with sink_of(store) as sink:
        for _ in range(2):
            await sink.write(
                to_lines([Message("twice", {}, 1.0, NOON), Message("twice", {}, "x", NOON, "t")])
            )
    assert len(store.points("twice")) == 1


async def test_writes_continue_after_restart_of_store(tmp_path: Path) -> None:
    """While it is down writes may be retried; then it gets the missing ones."""
    with InfluxDB(tmp_path / "influxdb") as store:
        store.query("CREATE DATABASE metrics")
        store.stop()
        source = Given([metric(1.0)], [metric(2.0, time=NOON + SECOND)])
        await carry_again(source, sink_of(store), store.start)
        assert [row["value"] for row in store.points("cpu_load")] == [1.0, 2.0]


async def test_check_requires_database_and_writes_nothing(store: InfluxDB) -> None:
    await sink_of(store).check()
    with pytest.raises(UnavailableError, match="database not found"):
        await InfluxdbSink(url=store.url, database="other").check()
    with pytest.raises(UnavailableError):
        await InfluxdbSink(url=f"http://127.0.0.1:{free_port()}", database="metrics").check()


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (204, ""),
        (400, '{"code":"invalid","message":"writing requires points"}'),  # 2
        (400, "incoming write was empty"),  # 3
    ],
)
async def test_requests_to_influxdb_2_and_3_follow_their_documentation(
    answers: Answers, tmp_path: Path, status: int, says: str
) -> None:
    """Path, parameters and token; an empty write is answered as they do."""
    secret = tmp_path / "token"
    secret.write_text("t0k3n\n")
    answers.status, answers.text = status, says
    options: dict[str, Any] = {"bucket": "b", "org": "site", "token_file": str(secret)}
    async with InfluxdbSink(url=answers.url, **options) as sink:
        answers.status = 204
        await sink.write(decode(b"m value=1.5 1740052800123456\n"))
        answers.status, answers.text = 422, "points beyond retention policy dropped"
        with pytest.raises(RejectedError, match="beyond retention"):
            await sink.write(to_lines([metric(1.0)]))
        answers.status = 429
        with pytest.raises(UnavailableError):
            await sink.write(to_lines([metric(1.0)]))
    last = answers.requests[1]
    assert last.path_qs == "/api/v2/write?bucket=b&org=site&precision=us"
    assert last.headers["Authorization"] == "Token t0k3n"
    assert answers.bodies[1] == b"m value=1.5 1740052800123456\n"


async def test_bucket_refused_by_influxdb_2_is_configuration_error(answers: Answers) -> None:
    """Another 400 at the start is one, too."""
    answers.status, answers.text = 400, '{"code":"invalid","message":"org is required"}'
    with pytest.raises(ConfigError, match="org is required"):
        await InfluxdbSink(url=answers.url, bucket="b").check()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "database, bucket: set one"),
        ({"database": "d", "bucket": "b"}, "database, bucket: set one"),
        ({"database": "d", "org": "o"}, "org: goes with bucket"),
        ({"bucket": "b", "retention_policy": "r"}, "retention_policy: goes with database"),
    ],
)
def test_influxdb_sink_refuses_invalid_options(options: dict[str, str], reason: str) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError, match=reason):
        InfluxdbSink(**options)  # type: ignore[arg-type] # one of several
