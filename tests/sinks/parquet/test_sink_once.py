"""Messages that are delivered again, also after a kill, are in the files once."""

import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.bus.nats.server import NatsServer
from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message
from ccpipe.records import Provenance
from ccpipe.sinks.parquet import NULL, ParquetSink, files
from ccpipe.sinks.parquet.files import clean_up, join_files, remove_old
from tests.deliveries import delivered, provenance_of
from tests.sinks.conftest import NOON, SECOND, metric
from tests.sinks.kills import LINES, KilledBridges

DAY = 86_400 * SECOND


def delivery(*numbers: int) -> tuple[list[Message], Provenance]:
    records = [
        metric(float(n), time=NOON + row * DAY // 2, cluster=f"c{n % 2}")
        for n in numbers
        for row in range(LINES)
    ]
    ends = array("q", range(LINES, LINES * len(numbers) + 1, LINES))
    times = array("q", [1000 + n for n in numbers])
    return records, provenance_of(["c"] * len(numbers), array("q", numbers), times, ends)


def stored(directory: Path) -> Counter[int]:
    if not list(directory.rglob("*.parquet")):
        return Counter()
    table = duckdb.read_parquet(f"{directory}/**/*.parquet")
    rows = table.aggregate("value, count(*)", "value").fetchall()
    return Counter({int(value): count for value, count in rows})


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=8, unique=True), max_size=5),
    st.booleans(),
)
def test_messages_are_stored_once_in_any_batches(
    batches: Sequence[Sequence[int]], again: bool
) -> None:
    """Halved, joined or in another order, by one bridge or several: each is stored once."""

    async def run(directory: str) -> None:
        sink = ParquetSink(dir=directory)
        for numbers in batches:
            sink = ParquetSink(dir=directory) if again else sink
            await sink.write(to_lines(delivered(*delivery(*numbers))))

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(directory))
        expected = dict.fromkeys({n for batch in batches for n in batch}, LINES)
        assert stored(Path(directory)) == expected


async def test_messages_stored_meanwhile_by_another_bridge_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are detected before our file gets its name."""
    first, second = ParquetSink(dir=str(tmp_path)), ParquetSink(dir=str(tmp_path))
    prepared = first._prepared
    monkeypatch.setattr(first, "_prepared", lambda *arguments: overtaken(prepared(*arguments)))

    def overtaken(file: Any) -> Any:
        monkeypatch.undo()
        asyncio.run(second.write(to_lines(delivered(*delivery(2, 3)))))
        return file

    await first.write(to_lines(delivered(*delivery(1, 2))))
    assert stored(tmp_path) == dict.fromkeys((1, 2, 3), LINES)


async def test_lock_held_by_another_bridge_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stalled bridge with the lock makes others retry, and no file is left."""
    monkeypatch.setattr(files.locked.__wrapped__, "__defaults__", (0.05,))  # type: ignore[attr-defined]
    sink = ParquetSink(dir=str(tmp_path))
    with files.locked(tmp_path), pytest.raises(UnavailableError, match="holds the lock"):
        await sink.write(to_lines(delivered(*delivery(1))))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    await sink.write(to_lines(delivered(*delivery(1))))
    assert stored(tmp_path) == {1: LINES}


async def test_joined_files_keep_rows_times_and_messages(tmp_path: Path) -> None:
    before = Counter[Any]()
    async with ParquetSink(dir=str(tmp_path), compact=False) as sink:
        for number in range(2 * files.JOINED):
            record = metric(float(number), time=NOON + number, n=str(number))
            ids = provenance_of(["c"], array("q", [number]), array("q", [number]), array("q", [1]))
            await sink.write(to_lines(delivered([record], ids)))
            before[float(number), NOON + number, (("n", str(number)),)] += 1
    (directory,) = tmp_path.glob("cluster=*/date=*")
    while join_files(tmp_path, directory, "zstd"):
        pass
    assert len(list(directory.iterdir())) == 2
    table = duckdb.read_parquet(f"{tmp_path}/**/*.parquet")
    rows = table.select("value, epoch_us(time) * 1000 + ns, map_entries(tags)").fetchall()
    after = Counter((v, t, tuple((e["key"], e["value"]) for e in tags)) for v, t, tags in rows)
    assert after == before
    ids = provenance_of(["c"] * 2, array("q", [3, 99]), array("q", [3, 99]), array("q", [1, 2]))
    await ParquetSink(dir=str(tmp_path)).write(
        to_lines(delivered([metric(3.0), metric(99.0)], ids))
    )
    assert stored(tmp_path) == dict.fromkeys([*range(2 * files.JOINED), 99], 1)


