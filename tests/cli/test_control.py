"""``ccpipe control``: controls of real nodes over a real broker."""

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
from ccpipe.pipeline import run
from ccpipe.telemetry import Telemetry
from tests.cli.command import Ended, ccpipe
from tests.conftest import eventually
from tests.node.conftest import PACKED, unpack
from tests.responding import responding


async def control(server: NatsServer, *arguments: str) -> Ended:
    where = ("--cluster", "fox", "--server", server.url)
    return await asyncio.to_thread(ccpipe, "control", *arguments, *where)


@contextlib.asynccontextmanager
async def running(
    server: NatsServer, hostname: str, root: Path, *allowed: Any
) -> AsyncIterator[None]:
    """Run what of ``ccpipe publish`` answers, on a machine of its own below `root`."""
    options = ControlOptions(allow=list(allowed))
    bus = Bus(servers=[server.url])
    site = Site(cluster="fox", hostname=hostname, bus=bus, publish=Publish(control=options))

    async def set_interval(seconds: float) -> None:
        pass

    answers = controls(
        site=lambda: site, collectors=dict, sysinfo=list, set_interval=set_interval, root=str(root)
    )
    async with (
        Connection(bus, name="test", telemetry=Telemetry()) as connection,
        responding(connection, site, answers),
    ):
        yield


@pytest.fixture
async def nodes_root(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Path]:
    """Run n1, where frequencies may be set, and n2, where nothing may."""
    for name in ("n1", "n2"):
        for tree in ("cpufreq", "rapl-limits"):
            unpack((PACKED / f"{tree}.txt").read_text(), tmp_path / name)
    async with (
        running(nats_server, "n1", tmp_path / "n1", "freq"),
        running(nats_server, "n2", tmp_path / "n2"),
    ):
        yield tmp_path


def governor(nodes_root: Path, node: str) -> str:
    path = nodes_root / node / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    return path.read_text().strip()


async def test_control_get_shows_values_in_table(nats_server: NatsServer, nodes_root: Path) -> None:
    """A row for each; only the named device, if any."""
    shown = await control(nats_server, "get", "rapl", "--node", "n1")
    assert (shown.code, shown.err) == (0, "")
    rows = [line.split() for line in shown.out.splitlines()]
    assert rows[0] == ["NODE", "WHAT", "VALUE"]
    assert ["n1", "rapl", "socket:0", "pkg_limit_1", "165.0"] in rows
    shown = await control(
        nats_server, "get", "rapl.pkg_limit_1", "--type", "socket", "--id", "1", "--node", "n1"
    )
    assert shown.out.splitlines()[1].split() == ["n1", "rapl.pkg_limit_1", "160"]


async def test_control_get_lists_controls_without_name(
    nats_server: NatsServer, nodes_root: Path
) -> None:
    """And which of them can be set."""
    shown = await control(nats_server, "get", "--node", "n1")
    rows = {line.split()[1]: line.split()[2:4] for line in shown.out.splitlines()}
    assert rows["freq.governor"] == ["ALL", "hwthread"]
    assert rows["rapl.pkg_limit_1"] == ["GET", "socket"]
    assert rows["interval"] == ["GET", "node"]


async def test_control_get_queries_node_list_and_prints_json(
    nats_server: NatsServer, nodes_root: Path
) -> None:
    """Values that are JSON are not nested as text."""
    shown = await control(nats_server, "get", "freq.governor", "--node", "n[1-2]", "-o", "json")
    value = {"0": "powersave", "1": "powersave", "2": "performance"}
    same = {"name": "freq.governor", "type": "node", "level": "INFO", "value": value}
    assert json.loads(shown.out) == [{"node": "n1", **same}, {"node": "n2", **same}]


async def test_control_get_queries_all_nodes_without_node(
    nats_server: NatsServer, nodes_root: Path
) -> None:
    """Those that answer in time."""
    shown = await control(nats_server, "get", "interval", "--timeout", "3s")
    assert shown.code == 0
    rows = [line.split() for line in shown.out.splitlines()[1:]]
    assert rows == [["n1", "interval", "10s"], ["n2", "interval", "10s"]]


async def test_control_get_prints_replies_as_lines(
    nats_server: NatsServer, nodes_root: Path
) -> None:
    """Line protocol, unchanged."""
    shown = await control(nats_server, "get", "interval", "--node", "n2", "-o", "line")
    (line,) = decode(shown.out.encode())
    assert (line.hostname, line.value, line.field) == ("n2", "10s", "log")


