"""``ParquetSink`` is killed while it writes, again and again; readers never see it."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from ccpipe.sinks.parquet.housekeeping import clean_up

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

async def main(folder, start):
    async with ParquetSink(dir=folder) as sink:
        for number in itertools.count(int(start)):
            await sink.write(batch(number))
            print(number, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def start(folder: Path, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(number)]
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

    Two writers share the folder, and each is killed. A batch that was not reported may be there
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
