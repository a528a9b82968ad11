"""``ccpipe control``: real nodes asked and set over a real broker."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.cli.control import _as_json, _rows
from ccpipe.config import Bus, ControlOptions, Publish, Site
from ccpipe.formats.lineprotocol import decode
from ccpipe.message import Message
from ccpipe.node.agent.controls import controls
from ccpipe.node.agent.log import LogSource
from ccpipe.node.agent.responder import Responder
from ccpipe.pipeline import run
from ccpipe.telemetry import Telemetry
from tests.cli.command import Ended, ccpipe
from tests.conftest import eventually
from tests.node.conftest import PACKED, unpack


async def control(server: NatsServer, *arguments: str) -> Ended:
    where = ("--cluster", "fox", "--server", server.url)
    return await asyncio.to_thread(ccpipe, "control", *arguments, *where)


@contextlib.asynccontextmanager
async def running(
    server: NatsServer, hostname: str, root: Path, *allowed: Any
) -> AsyncIterator[None]:
    """Run what of ``ccpipe publish`` answers, on a machine of its own below `root`."""
    options = ControlOptions(put=list(allowed))
    bus = Bus(servers=[server.url])
    site = Site(cluster="fox", hostname=hostname, bus=bus, publish=Publish(control=options))

    async def set_interval(seconds: float) -> None:
        pass

    answers = controls(
        site=lambda: site, collectors=dict, sysinfo=list, set_interval=set_interval, root=str(root)
    )
    async with (
        Connection(bus, name="test", telemetry=Telemetry()) as connection,
        Responder(connection, site, answers),
    ):
        await eventually(lambda: len(connection._subscriptions) > 0)
        await connection.flush()
        yield


@pytest.fixture
async def machines(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Path]:
    """Run n1, where frequencies may be set, and n2, where nothing may."""
    for name in ("n1", "n2"):
        for tree in ("cpufreq", "rapl-limits"):
            unpack((PACKED / f"{tree}.txt").read_text(), tmp_path / name)
    async with (
        running(nats_server, "n1", tmp_path / "n1", "freq"),
        running(nats_server, "n2", tmp_path / "n2"),
    ):
        yield tmp_path


def governor(machines: Path, node: str) -> str:
    path = machines / node / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    return path.read_text().strip()


async def test_values_are_shown_in_a_table(nats_server: NatsServer, machines: Path) -> None:
    """A row for each; of one device where it is named."""
    shown = await control(nats_server, "get", "rapl", "--node", "n1")
    assert (shown.code, shown.err) == (0, "")
    rows = [line.split() for line in shown.out.splitlines()]
    assert rows[0] == ["NODE", "WHAT", "VALUE"]
    assert ["n1", "rapl", "socket:0", "pkg_limit_1", "165.0"] in rows
    shown = await control(
        nats_server, "get", "rapl.pkg_limit_1", "--type", "socket", "--id", "1", "--node", "n1"
    )
    assert shown.out.splitlines()[1].split() == ["n1", "rapl.pkg_limit_1", "160"]


async def test_without_a_name_it_lists_what_there_is(
    nats_server: NatsServer, machines: Path
) -> None:
    """And what may be set."""
    shown = await control(nats_server, "get", "--node", "n1")
    rows = {line.split()[1]: line.split()[2:4] for line in shown.out.splitlines()}
    assert rows["freq.governor"] == ["ALL", "hwthread"]
    assert rows["rapl.pkg_limit_1"] == ["GET", "socket"]
    assert rows["interval"] == ["GET", "node"]


async def test_a_list_of_nodes_is_asked_and_all_in_json(
    nats_server: NatsServer, machines: Path
) -> None:
    """Values that are JSON are not a text in JSON."""
    shown = await control(nats_server, "get", "freq.governor", "--node", "n[1-2]", "-o", "json")
    value = {"0": "powersave", "1": "powersave", "2": "performance"}
    same = {"name": "freq.governor", "type": "node", "level": "INFO", "value": value}
    assert json.loads(shown.out) == [{"node": "n1", **same}, {"node": "n2", **same}]


async def test_without_a_node_all_answer(nats_server: NatsServer, machines: Path) -> None:
    """Those that do so in time."""
    shown = await control(nats_server, "get", "interval", "--wait", "3s")
    assert shown.code == 0
    rows = [line.split() for line in shown.out.splitlines()[1:]]
    assert rows == [["n1", "interval", "10s"], ["n2", "interval", "10s"]]


async def test_lines_are_the_answers_themselves(nats_server: NatsServer, machines: Path) -> None:
    """Line protocol, as it came."""
    shown = await control(nats_server, "get", "interval", "--node", "n2", "-o", "line")
    (line,) = decode(shown.out.encode())
    assert (line.hostname, line.value, line.field) == ("n2", "10s", "log")


async def test_a_value_is_set_on_one_node_only(nats_server: NatsServer, machines: Path) -> None:
    """The one that is named."""
    shown = await control(nats_server, "put", "freq.governor", "performance", "--node", "n1")
    assert shown.code == 0
    assert "SUCCESS! It was 0 1: powersave, 2: performance, it is performance" in shown.out
    assert governor(machines, "n1") == "performance"
    assert governor(machines, "n2") == "powersave"


async def test_a_change_is_a_log_line_on_the_bus(nats_server: NatsServer, machines: Path) -> None:
    """Where all the node's log goes: whoever looks at the node later can see who did what."""
    site = Site(cluster="fox", hostname="n1", bus=Bus(servers=[nats_server.url]))
    reported, stop, telemetry = list[str](), asyncio.Event(), Telemetry()
    reader = NatsSource(site=site, telemetry=telemetry, subjects=["log"], durable="test")

    async def read() -> None:
        async for batch in reader.batches():
            reported.extend(str(record.value) for record in batch.records)

    async with reader:
        log, sink = LogSource(site=site), NatsSink(site=site, telemetry=telemetry)
        tasks = [asyncio.create_task(read()), asyncio.create_task(run(log, sink, stop=stop))]
        await eventually(lambda: log in logging.getLogger().handlers)
        await control(nats_server, "put", "freq.max_cpu_freq", "2GHz", "--node", "n1")
        change = "control: freq.max_cpu_freq of node set from 0 1: 3600000, 2: 2400000 to 2000000"
        await eventually(lambda: any(text.startswith(change) for text in reported))
        stop.set()
        reader.stop()
        await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["put", "freq.governor", "performance", "--node", "n2"], 77, "n2: freq.governor may not"),
        (["put", "freq.max_cpu_freq", "9GHz", "--node", "n1"], 65, "n1: 9GHz is not between"),
        (["put", "freq.governor", "x"], 64, "--node is missing"),
        (["get", "freq.govenor", "--node", "n1"], 64, "did you mean 'freq.governor'?"),
        (["get", "topology", "--node", "n1"], 69, "n1: nothing is known of this node"),
        (["get", "rapl", "--node", "n3", "--wait", "300ms"], 69, "no answer from n3 within 0.3 s"),
        (["get", "rapl", "--node", "n[1"], 65, "n[1"),
        (["get", "rapl", "--wait", "long"], 64, "--wait"),
    ],
)
async def test_what_goes_wrong_has_its_exit_code(
    nats_server: NatsServer, machines: Path, arguments: list[str], code: int, said: str
) -> None:
    """Those of sysexits.h; nothing is set."""
    shown = await control(nats_server, *arguments)
    assert shown.code == code
    assert said in shown.err
    assert shown.out == ""
    assert governor(machines, "n1") == governor(machines, "n2") == "powersave"


