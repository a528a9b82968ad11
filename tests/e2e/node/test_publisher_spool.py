"""``ccpipe publish`` without its broker: killed, frozen, stopped; nothing of it is lost."""

import asyncio
import json
import re
import sys
from pathlib import Path

import nats

from ccpipe.bus.nats.server import NatsServer
from ccpipe.formats.lineprotocol import decode
from ccpipe.node.agent.spool import Spool
from ccpipe.process.die_with_parent import die_with_parent
from tests.cli.command import environment
from tests.conftest import eventually, free_port
from tests.processes import frozen
from tests.servers.nats.daemon import nats_daemon
from tests.servers.nats.stored import stored


async def start(
    server: NatsServer | str, directory: Path, **environ: str
) -> asyncio.subprocess.Process:
    config = directory / "ccpipe.toml"
    config.write_text(
        f"""
        cluster = "fox.test"
        hostname = "n1"
        bus.servers = {json.dumps([server if isinstance(server, str) else server.url])}
        [publish]
        interval = "200ms"
        jitter = 0
        log_level = "off"
        collectors.load = {{}}
        sonar = {{ sample_interval = 0, sysinfo_interval = 0 }}
        [publish.spool]
        replay_rate = 1000
        """
    )
    home = {"XDG_STATE_HOME": str(directory), "CCPIPE_CONFIG": str(config), **environ}
    with (directory / "stderr").open("ab") as stderr:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ccpipe", "publish",
            stderr=stderr, env=environment(**home), preexec_fn=die_with_parent,
        )  # fmt: skip


def text(directory: Path) -> str:
    return (directory / "stderr").read_text()


def spooled(directory: Path) -> list[bytes]:
    spool = Spool(directory / "ccpipe" / "spool", size=2**30, age=10**6)
    spool.open()
    found = [each.message.payload for each in spool.oldest(100_000)]
    spool.close()
    return found


async def times(server: NatsServer) -> list[int]:
    """Return the times of the samples of one metric in the stream, in order."""
    found = await stored(server)
    return [
        line.time
        for subject, payload in found
        if "metrics" in subject
        for line in decode(payload)
        if line.name == "cpu_load" and line.time is not None
    ]


async def test_samples_taken_without_broker_survive_kill(tmp_path: Path) -> None:
    """The next publisher sends them first, before its own samples, each slot once."""
    (tmp_path / "nats").mkdir()
    server = NatsServer(tmp_path / "nats", port=free_port())
    process = await start(server, tmp_path)
    files = tmp_path / "ccpipe" / "spool"
    await eventually(lambda: len(list(files.glob("*.metrics"))) >= 5, 60)
    process.kill()
    await process.wait()
    before = [line.time for payload in spooled(tmp_path) for line in decode(payload)
              if line.name == "cpu_load"]  # fmt: skip
    assert len(before) >= 3
    async with server:
        process = await start(server, tmp_path)
        await eventually(lambda: "the spool is empty" in text(tmp_path), 60)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0
        found = await times(server)
    assert found[: len(before)] == before
    assert found == sorted(set(found))


async def test_publisher_stopped_with_frozen_broker_spools_its_samples(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """SIGTERM leaves everything in the spool; nothing is lost, and nothing is a dead letter."""
    process = await start(nats_server, tmp_path)
    while not (tmp_path / "ccpipe").exists() or len(await times_or_none(nats_server)) < 2:
        await asyncio.sleep(0.1)
    async with frozen(nats_server.pid):
        await eventually(lambda: "messages go to the spool" in text(tmp_path), 60)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0
    totals = re.search(r"publisher: (\d+) records read, (\d+) written, 0 dead", text(tmp_path))
    assert totals
    assert totals[1] == totals[2]
    assert spooled(tmp_path)
    assert not (tmp_path / "ccpipe" / "dead.lp").exists()


async def test_publisher_names_setting_if_server_lacks_jetstream(tmp_path: Path) -> None:
    """Nothing is published without acknowledgement unless configured; then the spool is, too."""
    async with nats_daemon(tmp_path, "") as port:
        url = f"nats://127.0.0.1:{port}"
        client = await nats.connect(url)
        inbox = await client.subscribe("fox%2Etest.metrics")
        await client.flush()
        process = await start(url, tmp_path)
        setting = re.compile(r"the spool waits: .*is it on\? \(else set bus.jetstream = false\)")
        await eventually(lambda: bool(setting.search(text(tmp_path))), 600)
        process.terminate()
        assert await process.wait() == 0
        payloads = spooled(tmp_path)
        assert len(payloads) > 1
        process = await start(url, tmp_path, CCPIPE_BUS__JETSTREAM="false")
        received: list[bytes] = []
        while not set(payloads) <= set(received):
            received.append((await inbox.next_msg(timeout=600)).data)
        process.terminate()
        assert await process.wait() == 0
        await client.close()
    # The oldest was sent before, to find out whether a stream stores it.
    assert [each for each in dict.fromkeys(received) if each in payloads] == payloads


async def times_or_none(server: NatsServer) -> list[int]:
    """Return the times in the stream, none if it does not exist yet."""
    try:
        return await times(server)
    except Exception as error:
        if "not found" not in str(error):
            raise
        return []
