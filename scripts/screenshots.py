"""Make the pictures of the dashboard in ``docs/images/``: python -m scripts.screenshots.

A real bus and dashboard, a simulated cluster of 200 nodes, and Chromium. Needs what ``make test``
installs.
"""

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.server import NatsServer, free_port
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Bus, Site
from ccpipe.dashboard.server import DashboardServer
from ccpipe.history.open import open_history
from ccpipe.live.feed import LiveFeed, averaged_metrics
from ccpipe.pipeline import DeadLetter, run
from ccpipe.registry import build
from ccpipe.telemetry import Telemetry
from scripts.picture_cluster import MadeCluster
from tests.dashboard.browser import Page, chromium

IMAGES = Path(__file__).parent.parent / "docs" / "images"
SECONDS = 90.0
WIDTH, HEIGHT = 1360, 850
MESSAGES = (
    ("info", "publisher: started, 26 collectors"),
    ("warn", "lustre: reading stats took 1.2 s"),
    ("error", "ib_recv: /sys/class/infiniband/mlx5_0 has disappeared"),
    ("info", "interval set to 1s by operator"),
)


async def main(directory: Path, seconds: float, images: Path) -> None:
    """Make the pictures."""
    cluster = MadeCluster()
    async with NatsServer(directory / "nats", port=free_port(0)) as broker:
        site = Site(cluster=cluster.name, hostname="mgmt", bus=Bus(servers=[broker.url]))
        telemetry = Telemetry()
        stop = asyncio.Event()
        source = NatsSource(site=site, telemetry=telemetry, durable="parquet")
        sink = build(
            "sinks", {"use": "parquet", "dir": str(directory / "lake")},
            where="screenshots", path="sink", context={"site": site, "telemetry": telemetry},
        )  # fmt: skip
        bridge = asyncio.create_task(run(source, sink, stop=stop, telemetry=telemetry))
        history = open_history(str(directory / "lake"), averaged_metrics)
        async with (
            Connection(site.bus, name="load", telemetry=telemetry) as bus,
            LiveFeed(site, telemetry, name="dashboard") as feed,
            DashboardServer(feed, listen="127.0.0.1:0", history=history) as server,
            chromium(Path(shutil.which("chromium") or "chromium")) as page,
        ):
            await asyncio.sleep(2)
            await cluster.announce(bus)
            load = asyncio.create_task(cluster.publish(bus, seconds=seconds + 120))
            await say(bus, cluster, site)
            await asyncio.sleep(seconds)
            await shoot(page, server.url, cluster, images)
            load.cancel()
            stop.set()
            with contextlib.suppress(asyncio.CancelledError):
                await load
            await bridge


async def say(bus: Connection, cluster: MadeCluster, site: Site) -> None:
    """Publish log messages, ends of jobs and dead letters."""
    for number, (level, text) in enumerate(MESSAGES):
        await bus.publish(
            f"{cluster.name}.log.ccpipe", cluster.log(cluster.names[number * 9], level, text)
        )
    for job, state in zip(cluster.jobs[::9], ("completed", "failed", "timeout"), strict=False):
        await bus.publish(f"{cluster.name}.events.job", cluster.stop(job, state))
    letters = [
        DeadLetter(
            b"cpu_load,hostname=f0107,type=node value=abc 1795332456",
            "not a number",
            "fritz.metrics",
            3,
            41,
        ),
        DeadLetter(
            b"mem_used,hostname= value=1 1795332456",
            "a tag without a value",
            "fritz.metrics",
            1,
            18,
        ),
    ]
    await NatsDeadLetterSink(bus, site).write(letters)


async def shoot(page: Page, url: str, cluster: MadeCluster, images: Path) -> None:
    """Take one picture of each page."""
    node = cluster.jobs[3].nodes[0]
    gpu = next(
        name for name in cluster.names[40:] if name in cluster.with_gpus and name in cluster.job_of
    )
    job = max(cluster.jobs, key=lambda each: len(each.nodes))
    pages = {
        "dashboard": "#/",
        "dashboard-nodes": "#/nodes//rack/map",
        "dashboard-jobs": "#/jobs",
        "dashboard-node": f"#/node/{cluster.name}/{quote(gpu or node)}",
        "dashboard-job": f"#/job/{cluster.name}/{job.id}/{job.start}",
        "dashboard-pipe": "#/pipe",
    }
    await page.size(WIDTH, HEIGHT)
    for dark in (True, False):
        await page.dark(dark=dark)
        await page.open(url)
        await page.until("document.querySelector('.map select')?.options.length > 5")
        for name, path in (pages if dark else {"dashboard-light": "#/"}).items():
            await page.js(f"location.hash = {path!r}")
            await asyncio.sleep(4)
            await page.screenshot(images / f"{name}.png")
    for problem in page.problems:
        print(problem, file=sys.stderr)


if __name__ == "__main__":
    images = Path(sys.argv[1]) if sys.argv[1:] else IMAGES
    images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ccpipe-") as temporary:
        os.environ["XDG_STATE_HOME"] = temporary  # of no earlier pictures' jobs
        asyncio.run(main(Path(temporary), float(sys.argv[2]) if sys.argv[2:] else SECONDS, images))
