"""A pipe from the source http, and clients that post to it."""

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from ccpipe.config import Site
from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.pipeline import Limits, Sink, run
from ccpipe.process.die_with_parent import die_with_parent
from ccpipe.sources.http import HttpSource
from ccpipe.telemetry import Telemetry
from tests.cli.command import command, environment
from tests.conftest import eventually, free_port
from tests.paths import ROOT

LINE = b"cpu_load,host=n1 value=0.5 1740052800\n"


class Gate(Sink[Any]):
    """Delays all records until it is opened."""

    takes = Lines
    limits = Limits(max_wait=0, max_backoff=0.05, stop_timeout=0.1)

    def __init__(self, *, open: bool = True) -> None:  # noqa: A002
        self.open = asyncio.Event()
        self.written: list[Any] = []
        self.fails = False
        if open:
            self.open.set()

    async def write(self, records: Sequence[Any]) -> None:
        await self.open.wait()
        if self.fails:
            raise UnavailableError("down")
        self.written += records


class Client:
    """Posts to a running source."""

    def __init__(self, source: HttpSource, session: aiohttp.ClientSession) -> None:
        self.source, self.session = source, session
        self.url = f"http://{source.host}:{source.port}"

    async def post(
        self, body: bytes, path: str = "/write?precision=s", **more: Any
    ) -> tuple[int, str]:
        async with self.session.post(self.url + path, data=body, **more) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def running(
    sink: Sink[Any], stop: asyncio.Event | None = None, **options: Any
) -> AsyncIterator[Client]:
    source = HttpSource(site=Site(cluster="fox"), listen=f"127.0.0.1:{free_port()}", **options)
    telemetry, stop = Telemetry(), stop or asyncio.Event()
    pipe = asyncio.create_task(run(source, sink, telemetry=telemetry, stop=stop))
    await eventually(lambda: telemetry.ready or pipe.done())
    async with aiohttp.ClientSession() as session:
        try:
            yield Client(source, session)
        finally:
            stop.set()
            await asyncio.wait([pipe], timeout=30)
            assert pipe.done()
            assert source.held == 0
    pipe.result()


@asynccontextmanager
async def bridge(recipe: str, site: Site, listen: str, **environ: str) -> AsyncIterator[str]:
    """Run a shipped recipe at another address; yield its URL."""
    env = environment(
        CCPIPE_CLUSTER=site.cluster,
        CCPIPE_BUS__SERVERS=site.bus.servers[0],
        CCPIPE_SOURCE__LISTEN=listen,
        **environ,
    )
    process = await asyncio.create_subprocess_exec(
        *command("bridge", ROOT / "bridges" / recipe), env=env, preexec_fn=die_with_parent
    )
    url = f"http://{listen}"
    try:
        async with aiohttp.ClientSession() as session:
            await eventually_answers(session, f"{url}/ping")
        yield url
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 60)


async def eventually_answers(session: aiohttp.ClientSession, url: str) -> None:
    for _ in range(600):
        try:
            async with session.get(url):
                return
        except aiohttp.ClientError:
            await asyncio.sleep(0.1)
    pytest.fail(f"{url} does not answer")


def basic(user: str, word: str = "x") -> dict[str, str]:
    pair = base64.b64encode(f"{user}:{word}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


class SonarGate(Gate):
    """Takes envelopes."""

    takes = Envelopes  # type: ignore[assignment]


ENVELOPE: dict[str, Any] = {
    "meta": {"producer": "sonar", "version": "0.18.0"},
    "data": {
        "type": "cluster",
        "attributes": {
            "time": "2025-02-20T12:00:00Z", "cluster": "fox", "slurm": True,
            "partitions": [], "nodes": [],
        },
    },
}  # fmt: skip


def envelope_of(cluster: str) -> dict[str, Any]:
    attributes = {**ENVELOPE["data"]["attributes"], "cluster": cluster}
    return {**ENVELOPE, "data": {**ENVELOPE["data"], "attributes": attributes}}


def error_of(cluster: str) -> dict[str, Any]:
    error = {"time": "2025-02-20T12:00:00Z", "detail": "no", "cluster": cluster, "node": "n1"}
    return {"meta": ENVELOPE["meta"], "errors": [error]}
