"""Databases that are slow, are killed, or refuse rows."""

import asyncio
from pathlib import Path

from tests.chaos.account import Account
from tests.chaos.faults.flow import LINES, fault, finished, flowing, meanwhile, sent
from tests.chaos.faults.stores import in_postgres, postgres, sink_of
from tests.chaos.lab import Lab, numbered
from tests.chaos.store import LyingStore
from tests.servers.clickhouse import ClickHouse
from tests.servers.questdb import QuestDB
from tests.servers.victoriametrics import VictoriaMetrics


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
            store.process.kill()
            await asyncio.to_thread(store.process.wait, 30)
            await asyncio.to_thread(store.start)

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
            store.process.kill()
            await asyncio.to_thread(store.process.wait, 30)
            await asyncio.to_thread(store.start)

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
            store.process.kill()
            await asyncio.to_thread(store.process.wait, 30)
            await asyncio.to_thread(store.start)

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
