"""The same made data in every store."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from ccpipe.formats.lineprotocol import decode
from ccpipe.history.interfaces import History
from ccpipe.history.open import open_history
from ccpipe.sinks.delta import DeltaSink
from ccpipe.sinks.parquet import ParquetSink
from ccpipe.sinks.prometheus import PrometheusSink
from ccpipe.sinks.victoriametrics import VictoriaMetricsSink
from tests.servers.postgres import Server
from tests.servers.prometheus import Prometheus
from tests.servers.s3 import ACCESS_KEY, BUCKET, moto
from tests.servers.victoriametrics import VictoriaMetrics
from tests.sinks.postgres.conftest import server

__all__ = ["server"]

STORES = ("parquet", "delta", "delta s3", "victoriametrics", "prometheus", "postgres")

BEGIN = int(time.time()) // 3600 * 3600 - 7200
"""The first second of the made data: recent, since Prometheus refuses older samples."""

Open = Callable[[str, Sequence[str]], Awaitable[History]]


def averaged() -> frozenset[str]:
    return frozenset({"temperature", "ipc"})


@pytest.fixture
async def stored(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    """Return a function that writes lines to a store, by its real sink, and opens its history."""
    opened: list[History] = []

    async def open_(store: str, lines: Sequence[str]) -> History:
        records = decode("\n".join(lines).encode())
        login = {}
        match store:
            case "parquet":
                where = str(tmp_path / "parquet")
                async with ParquetSink(dir=where) as files:
                    await files.write(records)
            case "delta":
                where = str(tmp_path / "delta")
                async with DeltaSink(url=where) as table:
                    await table.write(records)
            case "delta s3":
                storage = await moto(tmp_path)
                request.addfinalizer(storage.stop)
                address = f"s3://{BUCKET}/history"
                async with DeltaSink(url=address, **storage.options) as table:
                    await table.write(records)
                where = f"{address}?endpoint={storage.url}"
                login = {"user": ACCESS_KEY, "password_file": str(storage.secret)}
            case "victoriametrics":
                vm = VictoriaMetrics(tmp_path / "victoriametrics")
                vm.start()
                request.addfinalizer(vm.stop)
                where = vm.url
                async with VictoriaMetricsSink(url=where) as store_:
                    await store_.write(records)
                vm.get("/internal/force_flush")
            case "prometheus":
                prometheus = Prometheus(tmp_path / "prometheus", late=True)
                prometheus.start()
                request.addfinalizer(prometheus.stop)
                where = prometheus.url
                async with PrometheusSink(url=where) as remote:
                    await remote.write(records)
            case _:
                postgres: Server = request.getfixturevalue("server")
                database = await postgres.database()
                where = postgres.url(database)
                login = {"password_file": str(postgres.secret)}
                async with postgres.sink(database) as sink:
                    await sink.write(records)
        opened.append(open_history(where, averaged, **login))
        return opened[-1]

    yield open_
    for history in opened:
        await history.close()