async def test_one_node_that_refuses_costs_only_itself(
    nats_server: NatsServer, machines: Path
) -> None:
    """The others are set and shown; each that is not is told of on stderr."""
    asked = ("freq.governor", "performance", "--node", "n[1-2],x", "--wait", "3s")
    shown = await control(nats_server, "put", *asked)
    assert shown.code == 69
    assert "SUCCESS" in shown.out
    refused, silent = shown.err.splitlines()
    assert "n2: freq.governor may not be set here" in refused
    assert silent == "ccpipe: no answer from x within 3 s"
    assert governor(machines, "n1") == "performance"


async def test_where_no_node_runs_it_says_so(nats_server: NatsServer) -> None:
    """At once, as the broker knows."""
    shown = await control(nats_server, "get", "interval", "--wait", "20s")
    assert shown.code == 69
    assert "no node of fox answered" in shown.err


def test_an_answer_that_only_looks_like_json_is_a_text() -> None:
    """Peers answer what they like."""
    for text in ("{broken", "[" * 100_000):
        assert _as_json(Message("x", {}, text, 1, "log"))["value"] == text


def test_nested_values_are_rows() -> None:
    """Tables by their keys, lists in one line, lists of tables by number."""
    value = {"a": {"b": True, "c": [1, 2]}, "d": [{"e": None}], "f": {}}
    assert list(_rows(value, "x")) == [
        ("x a b", "true"), ("x a c", "1, 2"), ("x d 0 e", "null"), ("x f", "{}"),
    ]  # fmt: skip
