"""``DeltaSink``: rows, errors, and what S3-compatible storage is asked for."""

import asyncio
import importlib
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.config import Duration
from ccpipe.errors import (
    ConfigError,
    CreateError,
    DeniedError,
    MissingExtra,
    RejectedError,
    UnavailableError,
)
from ccpipe.formats.delta import DeltaAddress, DeltaTable, write_deltalake
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.lineprotocol.arrow import to_arrow
from ccpipe.message import Message, Uint
from ccpipe.sinks.delta import DeltaSink
from ccpipe.sinks.parquet import ParquetSink
from tests.conftest import free_port
from tests.servers.s3 import BUCKET, Storage
from tests.sinks.conftest import (
    NOON,
    Given,
    carry,
    carry_again,
    forbidden,
    messages_with,
    metric,
    names,
)
from tests.sinks.delta.conftest import rows_of

clusters = names | st.sampled_from(["..", ".", "../../x", "/", "NULL", "007", "a=b", "*", "%41"])


@settings(max_examples=25, deadline=None)
@given(st.lists(messages_with(cluster=clusters), min_size=1, max_size=5))
def test_table_has_every_field_of_every_line(messages: list[Message]) -> None:
    """With its exact value, its nanoseconds and its day, for any cluster name."""
    lines = to_lines(messages)
    table = to_arrow(lines)
    expected = []
    for row, nanoseconds in zip(table.drop(["time"]).to_pylist(), lines.times, strict=True):
        micros, beyond = divmod(nanoseconds, 1000)
        day = micros // (86_400 * 10**6)
        number = None if row["uint"] is None else Decimal(row["uint"])
        more = {"time": micros, "ns": beyond, "date": day, "uint": number}
        expected.append(row | more | {"cluster": row["cluster"] or None})
    with tempfile.TemporaryDirectory() as directory:
        place: dict[str, Any] = {"url": f"{directory}/table"}
        asyncio.run(write(place, messages))
        found = rows_of(place)
        as_numbers = found.set_column(
            found.schema.get_field_index("time"), "time", found["time"].cast("int64")
        )
        days = as_numbers["date"].cast("int32")
        found = as_numbers.set_column(as_numbers.schema.get_field_index("date"), "date", days)
        assert sorted(map(ordered, found.to_pylist())) == sorted(map(ordered, expected))
        assert {path.name for path in Path(directory).iterdir()} == {"table"}


