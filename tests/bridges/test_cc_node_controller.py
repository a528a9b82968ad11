"""Control with the real cc-node-controller: its client queries us, and we query its server."""

import asyncio
import json
import socket
import urllib.parse
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.process.die_with_parent import die_with_parent
from tests.bridges.clustercockpit import peer, running
from tests.cli.command import ccpipe, command, environment
from tests.conftest import eventually

CONFIGURATION = """
cluster = "fritz"
hostname = "n1"
[bus.subjects]
control = "cc-control"
[publish]
interval = "2s"
[publish.control]
allow = ["interval"]
[publish.sonar]
sample_interval = 0
sysinfo_interval = 0
"""


@pytest.fixture
async def node(tmp_path: Path, nats_server: NatsServer) -> AsyncIterator[None]:
    (tmp_path / "ccpipe.toml").write_text(CONFIGURATION)
    log = tmp_path / "publisher.log"
    env = environment(CCPIPE_BUS__SERVERS=nats_server.url, XDG_STATE_HOME=str(tmp_path))
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command("publish", "--config", tmp_path / "ccpipe.toml"),
            env=env, stdout=output, stderr=output, preexec_fn=die_with_parent,
        )  # fmt: skip
    yield
    process.terminate()
    await process.wait()


async def client(server: NatsServer, *arguments: str) -> tuple[int | None, str]:
    """Run cc-node-controller's client; return its exit code and what it prints."""
    address = urllib.parse.urlsplit(server.url)
    login, _, host = address.netloc.rpartition("@")
    process = await asyncio.create_subprocess_exec(
        peer("cc-node-remoteclient"),
        *("-server", f"{login}@{host.partition(':')[0]}", "-port", str(address.port)),
        *("-host", "n1", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,  # its log
    )
    printed, _ = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, printed.decode()


async def test_client_of_cc_node_controller_reads_and_sets_our_controls(
    nats_server: NatsServer, node: None
) -> None:
    """Topology, list, a value, a new value, and an unknown control."""
    peer("cc-node-remoteclient")

    async def request(*arguments: str) -> tuple[int | None, str]:
        return await client(nats_server, *arguments)

    deadline = asyncio.get_running_loop().time() + 30
    while (await request("-topology"))[0] and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.2)  # until the node answers
    code, printed = await request("-topology")
    assert (code, printed.partition(":")[0]) == (0, "NumHWThreads")
    code, printed = await request("-list")
    assert code == 0
    assert ".interval for type=node (ALL): time between two samples" in printed
    code, printed = await request("-get", "interval@node-0")
    assert "Control interval@node-0 at host n1 (node-0): 2s" in printed
    assert (await request("-set", "interval@node-0=3s"))[0] == 0
    assert "(node-0): 3s" in (await request("-get", "interval@node-0"))[1]
    code, printed = await request("-get", "nothing@node-0")
    assert code == 1
    assert "no control 'nothing' on this node" in printed


async def test_server_of_cc_node_controller_answers_our_command(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """Its list, the topology, a value if it has one, and its refusal with exit code 69.

    It needs LIKWID 5.4 or later in ``LD_LIBRARY_PATH``.
    """
    peer("cc-node-controller")
    address = urllib.parse.urlsplit(nats_server.url)
    configuration = {
        "server": address.hostname,
        "port": address.port,
        "requestSubject": "cc-control",
        "user": address.username or "",
        "password": address.password or "",
    }
    (tmp_path / "config.json").write_text(json.dumps(configuration))
    (tmp_path / "ccpipe.toml").write_text(CONFIGURATION)
    node = socket.gethostname().partition(".")[0]

    async def request(*arguments: str) -> tuple[int, str, str]:
        words = ("control", *arguments, "--node", node, "--config", tmp_path / "ccpipe.toml")
        return await asyncio.to_thread(ccpipe, *words, CCPIPE_BUS__SERVERS=nats_server.url)

    async with running("cc-node-controller", tmp_path, "debug") as log:
        await eventually(lambda: "Starting Loop" in log.read_text())
        code, printed, _ = await request("get", "controls", "-o", "json")
        assert code == 0
        assert json.loads(printed)
        code, printed, _ = await request("get", "topology")
        assert code == 0
        assert "topology hwthreads 0 cpu_id" in printed
        code, _, errors = await request(
            "put", "rapl.nothing", "85", "--type", "socket", "--id", "0"
        )
        assert code == 69
        assert f"{node}: Failed to set rapl.nothing=85 for device socket/0" in errors
