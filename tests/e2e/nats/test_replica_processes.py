"""Bridges of one recipe as processes: they start, end and are killed, and nothing is lost."""

import asyncio
import contextlib
import random
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from ccpipe.bus.nats.streams.claims import Claims
from ccpipe.bus.nats.streams.jetstream import consumers_of
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.formats.lineprotocol import decode
from tests.bus.nats.conftest import connected
from tests.bus.nats.reader import NODES, partitioned, publish
from tests.cli.command import command, environment
from tests.conftest import eventually

SOURCE = """
cluster = "fox.test"

[bus]
servers = ["{url}"]
stream_partitions = 4
subjects.metrics = "{{cluster}}.metrics.{{hostname}}"

[source]
use = "nats"
durable = "shared"
ack_wait = "5s"
subjects = ["metrics"]
"""


class Bridges:
    """Processes that run one recipe; those that are left are killed at the end."""

    def __init__(self, directory: Path, url: str, sink: str) -> None:
        self.directory = directory
        self.recipe = directory / "recipe.toml"
        self.recipe.write_text(SOURCE.format(url=url) + sink)
        self.running: list[subprocess.Popen[bytes]] = []
        self.started = 0

    def start(self, **environ: str) -> None:
        self.started += 1
        with (
            self.output(self.started).open("wb") as out,
            (self.directory / f"{self.started}.log").open("wb") as err,
        ):
            process = subprocess.Popen(
                command("bridge", self.recipe), stdout=out, stderr=err, env=environment(**environ)
            )
        self.running.append(process)

    def end(self, process: subprocess.Popen[bytes], how: signal.Signals) -> None:
        """Send a signal to one and wait until it has ended; after SIGTERM it must succeed.

        One that has only just started is killed by the signal itself.
        """
        self.running.remove(process)
        process.send_signal(how)
        code = process.wait(60)
        assert how == signal.SIGKILL or code in (0, -signal.SIGTERM)

    def output(self, number: int) -> Path:
        return self.directory / f"{number}.out"

    def seen(self) -> list[dict[str, list[int]]]:
        """Return what each process has printed whole: the values of each node in order."""
        found = []
        for number in range(1, self.started + 1):
            nodes: dict[str, list[int]] = defaultdict(list)
            text = self.output(number).read_bytes()
            for line in decode(text[: text.rfind(b"\n") + 1]):
                nodes[line.hostname].append(int(float(line.value)))
            found.append(nodes)
        return found


@contextlib.contextmanager
def bridges(directory: Path, site: Site, sink: str) -> Iterator[Bridges]:
    opened = Bridges(directory, site.bus.servers[0], sink)
    try:
        yield opened
    finally:
        for process in opened.running:
            process.kill()
            process.wait(60)


async def until_shared_by(site: Site, count: int) -> None:
    claims = Claims(site.bus, Subjects.of(site), "shared")
    async with connected(site.bus) as bus, asyncio.timeout(60):
        while True:
            table, _ = await claims.read(bus.jetstream())
            if len(set(table.owners.values())) == len(table.members) == count:
                return
            await asyncio.sleep(0.1)


async def until_unacknowledged(site: Site, count: int) -> None:
    """Wait until bridges have got so many messages that they do not acknowledge."""
    async with connected(site.bus) as bus, asyncio.timeout(60):
        found = -1
        while found != count:
            await asyncio.sleep(0.1)
            consumers = consumers_of(bus.jetstream(), "ccpipe-fox%2Etest")
            found = sum([each.num_ack_pending async for each in consumers])


async def test_node_is_read_in_order_after_kill(tmp_path: Path, site: Site) -> None:
    """The next process first prints what the killed one had read and not written."""
    wanted = partitioned(site, 4)
    with bridges(tmp_path, wanted, '[sink]\nuse = "stdout"\n') as running:
        running.start(CCPIPE_BATCH__MAX_WAIT="1h")
        await publish(wanted, 0, 5)
        await until_unacknowledged(wanted, 5 * NODES)
        running.end(running.running[0], signal.SIGKILL)
        await publish(wanted, 5, 5)
        running.start()
        await eventually(lambda: sum(map(len, running.seen()[1].values())) >= 10 * NODES)
    assert running.seen() == [{}, {f"n{node}": list(range(10)) for node in range(NODES)}]


@pytest.mark.long
async def test_two_processes_share_and_one_continues(tmp_path: Path, site: Site) -> None:
    """Each process sees each node's values in order, whichever is killed meanwhile."""
    wanted = partitioned(site, 4)
    await publish(wanted, 0)
    with bridges(tmp_path, wanted, '[sink]\nuse = "stdout"\n') as running:
        running.start()
        running.start()
        await until_shared_by(wanted, 2)
        await publish(wanted, 1, 20)
        running.end(running.running[0], signal.SIGKILL)
        await publish(wanted, 21, 20)
        await eventually(lambda: len(_pairs(running.seen())) == 41 * NODES)
        running.end(running.running[0], signal.SIGTERM)
    for one in running.seen():
        assert all(values == sorted(set(values)) for values in one.values())


def _pairs(seen: list[dict[str, list[int]]]) -> set[tuple[str, int]]:
    return {(node, value) for one in seen for node in one for value in one[node]}


@pytest.mark.long
async def test_killed_bridges_store_each_record_once(tmp_path: Path, site: Site) -> None:
    """Of bridges that write to the same files six are killed and four stopped."""
    wanted = partitioned(site, 4)
    chance = random.Random()
    directory = tmp_path / "parquet"
    sink = f'[sink]\nuse = "parquet"\ndir = "{directory}"\n[batch]\nmax_wait = "0.2s"\n'
    published = 0
    with bridges(tmp_path, wanted, sink) as running:
        for _ in range(3):
            running.start()
        for how in [*[signal.SIGKILL] * 6, *[signal.SIGTERM] * 4]:
            await publish(wanted, published, 15)
            published += 15
            await asyncio.sleep(2 * chance.random())  # the time is random
            killed = how == signal.SIGKILL  # one that has just started cannot end well yet
            process = chance.choice(running.running) if killed else running.running[0]
            await asyncio.to_thread(running.end, process, how)
            running.start()
        await eventually(lambda: _rows(directory) >= published * NODES)
    rows = duckdb.read_parquet(f"{directory}/**/*.parquet")
    counts = rows.aggregate("hostname, value, count(*)", "hostname, value").fetchall()
    assert len(counts) == published * NODES
    assert {count for _, _, count in counts} == {1}


def _rows(directory: Path) -> int:
    if not list(directory.rglob("*.parquet")):
        return 0
    try:
        found = duckdb.read_parquet(f"{directory}/**/*.parquet").aggregate("count(*)").fetchall()
    except duckdb.IOException:  # a file was joined with others meanwhile
        return 0
    return int(found[0][0])