def ordered(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


async def write(place: dict[str, Any], *batches: list[Message]) -> None:
    async with DeltaSink(**place) as sink:
        for batch in batches:
            await sink.write(to_lines(batch))


async def test_rows_are_in_partitions_of_cluster_and_day(place: dict[str, Any]) -> None:
    """Rows without a cluster or a time are in the null partition."""
    timeless = Message("m", {}, Uint(2**64 - 1), None)
    await write(place, [metric(1.0), metric(2.0, time=NOON + 86_400 * 10**9), timeless])
    table = DeltaAddress(**place).open()
    assert table.metadata().partition_columns == ["cluster", "date"]
    found = {path.rpartition("/")[0].rpartition("table/")[2] for path in table.file_uris()}
    null = "__HIVE_DEFAULT_PARTITION__"
    assert {*found} == {
        "cluster=fox/date=2025-02-20",
        "cluster=fox/date=2025-02-21",
        f"cluster={null}/date={null}",
    }


async def test_lines_are_acknowledged_when_they_are_committed(place: dict[str, Any]) -> None:
    """Through a pipe; no file remains that is not of the table."""
    source = Given([metric(1.0)], [metric(2.0)])
    assert await carry(source, DeltaSink(**place)) == []
    assert sorted(rows_of(place)["value"].to_pylist()) == [1.0, 2.0]
    assert DeltaAddress(**place).open().vacuum(
        0, dry_run=True, enforce_retention_duration=False, full=True
    ) == []  # fmt: skip


async def test_name_too_long_for_a_directory_becomes_dead_letter(tmp_path: Path) -> None:
    """Of a cluster; other rows are stored."""
    place: dict[str, Any] = {"url": str(tmp_path / "table")}
    source = Given([metric(1.0), metric(2.0, cluster="x" * 300), Message("m", {}, 3.0, NOON)])
    [letter] = await carry(source, DeltaSink(**place))
    assert "too long" in letter.reason
    assert sorted(rows_of(place)["value"].to_pylist()) == [1.0, 3.0]
    with pytest.raises(RejectedError) as refused:
        await write(place, [metric(1.0), metric(2.0, cluster="ü" * 100)])
    assert refused.value.indices == [1]


async def test_storage_that_is_killed_is_written_to_when_it_is_back(storage: Storage) -> None:
    """The bridge starts without it, too."""
    place: dict[str, Any] = {"url": f"s3://{BUCKET}/t", **storage.options}
    storage.process.kill()
    storage.process.wait()

    def repair() -> None:
        asyncio.run(storage.start())
        storage.client.create_bucket(Bucket=BUCKET)  # moto keeps nothing

    await carry_again(Given([metric(1.0)]), DeltaSink(**place), repair)
    assert rows_of(place)["value"].to_pylist() == [1.0]


async def test_large_file_is_uploaded_by_one_request(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a killed bridge leaves no upload in parts open."""
    place: dict[str, Any] = {"url": f"s3://{BUCKET}/t", **storage.options}
    texts = [Message("m", {"cluster": "c"}, f"{n:0200}" * 50, NOON + n) for n in range(1500)]
    await write(place | {"compression": "none"}, texts)
    log = storage.log.read_text()
    [put] = [line for line in log.splitlines() if '"PUT' in line and ".parquet" in line]
    assert "uploadId" not in put
    assert "?uploads" not in log
    [size] = DeltaAddress(**place).open().get_add_actions()["size_bytes"].to_pylist()
    assert size > 10 * 2**20


async def test_event_loop_runs_while_the_storage_hangs(tmp_path: Path) -> None:
    """The library keeps Python's lock in some of its calls: those are not used."""
    is_done = asyncio.Event()

    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await is_done.wait()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (tmp_path / "key").write_text("secret")
    sink = DeltaSink(
        url="s3://mon/t", endpoint=f"http://127.0.0.1:{port}", access_key="k",
        secret_key_file=str(tmp_path / "key"),
    )  # fmt: skip
    pauses, last = [0.0], time.monotonic()
    writing = asyncio.create_task(sink.write(to_lines([metric(1.0)])))
    for _ in range(100):
        await asyncio.sleep(0.01)
        pauses.append(time.monotonic() - last)
        last = time.monotonic()
    assert not writing.done()
    server.close()
    is_done.set()
    with pytest.raises(UnavailableError):
        await writing
    assert max(pauses) < 15, "a request lasts 30 s"


async def test_check_finds_what_would_fail(storage: Storage, tmp_path: Path) -> None:
    """And creates nothing."""
    good = {"url": f"s3://{BUCKET}/t", **storage.options}
    await DeltaSink(**good).check()
    assert "Contents" not in storage.client.list_objects_v2(Bucket=BUCKET)
    with pytest.raises(UnavailableError, match="NoSuchBucket"):
        await DeltaSink(**good | {"url": "s3://missing/t"}).check()
    unreachable = good | {"endpoint": f"http://127.0.0.1:{free_port()}"}
    with pytest.raises(UnavailableError, match="Connection refused"):
        await DeltaSink(**unreachable).check()
    local = tmp_path / "table"
    await DeltaSink(url=str(local)).check()
    assert not local.exists()


async def test_directory_that_cannot_be_written_ends_the_bridge(tmp_path: Path) -> None:
    """A file in its place, or no permission."""
    (tmp_path / "file").touch()
    with forbidden(tmp_path / "forbidden") as directory:
        for path in (tmp_path / "file", directory / "table"):
            with pytest.raises((CreateError, DeniedError)):
                await DeltaSink(url=str(path)).__aenter__()


async def test_foreign_table_is_refused(tmp_path: Path) -> None:
    """With other columns, or other partitions."""
    path = str(tmp_path / "table")
    write_deltalake(path, to_arrow(to_lines([metric(1.0)])).select(["name", "value"]))
    sink = DeltaSink(url=path)
    with pytest.raises(ConfigError, match="other columns"):
        await sink.check()
    with pytest.raises(ConfigError, match="other columns"):
        await sink.__aenter__()
    assert DeltaTable(path).version() == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"url": "gs://b/t"}, "expected a path or s3://bucket/prefix"),
        ({"url": "s3://"}, "expected a path or s3://bucket/prefix"),
        ({"url": "s3://key:secret@b/t"}, "keys are options"),
        ({"url": "s3://b/t?secret=x"}, "keys are options"),
        ({"url": "/t", "endpoint": "http://x"}, "endpoint and keys are for s3://"),
        ({"url": "s3://b/t", "access_key": "k"}, "go together"),
        ({"url": "/t", "vacuum": Duration(60)}, "at least 1h"),
    ],
)
def test_contradicting_options_are_refused(options: dict[str, Any], reason: str) -> None:
    """And a secret in the address is not repeated."""
    with pytest.raises(ConfigError, match=reason) as refused:
        DeltaSink(**options)
    assert "secret@" not in str(refused.value)
    assert "=x" not in str(refused.value)


@pytest.mark.parametrize("library", ["deltalake", "pyarrow", "numpy"])
def test_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for name in [name for name in sys.modules if name.startswith("ccpipe.sinks.delta")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match=rf"{library} .*pip install 'ccpipe\[delta\]'"):
        importlib.import_module("ccpipe.sinks.delta")


async def test_rows_in_memory_are_bounded_by_the_batch() -> None:
    """The limits are those of Parquet files."""
    assert DeltaSink.limits == ParquetSink.limits
