"""Databases that are slow, are killed, or refuse rows."""

import asyncio
import random
from pathlib import Path

from tests.chaos.account import Account
from tests.chaos.faults.flow import (
    LINES,
    RATE,
    connected,
    fault,
    finished,
    flowing,
    meanwhile,
    sent,
)
from tests.chaos.faults.processes import broker_and_bridge
from tests.chaos.faults.stores import in_postgres, postgres, sink_of
from tests.chaos.lab import Lab, numbered
from tests.chaos.store import LyingStore
from tests.servers.clickhouse import ClickHouse
from tests.servers.otlp import prometheus_3
from tests.servers.prometheus import Prometheus
from tests.servers.questdb import QuestDB
from tests.servers.victoriametrics import VictoriaMetrics
from tests.servers.web import WebServer


async def kill(store: WebServer) -> None:
    """Send SIGKILL, and start it again."""
    store.process.kill()
    await asyncio.to_thread(store.process.wait, 30)
    await asyncio.to_thread(store.start)


@fault("a store slower than its time limit")
async def slow_store(directory: Path, rounds: int) -> Account:
    """The timeout grows; lines of timed-out writes are stored a few times."""
    async with LyingStore(seconds=1.5).running() as store, Lab(directory).open() as lab:
        sink = f'use = "victoriametrics"\nurl = "{store.url}"\ntimeout = "500ms"'
        bridge = await flowing(lab, sink, numbered(LINES * rounds))
        dead = await finished(lab, bridge)
        return Account.of(range(LINES * rounds), store.stored, dead)


@fault("SIGKILL of the store, VictoriaMetrics, with wait_for_flush")
async def kill_victoriametrics(directory: Path, rounds: int) -> Account:
    """Rows are acknowledged once on its disk: also rows of the last seconds survive."""
    made = VictoriaMetrics(directory / "victoriametrics", "-dedup.minScrapeInterval=1ms")
    with made as store:

        async def act(*_: object) -> None:
            await kill(store)

        async with Lab(directory).open() as lab:
            sink = f'use = "victoriametrics"\nurl = "{store.url}"\nwait_for_flush = true'
            bridge = lab.bridge(sink)
            await meanwhile(lab, bridge, rounds, act)
            await sent(lab)
            await act()
            dead = await finished(lab, bridge)
            await act()
            stored = await asyncio.to_thread(store.samples, "m")
            ids = [int(value) for _, _, value, _ in stored]
            return Account.of(range(LINES * rounds), ids, dead)


@fault("SIGKILL of the store, ClickHouse")
async def kill_clickhouse(directory: Path, rounds: int) -> Account:
    """Acknowledged rows survive; Debian's version cannot recognize a repeated insert."""
    with ClickHouse(directory / "clickhouse") as store:
        await asyncio.to_thread(store.create_table)

        async def act(*_: object) -> None:
            await kill(store)

        async with Lab(directory).open() as lab:
            sink = (
                f'use = "clickhouse"\nurl = "{store.url}"\nuser = "default"\n'
                f'password_file = "{store.password_file}"\n'
                "create_table = false\ndeduplicate = false"
            )
            bridge = lab.bridge(sink)
            await meanwhile(lab, bridge, rounds, act)
            await sent(lab)
            dead = await finished(lab, bridge)
            await act()
            text = await asyncio.to_thread(store.query, "SELECT value FROM metrics")
            ids = [int(float(value)) for value in text.split()]
            return Account.of(range(LINES * rounds), ids, dead)


@fault("SIGKILL of the store, QuestDB, with the table of its page")
async def kill_questdb(directory: Path, rounds: int) -> Account:
    """Acknowledged rows survive, and what is written again replaces itself."""
    with QuestDB(directory / "questdb") as store:
        await asyncio.to_thread(store.create_table)

        async def act(*_: object) -> None:
            await kill(store)

        async with Lab(directory).open() as lab:
            sink = f'use = "influxdb"\nurl = "{store.url}"\ndatabase = "qdb"\nas_floats = true'
            translate = (
                '[[translate]]\nuse = "tag"\nadd = { name = "{name}" }\n'
                '[[translate]]\nuse = "rename"\nnames = { "*" = "metrics" }'
            )
            bridge = lab.bridge(sink, translate=translate)
            await meanwhile(lab, bridge, rounds, act)
            await sent(lab)
            dead = await finished(lab, bridge)
            await act()
            await store.until_applied()
            stored = await asyncio.to_thread(store.query, "SELECT value FROM metrics LIMIT 1000000")
            return Account.of(range(LINES * rounds), [int(value) for [value] in stored], dead)


@fault("SIGKILL of broker, bridge and store at once, Prometheus 3 by OpenTelemetry")
async def kill_all_prometheus(directory: Path, rounds: int) -> Account:
    """Acknowledged samples survive, and what is written again replaces itself."""
    chance = random.Random(rounds)
    with prometheus_3(directory / "prometheus", late=True) as store:
        async with Lab(directory).open() as lab:
            sink = f'use = "otlp"\nurl = "{store.url}"\nurl_path = "/api/v1/otlp/v1/metrics"'
            bridge = lab.bridge(sink)
            await bridge.start()
            for number in range(rounds):
                before = len(await in_prometheus(store))
                lines = numbered(LINES, first=number * LINES, start=MILLISECONDS)
                sender = lab.send(lines, rate=RATE)
                await sender.start()
                while len(await in_prometheus(store)) == before:
                    await asyncio.sleep(0.05)
                await asyncio.sleep(chance.uniform(0, 0.3))  # it is writing the next ones
                await asyncio.gather(kill(store), broker_and_bridge(lab, bridge))
                assert await sender.wait() == 0, sender.text()
                await connected(lab)
            dead = await finished(lab, bridge)
            await kill(store)
            return Account.of(range(LINES * rounds), await in_prometheus(store), dead)


MILLISECONDS = 1_740_000_000_000
"""Lines a second apart would leave the window of Prometheus before they are redelivered."""


async def in_prometheus(store: Prometheus) -> list[int]:
    found = await asyncio.to_thread(store.query, "m[1h]", MILLISECONDS / 1000 + 1800)
    return [int(float(value)) for _, values in found for _, value in values]


@fault("rows that a constraint of PostgreSQL refuses, every hundredth")
async def refused_rows(directory: Path, rounds: int) -> Account:
    """They become dead letters; the others are stored once."""
    async with postgres() as server, Lab(directory).open() as lab:
        database = await server.database()
        async with server.sink(database):
            pass  # makes the tables
        await server.ask(database, "ALTER TABLE samples ADD CHECK (value::bigint % 100 <> 7)")
        bridge = await flowing(lab, sink_of(server, database), numbered(LINES * rounds))
        dead = await finished(lab, bridge)
        return Account.of(range(LINES * rounds), await in_postgres(server, database), dead)
