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
def test_whatever_the_batches(batches: Sequence[Sequence[int]], again: bool) -> None:
    """Halved, joined or in another order, to one bridge or several: each is stored once."""

    async def run(directory: str) -> None:
        sink = ParquetSink(dir=directory)
        for numbers in batches:
            sink = ParquetSink(dir=directory) if again else sink
            await sink.write(to_lines(delivered(*delivery(*numbers))))

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(directory))
        expected = dict.fromkeys({n for batch in batches for n in batch}, LINES)
        assert stored(Path(directory)) == expected


async def test_another_bridge_was_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another bridge wrote while we wrote the same is seen before our file gets its name."""
    first, second = ParquetSink(dir=str(tmp_path)), ParquetSink(dir=str(tmp_path))
    prepared = first._prepared
    monkeypatch.setattr(first, "_prepared", lambda *arguments: overtaken(prepared(*arguments)))

    def overtaken(file: Any) -> Any:
        monkeypatch.undo()
        asyncio.run(second.write(to_lines(delivered(*delivery(2, 3)))))
        return file

    await first.write(to_lines(delivered(*delivery(1, 2))))
    assert stored(tmp_path) == dict.fromkeys((1, 2, 3), LINES)


async def test_a_lock_that_somebody_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge that stands still with the lock costs the others a try, and leaves no file."""
    monkeypatch.setattr(files.locked.__wrapped__, "__defaults__", (0.05,))  # type: ignore[attr-defined]
    sink = ParquetSink(dir=str(tmp_path))
    with files.locked(tmp_path), pytest.raises(UnavailableError, match="holds the lock"):
        await sink.write(to_lines(delivered(*delivery(1))))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    await sink.write(to_lines(delivered(*delivery(1))))
    assert stored(tmp_path) == {1: LINES}


async def test_small_files_are_joined(tmp_path: Path) -> None:
    """Rows, nanoseconds and messages stay what they were; the files become few."""
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


async def test_a_kill_while_files_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files whose rows another one has, and that are still there, go with the next start."""
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


async def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    """A file with other columns is not joined."""
    async with ParquetSink(dir=str(tmp_path), compact=False) as sink:
        for number in range(files.JOINED - 1):
            await sink.write(to_lines([metric(float(number))]))
    (directory,) = tmp_path.glob("cluster=*/date=*")
    pq.write_table(pa.table({"mine": [1]}), directory / "mine.parquet")
    assert not join_files(tmp_path, directory, "zstd")
    assert len(list(directory.iterdir())) == files.JOINED


async def test_retention(tmp_path: Path) -> None:
    """Days that are older go, the others stay."""
    for day in ("2020-01-01", "2999-01-01", NULL):
        (tmp_path / "cluster=c" / f"date={day}").mkdir(parents=True)
    remove_old(tmp_path, 86_400)
    left = {path.name for path in tmp_path.glob("cluster=c/*")}
    assert left == {"date=2999-01-01", f"date={NULL}"}


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
async def test_killed_bridges(nats_server: NatsServer, tmp_path: Path, kills: int) -> None:
    """The recipe as shipped: each line that was published is in the files exactly once."""
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
    """Kill a writer a random moment after a random batch; return the batches it reported."""
    with writer:
        assert writer.stdout is not None
        reported = []
        for _ in range(chance.randrange(1, 4)):
            line = writer.stdout.readline()
            assert line, "the writer must live until it is killed"
            reported.append(int(line))
        time.sleep(chance.random() * 0.03)  # the moment is what this test varies
        writer.kill()
        reported += map(int, writer.stdout.read().split())
    assert writer.returncode == -signal.SIGKILL
    return reported


@pytest.mark.long
def test_kill(tmp_path: Path) -> None:
    """However often writers are killed, each file reads whole, and so does every reported batch.

    Two writers share the directory, and each is killed. A batch that was not reported may be there
    in part: nobody was told that it is safe, so it will be handed over again.
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
