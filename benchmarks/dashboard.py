"""Cost of the dashboard: python -m benchmarks.dashboard [NODES [METRICS [SECONDS]]].

A real broker, the real command, a real Chromium, and ``ccpipe simulate`` with every node once a
second. Printed are CPU seconds per second and memory of the dashboard's process, how busy the
page's main thread is, and how many frames it got.
"""

import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from ccpipe.bus.nats.server import NatsServer, free_port
from ccpipe.process.die_with_parent import die_with_parent
from tests.dashboard.browser import Page, chromium

WARM_SECONDS = 15
PAGES = {
    "overview": "#/", "list of nodes": "#/nodes", "map of nodes": "#/nodes//rack/map",
    "node": "#/node/fritz/n0001",
}  # fmt: skip


async def main(nodes: int, metrics: int, seconds: float) -> None:
    """Measure each page for some seconds."""
    with tempfile.TemporaryDirectory(prefix="ccpipe-") as temporary:
        async with NatsServer(Path(temporary, "nats"), port=free_port(0)) as broker:
            load = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "ccpipe", "simulate", "--nodes", str(nodes),
                "--metrics", str(metrics), "--gpus", "0", "--interval", "1s", "--cluster", "fritz",
                env={**os.environ, "CCPIPE_BUS__SERVERS": broker.url}, preexec_fn=die_with_parent,
            )  # fmt: skip
            process, url = await dashboard(broker.url)
            try:
                await asyncio.sleep(WARM_SECONDS)
                results = {"no page": await cost(process, seconds)}
                async with chromium(Path(shutil.which("chromium") or "chromium")) as page:
                    await page.call("Performance.enable")
                    for name, path in PAGES.items():
                        await page.open(url + path)
                        await asyncio.sleep(WARM_SECONDS)
                        results[name] = await cost(process, seconds, page)
                results["all metrics"] = await all_columns(process, url, seconds)
            finally:
                load.kill()
                process.kill()
                await load.wait()
                await process.wait()
    print(json.dumps(results, indent=2))


async def dashboard(server: str) -> tuple[asyncio.subprocess.Process, str]:
    """Start the command; return its process and address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ccpipe", "dashboard", "--listen", "127.0.0.1:0",
        stderr=asyncio.subprocess.PIPE, env={**os.environ, "CCPIPE_BUS__SERVERS": server},
        preexec_fn=die_with_parent,
    )  # fmt: skip
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while not (found := re.search(rb"http://\S+", await process.stderr.readline())):
            pass
    return process, found[0].decode()


async def cost(
    process: asyncio.subprocess.Process, seconds: float, page: Page | None = None
) -> dict[str, Any]:
    """Return what the server, and the page's main thread, used in some seconds."""
    server = psutil.Process(process.pid)
    cpu, began = sum(server.cpu_times()[:2]), time.monotonic()
    busy = await task_seconds(page) if page else 0.0
    if page is not None:
        await page.call("Network.enable")
        page.frames.clear()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - began
    result = {
        "server CPU, % of a core": round(100 * (sum(server.cpu_times()[:2]) - cpu) / passed, 1),
        "server memory, MB": round(server.memory_info().rss / 1e6),
    }
    if page is not None:
        result["page's thread busy, %"] = round(100 * (await task_seconds(page) - busy) / passed, 1)
        result["frames per second"] = round(len(page.frames) / passed, 2)
        result["kB per frame"] = round(sum(page.frames) / max(1, len(page.frames)) / 1e3, 1)
    return result


async def task_seconds(page: Page) -> float:
    """Return how long the page's main thread has worked so far."""
    metrics = (await page.call("Performance.getMetrics"))["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


async def all_columns(
    process: asyncio.subprocess.Process, url: str, seconds: float
) -> dict[str, Any]:
    """Request all metrics of all nodes at once, which no page of ours does."""
    async with aiohttp.ClientSession() as session, session.ws_connect(url + "api/live") as socket:
        await socket.send_str('{"view": "overview"}')
        first = (await socket.receive()).data
        header = json.loads(first[4 : 4 + int.from_bytes(first[:4], "little")])
        names = list(header["metrics"])
        await socket.send_str(json.dumps({"view": "overview", "metrics": names}))
        frames: list[int] = []

        async def read() -> None:
            async for message in socket:
                frames.append(len(message.data))  # noqa: PERF401 - they are counted meanwhile

        reader = asyncio.create_task(read())
        result = await cost(process, seconds)
        reader.cancel()
        result["lines per second received"] = round(header["status"]["lines"])
        result["frames per second"] = round(len(frames) / seconds, 2)
        result["kB per frame"] = round(sum(frames) / max(1, len(frames)) / 1e3, 1)
        return result


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    asyncio.run(main(*(given + [1000, 40, 60][len(given) :])))