async def test_control_set_changes_value_on_named_node_only(
    nats_server: NatsServer, nodes_root: Path
) -> None:
    shown = await control(nats_server, "set", "freq.governor", "performance", "--node", "n1")
    assert shown.code == 0
    assert "SUCCESS! It was 0 1: powersave, 2: performance, it is performance" in shown.out
    assert governor(nodes_root, "n1") == "performance"
    assert governor(nodes_root, "n2") == "powersave"


async def test_control_put_is_logged_on_bus(nats_server: NatsServer, nodes_root: Path) -> None:
    """Where the node's log goes, so that the change and its author can be found later."""
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
        await control(nats_server, "set", "freq.max_cpu_freq", "2GHz", "--node", "n1")
        change = "control: freq.max_cpu_freq of node set from 0 1: 3600000, 2: 2400000 to 2000000"
        await eventually(lambda: any(text.startswith(change) for text in reported))
        stop.set()
        reader.stop()
        await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["set", "freq.governor", "performance", "--node", "n2"], 77, "n2: freq.governor may not"),
        (["set", "freq.max_cpu_freq", "9GHz", "--node", "n1"], 65, "n1: 9GHz is not between"),
        (["set", "freq.governor", "x"], 64, "--node is missing"),
        (["get", "freq.govenor", "--node", "n1"], 64, "did you mean 'freq.governor'?"),
        (["get", "topology", "--node", "n1"], 69, "n1: no description of this node is available"),
        (
            ["get", "rapl", "--node", "n3", "--timeout", "300ms"],
            69,
            "no answer from n3 within 0.3 s",
        ),
        (["get", "rapl", "--node", "n[1"], 64, "--node n[1: "),
        (["get", "rapl", "--timeout", "long"], 64, "--timeout"),
    ],
)
async def test_control_errors_have_exit_codes(
    nats_server: NatsServer, nodes_root: Path, arguments: list[str], code: int, expected: str
) -> None:
    """As in sysexits.h; nothing is set."""
    shown = await control(nats_server, *arguments)
    assert shown.code == code
    assert expected in shown.err
    assert shown.out == ""
    assert governor(nodes_root, "n1") == governor(nodes_root, "n2") == "powersave"


def test_dry_run_of_control_set_prints_requests() -> None:
    """One for each node, without a broker."""
    given = ("control", "set", "rapl.pkg_limit_1", "85W", "--type", "socket", "--id", "0")
    shown = ccpipe(*given, "-N", "f[1-2]", "--dry-run")
    assert shown.code == 0, shown.err
    assert [request.rpartition(" ")[0] for request in shown.out.splitlines()] == [
        f'rapl.pkg_limit_1,hostname={node},method=PUT,type=socket,type-id=0 control="85W"'
        for node in ("f1", "f2")
    ]


async def test_control_put_reports_nodes_that_refuse(
    nats_server: NatsServer, nodes_root: Path
) -> None:
    """The others are set and shown; each that is not set is reported on stderr."""
    changed = ("freq.governor", "performance", "--node", "n[1-2],x", "--timeout", "3s")
    shown = await control(nats_server, "set", *changed)
    assert shown.code == 69
    assert "SUCCESS" in shown.out
    refused, silent = shown.err.splitlines()
    assert "n2: freq.governor may not be set here" in refused
    assert silent == "ccpipe: no answer from x within 3 s"
    assert governor(nodes_root, "n1") == "performance"


async def test_control_reports_missing_nodes(nats_server: NatsServer) -> None:
    """At once, since the broker reports that nothing is subscribed."""
    shown = await control(nats_server, "get", "interval", "--timeout", "20s")
    assert shown.code == 69
    assert "no node of fox answered" in shown.err


def test_reply_that_is_invalid_json_is_text() -> None:
    """Peers may send anything."""
    for text in ("{broken", "[" * 100_000):
        assert _as_json(Message("x", {}, text, 1, "log"))["value"] == text


def test_nested_values_become_rows() -> None:
    """Tables by their keys, lists in one line, lists of tables by number."""
    value = {"a": {"b": True, "c": [1, 2]}, "d": [{"e": None}], "f": {}}
    assert list(_rows(value, "x")) == [
        ("x a b", "true"), ("x a c", "1, 2"), ("x d 0 e", "null"), ("x f", "{}"),
    ]  # fmt: skip
