"""``ccpipe dashboard`` as a command."""

import asyncio
import re
import signal
from pathlib import Path

import pytest

from ccpipe.bus.nats.server import NatsServer
from tests.cli.command import ccpipe, ended, start
from tests.conftest import free_port
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


async def test_dashboard_is_ready_once_it_was_connected_to_broker(
    tmp_path: Path, unused_port: int
) -> None:
    """By its own port, without the broker's address, and by that of telemetry; not before."""
    server = NatsServer(tmp_path / "nats", port=free_port())
    process, page = await started(
        "--listen", "127.0.0.1:0", CCPIPE_BUS__SERVERS=server.url,
        CCPIPE_TELEMETRY__LISTEN=f"127.0.0.1:{unused_port}",
    )  # fmt: skip
    assert await fetch(page, "/ready") == (503, "not ready\n")
    assert f"127.0.0.1:{server.port} since the start" in await telemetry(unused_port)
    async with server, asyncio.timeout(60):
        while (await fetch(page, "/ready"))[0] != 200:
            await asyncio.sleep(0.05)
    assert await fetch(page, "/ready") == (200, "ok\n")  # it shows history meanwhile
    assert await telemetry(unused_port) == "ok\n"
    await end(process)


async def telemetry(port: int) -> str:
    return (await asyncio.to_thread(get, port, "/ready"))[1]


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


async def test_dashboard_reads_configuration(nats_server: NatsServer, tmp_path: Path) -> None:
    """Address, path and tokens are in the table [dashboard]."""
    tokens, config = tmp_path / "tokens", tmp_path / "ccpipe.toml"
    tokens.write_text("secret user alice\n")
    config.write_text(
        f'[bus]\nservers = ["{nats_server.url}"]\n[dashboard]\nlisten = "127.0.0.1:0"\n'
        f'base_path = "/site"\ntoken_file = "{tokens}"\n'
    )
    process, page = await started("--config", str(config))
    assert page.endswith("/site/")
    port = page.removesuffix("/site/")
    assert (await fetch(port, "/site/health"))[0] == 200
    assert (await fetch(port, "/site/api/about"))[0] == 401
    await end(process)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--listen", "nowhere"], 64, "--listen: expected HOST:PORT, got 'nowhere'"),
        (["--token-file", "/nonexistent"], 78, "--token-file: /nonexistent"),
        (["--history", "/etc/hostname"], 64, "is not a directory"),
        (["--history", "ftp://host"], 64, "expected a directory, s3://"),
        (["--history", "http://a:b@host"], 78, "must not contain a password"),
        (["--for", "soon"], 64, "--for"),
        (["--base-path", "ccpipe"], 78, "base_path: expected a path such as /ccpipe: 'ccpipe'"),
        (["--base-path", "/../x"], 78, "base_path: contains . or .."),
    ],
)
def test_dashboard_rejects_wrong_options(arguments: list[str], code: int, expected: str) -> None:
    """With exit codes of sysexits.h."""
    done = ccpipe("dashboard", *arguments)
    assert done.code == code, done.err
    assert expected in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("user_header", "X-Forwarded-User", "user_header: needs trusted_proxies or proxy_secret"),
        ("groups_header", "X-Groups", "groups_header: needs user_header"),
        ("trusted_proxies", "10.0.0.1/8", "trusted_proxies: 10.0.0.1/8 has host bits set"),
        ("proxy_secret_file", "/nonexistent", "dashboard.proxy_secret_file: /nonexistent"),
        ("token_file", "/nonexistent", "dashboard.token_file: /nonexistent"),
        ("listen", "nowhere", "dashboard.listen: expected HOST:PORT, got 'nowhere'"),
        ("admin", "alice", "unknown key"),
    ],
)
def test_dashboard_rejects_wrong_configuration(setting: str, value: str, expected: str) -> None:
    """The message names the key."""
    environ = {f"CCPIPE_DASHBOARD__{setting.upper()}": value}
    done = ccpipe("dashboard", stdin=b"", **environ)
    assert done.code == 78, done.err
    assert expected in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("secret user", "line 2: expected: token role user"),
        ("secret root alice", "line 2: not a role: 'root' (one of user, support, admin)"),
        ("a b c d", "line 2: expected: token role user"),
        ("first", "line 2: the token is in another line, too"),
        ("secret\u2028admin", "line 2: contains control characters"),
    ],
)
def test_dashboard_names_wrong_line_of_token_file(tmp_path: Path, line: str, expected: str) -> None:
    """A token is never printed."""
    file = tmp_path / "tokens"
    file.write_text(f"first\n{line}\n")
    done = ccpipe("dashboard", "--token-file", file)
    assert done.code == 78, done.err
    assert f"--token-file: {file}: {expected}" in done.err
    assert "secret" not in done.err
