"""``docs/guide/python.md``: every block runs, those about the broker against a real nats-server."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

import nats
import pytest
from nats.aio.client import Client

import ccpipe
from ccpipe.bus.nats.server import NatsServer
from ccpipe.process.die_with_parent import die_with_parent
from tests.cli.command import environment
from tests.paths import ROOT

PAGE = (ROOT / "docs/guide/python.md").read_text(encoding="utf-8")
DEFAULT_URL = "nats://127.0.0.1:4222"
LINE = b"water_temp,cluster=fritz,hostname=cooling1,type=node value=21.5 1740027951\n"


class Block(NamedTuple):
    """A block of code, by the heading above it."""

    heading: str
    language: str
    text: str


def blocks() -> list[Block]:
    """Return all blocks of the page."""
    found, heading = [], ""
    for match in re.finditer(
        r"^## ([^\n]+)$|^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE
    ):
        if match[1]:
            heading = match[1]
        else:
            found.append(Block(heading, match[2], match[3]))
    return found


def block(heading: str, number: int = 0, language: str = "python") -> str:
    """Return one block below a heading."""
    found = [b.text for b in blocks() if (b.heading, b.language) == (heading, language)]
    return found[number]


async def start(
    code: str, folder: Path, url: str = "", **environ: str
) -> asyncio.subprocess.Process:
    """Run a block as a script, with the broker's address in place of the usual one."""
    script = folder / "script.py"
    script.write_text(code.replace(DEFAULT_URL, url))
    return await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", str(script), cwd=folder, env=environment(**environ),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, preexec_fn=die_with_parent,
    )  # fmt: skip


async def ended(process: asyncio.subprocess.Process) -> str:
    """Wait for the end; return what was printed."""
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, err) == (0, b"")
    return out.decode()


def test_all_blocks_are_covered() -> None:
    """One that is added needs a test here."""
    count = {b.heading: 0 for b in blocks()}
    for each in blocks():
        count[each.heading] += 1
    assert count == {"Decode and encode": 2, "Publish": 1, "Subscribe": 2, "Plug-ins": 7}


def test_the_table_lists_the_public_interface() -> None:
    """All names, and no other."""
    rows = re.findall(r"^\| (`.+?)\n", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", "".join(rows))) == set(ccpipe.__all__)


async def test_decode_and_encode(tmp_path: Path) -> None:
    """It prints what the page says."""
    process = await start(block("Decode and encode"), tmp_path)
    assert await ended(process) == block("Decode and encode", language="text")


async def test_publish(nats_server: NatsServer, tmp_path: Path) -> None:
    """The message is stored in the cluster's stream."""
    client = await nats.connect(nats_server.url)
    subscription = await client.subscribe("fritz.metrics")
    await client.flush()
    await ended(await start(block("Publish"), tmp_path, nats_server.url))
    payload = (await subscription.next_msg(60)).data
    stored = (await client.jetstream().stream_info("ccpipe-fritz")).state.messages
    await client.close()
    assert payload.startswith(b"water_temp,cluster=fritz,hostname=cooling1,type=node value=21.5 ")
    assert stored == 1


async def test_subscribe(nats_server: NatsServer, tmp_path: Path) -> None:
    """What is published while it listens is printed."""
    process = await start(block("Subscribe", 0), tmp_path, nats_server.url)
    client = await nats.connect(nats_server.url)
    while process.returncode is None:
        await client.publish("fritz.metrics", LINE)
        await asyncio.sleep(0.1)
    await client.close()
    assert await ended(process) == "fritz.metrics water_temp 21.5\n"


async def test_subscribe_durably(nats_server: NatsServer, tmp_path: Path) -> None:
    """What is published while it does not run is printed by the next run, once."""
    client = await nats.connect(nats_server.url)
    for value in (b"1", b"2"):
        process = await start(block("Subscribe", 1), tmp_path, nats_server.url)
        assert process.stdout is not None
        if value == b"1":
            for _ in range(1200):
                try:
                    await client.jetstream().publish("fritz.metrics", LINE.replace(b"21.5", value))
                    break
                except nats.js.errors.NoStreamResponseError:
                    await asyncio.sleep(0.05)
        printed = await asyncio.wait_for(process.stdout.readline(), 60)
        assert printed == b"water_temp %b.0\n" % value
        await acknowledged(client, "ccpipe-fritz", "print")
        process.terminate()
        await process.wait()
        await client.jetstream().publish("fritz.metrics", LINE.replace(b"21.5", b"2"))
    await client.close()


async def acknowledged(client: Client, stream: str, durable: str) -> None:
    """Wait until all that a stream gave a consumer is acknowledged."""
    async with asyncio.timeout(60):
        while (await client.jetstream().consumer_info(stream, durable)).num_ack_pending:
            await asyncio.sleep(0.02)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Install the page's plug-ins as pip would."""
    info = tmp_path / "ccpipe_example-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ccpipe-example\nVersion: 1.0\n")
    points = block("Plug-ins", language="toml").replace("project.entry-points.", "")
    (info / "entry_points.txt").write_text(points.replace('"', ""))
    (tmp_path / "ccpipe_example.py").write_text(
        "\n".join(b.text for b in blocks() if b.text.startswith("# ccpipe_example.py\n"))
    )
    return tmp_path


async def command(folder: Path, *arguments: str) -> str:
    """Run ccpipe with the page's package installed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ccpipe", *arguments, cwd=folder,
        env=environment(PYTHONPATH=os.pathsep.join([str(folder), str(ROOT)])),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, preexec_fn=die_with_parent,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_a_collector_of_a_package(package: Path) -> None:
    """It is published with the tags of the node, and its unit is known."""
    shown = await command(package, "publish", "--once", "--dry-run", "-o", "json")
    messages = [json.loads(line) for line in shown.splitlines()]
    (uptime,) = [message for message in messages if message["name"] == "uptime"]
    assert uptime["value"] > 0
    assert {"cluster", "hostname", "type"} <= set(uptime["tags"])
    configured = await command(package, "config", "clustercockpit", "uptime")
    assert json.loads(configured)["metrics"]["uptime"]["frequency"] == 10


async def test_source_translator_and_sink_of_a_package(package: Path) -> None:
    """The page's recipe runs to its end, and each option has its effect."""
    (package / "recipe.toml").write_text(block("Plug-ins", 1, "toml"))
    listed = await command(package, "plugins")
    await command(package, "bridge", "recipe.toml")
    rows = [json.loads(line) for line in (package / "pips.jsonl").read_text().splitlines()]
    assert listed.count("ccpipe-example 1.0") == 5
    assert 0 < len(rows) < 20
    assert {name for name, _, _ in rows} == {"pips"}
    assert {value for _, value, _ in rows} <= {40, 50, 60}