async def test_files_left_by_kill_while_joining_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files whose rows are in another one are removed at the next start."""
    async with ParquetSink(dir=str(tmp_path), compact=False) as sink:
        for number in range(files.JOINED):
            await sink.write(to_lines([metric(float(number))]))
    (directory,) = tmp_path.glob("cluster=*/date=*")
    with monkeypatch.context() as patch:
        patch.setattr(files, "remove", lambda *_: None)
        assert join_files(tmp_path, directory, "zstd")
    assert stored(tmp_path) == dict.fromkeys(range(files.JOINED), 2)
    clean_up(tmp_path)
    assert stored(tmp_path) == dict.fromkeys(range(files.JOINED), 1)


async def test_files_with_other_columns_are_not_joined(tmp_path: Path) -> None:
    async with ParquetSink(dir=str(tmp_path), compact=False) as sink:
        for number in range(files.JOINED - 1):
            await sink.write(to_lines([metric(float(number))]))
    (directory,) = tmp_path.glob("cluster=*/date=*")
    pq.write_table(pa.table({"mine": [1]}), directory / "mine.parquet")
    assert not join_files(tmp_path, directory, "zstd")
    assert len(list(directory.iterdir())) == files.JOINED


async def test_retention_removes_older_days_only(tmp_path: Path) -> None:
    for day in ("2020-01-01", "2999-01-01", NULL):
        (tmp_path / "cluster=c" / f"date={day}").mkdir(parents=True)
    remove_old(tmp_path, 86_400)
    left = {path.name for path in tmp_path.glob("cluster=c/*")}
    assert left == {"date=2999-01-01", f"date={NULL}"}


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
async def test_killed_bridges_store_each_line_once(
    nats_server: NatsServer, tmp_path: Path, kills: int
) -> None:
    """With the recipe as shipped, each published line is in the files exactly once."""
    directory = tmp_path / "store"
    directory.mkdir()
    bridges = KilledBridges("parquet", nats_server, tmp_path, CCPIPE_SINK__DIR=str(directory))

    async def found() -> Counter[int]:
        while True:
            try:
                return stored(directory)
            except duckdb.IOException:  # files were joined while it read
                await asyncio.sleep(0.01)

    rows = await bridges.run(kills, found)
    clean_up(directory)
    assert stored(directory) == dict.fromkeys(range(bridges.published), LINES)
    assert len(rows) == bridges.published > 100


KILLS = 20
CLUSTERS, DAYS, ROWS = 3, 4, 30

WRITER = f"""
import asyncio, itertools, sys
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message
from ccpipe.sinks.parquet import ParquetSink

def batch(number):
    return to_lines(
        Message("m", {{"cluster": f"c{{c}}", "hostname": "n1"}}, number, day * 86400 * 10**9 + row)
        for c in range({CLUSTERS}) for day in range({DAYS}) for row in range({ROWS})
    )

async def main(directory, start):
    async with ParquetSink(dir=directory) as sink:
        for number in itertools.count(int(start)):
            await sink.write(batch(number))
            print(number, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def start(directory: Path, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(directory), str(number)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def kill(writer: subprocess.Popen[str], chance: random.Random) -> list[int]:
    """Kill a writer a random time after a random batch; return the batches it reported."""
    with writer:
        assert writer.stdout is not None
        reported = []
        for _ in range(chance.randrange(1, 4)):
            line = writer.stdout.readline()
            assert line, "the writer must live until it is killed"
            reported.append(int(line))
        time.sleep(chance.random() * 0.03)  # the time is random
        writer.kill()
        reported += map(int, writer.stdout.read().split())
    assert writer.returncode == -signal.SIGKILL
    return reported


@pytest.mark.long
def test_killed_writers_leave_complete_files(tmp_path: Path) -> None:
    """Each file is readable, and every batch reported as written is there.

    Two writers share the directory, and each is killed. Another batch may be there in part: it was
    not acknowledged, so it will be redelivered.
    """
    chance = random.Random()
    reported: set[int] = set()
    for attempt in range(KILLS // 2):
        writers = [start(tmp_path, (2 * attempt + n) * 1_000_000) for n in range(2)]
        for writer in writers:
            reported.update(kill(writer, chance))
        clean_up(tmp_path)  # as the next writer does when it starts
        for path in tmp_path.rglob("*.parquet"):
            pq.ParquetFile(path).read()
        files = duckdb.read_parquet(f"{tmp_path}/**/*.parquet")
        rows = dict(files.aggregate("int, count(*)", "int").fetchall())
        whole = CLUSTERS * DAYS * ROWS
        assert {number for number, count in rows.items() if count == whole} >= reported
        assert max(rows.values()) == whole
    leftovers = list(tmp_path.rglob(".*.tmp"))
    assert leftovers, "no kill hit a write in its middle: the test has tested nothing"
