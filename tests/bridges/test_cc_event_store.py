"""Job events beside the real cc-event-store, whose receiver reads times as nanoseconds."""

import asyncio
import contextlib
import json
import sqlite3
import urllib.parse
from datetime import UTC, datetime
from pathlib import Path

from ccpipe.bus.nats.server import NatsServer
from ccpipe.process.die_with_parent import die_with_parent
from tests.bridges.clustercockpit import JOB_SUBJECT, JOBS, peer, send_grid_engines_jobs
from tests.conftest import eventually, free_port


def configuration(nats: str) -> str:
    address = urllib.parse.urlsplit(nats)
    return json.dumps(
        {
            "receivers": {
                "jobs": {
                    "type": "nats",
                    "address": address.hostname,
                    "port": str(address.port),
                    "user": address.username or "",
                    "password": address.password or "",
                    "subject": JOB_SUBJECT,
                }
            },
            "api": {"address": "127.0.0.1", "port": str(free_port()), "jwt_public_key": ""},
            "storage": {
                "retention_time": "876000h",
                "flush_time": "1s",
                "batch_size": 1000,  # what comes while a batch is full is lost there
                "backend": {"type": "sqlite", "database_path": "./events.db"},
            },
        }
    )


def stored(folder: Path) -> list[tuple[int, dict[str, int]]]:
    file = sqlite3.connect(f"file:{folder}/events.db?mode=ro", uri=True, timeout=10)
    with contextlib.closing(file):
        try:
            rows = file.execute("SELECT timestamp, field FROM fritz_events").fetchall()
        except sqlite3.OperationalError:  # nothing was stored so far
            return []
    return [(time, json.loads(field)) for time, field in rows]


async def test_every_job_event_is_filed_at_its_time(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """As the recipe stands: starts and stops at the second at which the job began or ended."""
    store = peer("cc-event-store")
    (tmp_path / "config.json").write_text(configuration(nats_server.url))
    with (tmp_path / "store.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            store, "-loglevel", "info", cwd=tmp_path, stdout=log, stderr=log,
            preexec_fn=die_with_parent,
        )  # fmt: skip
    try:
        await eventually((tmp_path / "events.db").exists)
        await send_grid_engines_jobs(tmp_path, nats_server)
        await eventually(lambda: len(stored(tmp_path)) >= 2 * JOBS)
    finally:
        process.terminate()
        await process.wait()
    found = stored(tmp_path)
    assert len(found) == 2 * JOBS
    for time, payload in found:
        assert time == payload.get("stopTime", payload["startTime"])
        assert datetime.fromtimestamp(time, UTC).year >= 2026
