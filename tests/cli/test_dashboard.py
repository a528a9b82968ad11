"""``ccpipe dashboard`` as a command."""

import asyncio
import re
import signal
from pathlib import Path

import pytest

from ccpipe.bus.nats.server import NatsServer
from tests.cli.command import ccpipe, ended, start
from tests.test_telemetry import get


async def started(*arguments: str, **environ: str) -> tuple[asyncio.subprocess.Process, str]:
    process = await start("dashboard", *arguments, **environ)
    assert process.stderr is not None
    output = b""
    async with asyncio.timeout(60):
        while not (found := re.search(rb"http://\S+", output)):
            line = await process.stderr.readline()
            assert line, output.decode()
            output += line
    return process, found[0].decode()


async def fetch(page: str, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(get, int(page.rpartition(":")[2].strip("/")), path)


async def end(process: asyncio.subprocess.Process) -> None:
    done = await ended(process, signal.SIGTERM)
    assert done.code == 0, done.err


async def test_dashboard_serves_until_stopped(nats_server: NatsServer) -> None:
    """It serves the page, and starts without a broker, too."""
    for url in (nats_server.url, "nats://127.0.0.1:1"):
        process, page = await started("--listen", "127.0.0.1:0", CCPIPE_BUS__SERVERS=url)
        status, text = await fetch(page, "/")
        assert status == 200
        assert "<title>ccpipe</title>" in text
        await end(process)


async def test_dashboard_requires_generated_token_from_other_hosts(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """It is kept in a file that only the user can read, and never logged."""
    state = {"XDG_STATE_HOME": str(tmp_path), "CCPIPE_BUS__SERVERS": nats_server.url}
    process, page = await started("--listen", "0.0.0.0:0", **state)
    file = tmp_path / "ccpipe" / "dashboard.token"
    token = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert token not in page
    assert (await fetch(page, "/api/about"))[0] == 401
    await end(process)
    process, _ = await started("--listen", "0.0.0.0:0", **state)
    assert file.read_text() == token
    await end(process)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--listen", "nowhere"], 64, "--listen: expected HOST:PORT, got 'nowhere'"),
        (["--token-file", "/nonexistent"], 78, "--token-file: /nonexistent"),
        (["--parquet-dir", "/etc/hostname"], 64, "is not a directory"),
        (["--for", "soon"], 64, "--for"),
    ],
)
def test_dashboard_rejects_wrong_options(arguments: list[str], code: int, expected: str) -> None:
    """With exit codes of sysexits.h."""
    done = ccpipe("dashboard", *arguments)
    assert done.code == code, done.err
    assert expected in done.err
    assert "Traceback" not in done.err
