"""What a store takes from its sink, beside the same rows through the store's own loaders."""

import asyncio
import contextlib
import functools
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks import servers
from benchmarks.scale.programs import CLUSTER, TICKS, Store
from benchmarks.scale.results import Loader
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.formats.lineprotocol import Lines, decode
from ccpipe.formats.prometheus import HEADERS, RemoteWrite
from ccpipe.pipeline import Sink
from ccpipe.simulate import SimulatedCluster, SimulationOptions
from ccpipe.sinks.victoriametrics import VictoriaMetricsSink

Batches = list[Lines]
Load = Callable[[Batches], Awaitable[None]]

DAY = 86_400 * 10**9
SETTLE_SECONDS = 3.0
"""How long a store goes on with what it has taken: its merges count."""


async def loaders(nodes: int, metrics: int, samples: int) -> AsyncIterator[Loader]:
    """Measure each way into VictoriaMetrics and PostgreSQL, in a fresh store."""
    batches = list(_samples(nodes, metrics, samples + 1))
    for name, load in _VICTORIAMETRICS.items():
        with tempfile.TemporaryDirectory() as directory:
            store = Store(Path(directory))
            await store.start()
            try:
                yield await _victoriametrics(name, load, store, batches)
            finally:
                await store.stop()
    if servers.postgres_programs() and find_spec("asyncpg"):
        async for found in _postgres(batches):
            yield found


def _samples(nodes: int, metrics: int, samples: int) -> Iterator[Batches]:
    """Yield the metrics of each sample of a simulated cluster, in batches as a bridge writes."""
    cluster = SimulatedCluster(
        SimulationOptions(nodes=nodes, metrics=metrics, failures=0.0),
        Subjects.of(Site(cluster=CLUSTER)),
        start=time.time_ns() - DAY,
    )
    most = max(1, VictoriaMetricsSink.limits.max_records // metrics)
    for _ in range(samples):
        sent = [each.body for each in cluster.sample() if each.subject.endswith(".metrics")]
        yield [decode(b"".join(sent[at : at + most])) for at in range(0, len(sent), most)]


def _rows(samples: list[Batches]) -> int:
    return sum(len(lines) for batches in samples for lines in batches)


async def _measured(
    store: str, name: str, samples: list[Batches], load: Load, cpu: Callable[[], float]
) -> Loader:
    """Load the first sample, so that all series are known; then measure the others."""
    await load(samples[0])
    await asyncio.sleep(SETTLE_SECONDS)
    before, began = cpu(), time.monotonic()
    for batches in samples[1:]:
        await load(batches)
    seconds = time.monotonic() - began
    await asyncio.sleep(SETTLE_SECONDS)
    return Loader(store, name, _rows(samples[1:]), cpu() - before, seconds)


# VictoriaMetrics


async def _victoriametrics(
    name: str, encode: Callable[[Lines], bytes] | None, store: Store, samples: list[Batches]
) -> Loader:
    if encode is None:
        async with VictoriaMetricsSink(url=store.url) as sink:
            return await _measured("victoriametrics", "", samples, _through(sink), store.cpu)
    path, _, _ = name.partition(" ")
    headers = HEADERS if encode is _REMOTE_WRITE.encode else None
    bodies = {id(lines): encode(lines) for batches in samples for lines in batches}
    async with aiohttp.ClientSession(store.url) as client:

        async def load(batches: Batches) -> None:
            for lines in batches:
                async with client.post(path, data=bodies[id(lines)], headers=headers) as answer:
                    answer.raise_for_status()

        return await _measured("victoriametrics", name, samples, load, store.cpu)


def _through(sink: Sink[Lines]) -> Load:
    async def load(batches: Batches) -> None:
        for lines in batches:
            await sink.write(lines)

    return load


def _as_json(lines: Lines) -> bytes:
    """Return rows as vmctl imports them: a line of JSON for each series."""
    rows = (
        json.dumps({
            "metric": {"__name__": each.name, **each.tags},
            "values": [float(each.value)], "timestamps": [(each.time or 0) // 10**6],
        })
        for each in lines
    )  # fmt: skip
    return "\n".join(rows).encode()


def _as_text(lines: Lines) -> bytes:
    """Return rows in Prometheus' text format; no tag of the simulated cluster needs an escape."""
    rows = (
        each.name + "{" + ",".join(f'{key}="{tag}"' for key, tag in each.tags.items()) + "}"
        f" {each.value} {(each.time or 0) // 10**6}\n"
        for each in lines
    )
    return "".join(rows).encode()


_REMOTE_WRITE = RemoteWrite()
_VICTORIAMETRICS: dict[str, Callable[[Lines], bytes] | None] = {
    "": None,
    "/api/v1/import/prometheus": _as_text,
    "/api/v1/import": _as_json,
    "/api/v1/write": _REMOTE_WRITE.encode,
}
"""Each way into it by its path; that of the sink is without a name."""


# PostgreSQL


async def _postgres(samples: list[Batches]) -> AsyncIterator[Loader]:
    """Measure the sink, then one COPY of the same rows into its tables, as pg_restore makes it."""
    from ccpipe.sinks.postgres import PostgresSink

    with servers.postgres() as url, tempfile.TemporaryDirectory() as directory:
        connection = await _connected(url)
        try:
            data = await connection.fetchval("SHOW data_directory")
            cpu = functools.partial(_tree_cpu, Path(data, "postmaster.pid"))
            async with PostgresSink(url=url) as sink:
                yield await _measured("postgres", "", samples, _through(sink), cpu)
            rows = Path(directory, "rows")
            every_row = "SELECT * FROM samples"  # COPY itself does not read partitions
            await connection.copy_from_query(every_row, output=rows, format="binary")
            await connection.execute("TRUNCATE samples")

            async def copy(batches: Batches) -> None:
                if batches:
                    await connection.copy_to_table("samples", source=rows, format="binary")

            every = [lines for batches in samples for lines in batches]
            yield await _measured("postgres", "binary COPY", [[], every], copy, cpu)
        finally:
            await connection.close()


async def _connected(url: str) -> Any:
    """Connect to a server that was just started."""
    import asyncpg

    async with asyncio.timeout(60):
        while True:
            try:
                return await asyncpg.connect(url)
            except asyncpg.CannotConnectNowError:
                await asyncio.sleep(0.1)


def _tree_cpu(pid_file: Path) -> float:
    """Return CPU-seconds of a process, its children, and those that it has waited for."""
    pid, total = pid_file.read_text().split()[0], 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            _, parent, *fields = stat.read_text().rpartition(")")[2].split()
            if pid in (stat.parent.name, parent):
                total += sum(map(int, fields[9 : 13 if stat.parent.name == pid else 11]))
    return total / TICKS
