"""``ccpipe publish`` as a service: systemd, SIGHUP, Sonar's envelopes, log and control."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import nats
import psutil
import pytest
from nats.aio.msg import Msg

from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Site
from ccpipe.errors import CcpipeError
from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.sonar import Envelope, SysinfoEnvelope
from ccpipe.message import Message
from ccpipe.node.agent import systemd
from ccpipe.node.agent.agent import Agent, envelope_sampler, sysinfo
from ccpipe.node.agent.parts import AgentParts
from ccpipe.process.die_with_parent import die_with_parent
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually

SLOT = 100 * 10**6


class SystemdSocket:
    """The notifications that systemd receives, line by line."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind(address.replace("@", "\0", 1))
        self.lines: list[str] = []

    def has(self, *words: str) -> bool:
        with suppress(BlockingIOError):
            while True:
                self.lines += self.socket.recv(4096).decode().splitlines()
        lines = iter(self.lines)
        return all(any(line.startswith(word) for line in lines) for word in words)


class Node:
    """A publisher in its own process, its configuration, and its messages on the bus."""

    def __init__(self, site: Site, directory: Path) -> None:
        self.site = site
        self.config = directory / "ccpipe.toml"
        self.process: asyncio.subprocess.Process | None = None
        self.messages: list[Message] = []
        self.envelopes: list[dict[str, object]] = []
        self.stderr = directory / "stderr"

    def configure(self, text: str = "", top: str = "") -> None:
        self.config.write_text(
            f"""
            cluster = "{self.site.cluster}"
            hostname = "n1"
            {top}
            [bus]
            servers = {json.dumps(self.site.bus.servers)}
            jetstream = false
            [publish]
            interval = "100ms"
            jitter = 0
            {text}
            """
        )

    async def start(self, **environ: str) -> None:
        self.client = await nats.connect(self.site.bus.servers[0])
        for kind in ("metrics", "log.*"):
            await self.client.subscribe(f"fox%2Etest.{kind}", cb=self._add_messages)
        await self.client.subscribe("fox%2Etest.sonar.*", cb=self._add_envelope)
        await self.client.flush()
        with self.stderr.open("wb") as stderr:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "ccpipe", "publish", "--config", str(self.config),
                stderr=stderr, preexec_fn=die_with_parent, env={**os.environ, **environ},
            )  # fmt: skip

    async def _add_messages(self, message: Msg) -> None:
        self.messages += list(decode(message.data))

    async def _add_envelope(self, message: Msg) -> None:
        self.envelopes.append(json.loads(message.data))

    def slots(self, name: str = "cpu_load") -> list[int]:
        return [m.time for m in self.messages if m.name == name and m.time is not None]

    def kinds(self) -> list[str]:
        data = [dict(e.get("data", {"type": "error"})) for e in self.envelopes]  # type: ignore[call-overload]
        return [str(d["type"]) for d in data]

    def missing(self, slots: list[int], step: int = SLOT) -> int:
        """Return the number of missing slots that the node did not report as missed.

        On a busy machine a sample is late now and then.
        """
        assert slots == sorted(set(slots))
        assert not any(slot % step for slot in slots)
        reported = self.log("slots passed without a sample")
        missed = sum(int(str(line.value).split()[0]) for line in reported)
        return max(0, (slots[-1] - slots[0]) // step + 1 - len(slots) - missed)

    def log(self, text: str) -> list[Message]:
        return [m for m in self.messages if m.field == "log" and text in str(m.value)]

    async def samples(self, count: int) -> None:
        before = len(self.slots())
        await eventually(lambda: len(self.slots()) >= before + count)

    def reload(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    async def stop(self) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(self.process.wait(), 60)
        await self.client.flush()
        return code


@pytest.fixture
async def node(site: Site, tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(site, tmp_path)
    node.configure()
    yield node
    if node.process is not None:
        if node.process.returncode is None:
            node.process.kill()
            await node.process.wait()
        await node.client.close()


@pytest.fixture(params=["path", "abstract"])
def notified(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, SystemdSocket]]:
    """Listen at systemd's address, a path or an abstract one."""
    address = str(tmp_path / "notify") if request.param == "path" else f"@ccpipe-test-{os.getpid()}"
    notified = SystemdSocket(address)
    yield address, notified
    notified.socket.close()


async def test_publisher_notifies_systemd_of_each_state(
    node: Node, notified: tuple[str, SystemdSocket]
) -> None:
    """Ready, alive, reloading, ready again and stopping."""
    address, systemd = notified
    await node.start(NOTIFY_SOCKET=address, WATCHDOG_USEC="200000")
    await eventually(lambda: systemd.has("READY=1", "WATCHDOG=1", "WATCHDOG=1"))
    await eventually(lambda: systemd.has("STATUS=", "STATUS="))
    assert not systemd.has("RELOADING=1")
    node.reload()
    await eventually(lambda: systemd.has("RELOADING=1", "MONOTONIC_USEC=", "READY=1"))
    assert not systemd.has("STOPPING=1")
    assert await node.stop() == 0
    assert systemd.has("READY=1", "RELOADING=1", "READY=1", "STOPPING=1")


async def test_reload_applies_all_settings_without_losing_slots(node: Node) -> None:
    """Collectors, tags, units and rules take effect; each slot is published exactly once."""
    await node.start()
    await node.samples(3)
    node.configure(
        """
        units = true
        tags = { rack = "r1" }
        [publish.collectors.memory]
        enabled = false
        [[publish.translate]]
        use = "rename"
        names = { cpu_user = "user" }
        """
    )
    node.reload()
    # A reading that was late at the reload still has the tags of its slot.
    await eventually(lambda: any(m.name == "user" and "rack" in m.tags for m in node.messages))
    node.configure()
    node.reload()
    last = node.slots("user")[-1]
    await eventually(lambda: node.slots("cpu_user")[-1] > last)
    await node.samples(3)
    assert await node.stop() == 0
    slots = node.slots()
    assert node.missing(slots) == 0
    racks = {m.time for m in node.messages if m.tags.get("rack") and m.field == "value"}
    assert not racks & set(node.slots("mem_used"))
    users = [m.tags for m in node.messages if m.name == "user" and "rack" in m.tags]
    assert {tags["unit"] for tags in users} == {"percent"}
    rates = {*node.slots("cpu_user"), *node.slots("user")}
    assert set(slots[1:-1]) <= rates  # the first has none, and the last may be late


async def test_sigusr1_releases_nvml_without_losing_slots(node: Node) -> None:
    await node.start()
    await node.samples(1)
    assert node.process is not None
    node.process.send_signal(signal.SIGUSR1)
    await eventually(lambda: bool(node.log("SIGUSR1: NVML is released for 120 s")))
    await node.samples(2)
    assert await node.stop() == 0
    assert node.missing(node.slots()) == 0


async def test_reload_keeps_configuration_when_new_one_is_invalid(node: Node) -> None:
    """The error names the key path and is published, too."""
    await node.start()
    await node.samples(1)
    node.configure("[publish.collectors.memry]")
    node.reload()
    await eventually(lambda: bool(node.log("did you mean 'memory'")))
    await node.samples(3)
    assert await node.stop() == 0
    [line] = node.log("did you mean 'memory'")
    assert line.tags["loglevel"] == "error"
    slots = node.slots()
    assert node.missing(slots) == 0


async def test_reload_warns_of_settings_that_need_restart(node: Node) -> None:
    """A changed hostname does not take effect, and a warning names it."""
    await node.start()
    await node.samples(1)
    node.config.write_text(node.config.read_text().replace('"n1"', '"n2"'))
    node.reload()
    await eventually(lambda: bool(node.log("hostname: changed; takes effect after a restart")))
    await node.samples(2)
    assert {m.hostname for m in node.messages} == {"n1"}


async def test_publisher_publishes_its_log_until_last_line(node: Node) -> None:
    """Messages of the shutdown are included, levels below the configured one are not."""
    await node.start()
    await node.samples(1)
    assert await node.stop() == 0
    [line] = node.log("records written") or node.log("written, 0 dead letters")
    assert (line.name, line.tags["loglevel"], line.hostname) == ("ccpipe", "info", "n1")


async def test_publisher_publishes_sonar_until_disabled_by_reload(node: Node) -> None:
    """Sysinfo at the start, samples at their interval."""
    node.configure("[publish.sonar]\nsample_interval = '300ms'\n")
    await node.start()
    await eventually(lambda: node.kinds().count("sample") >= 2)
    node.configure("[publish.sonar]\nsample_interval = 0\nsysinfo_interval = 0\n")
    node.reload()
    await eventually(lambda: bool(node.log("configuration reloaded")))
    before = -1
    async with asyncio.timeout(60):
        while before < len(node.envelopes):  # some may have been on their way
            before = len(node.envelopes)
            await node.samples(10)
    assert await node.stop() == 0
    assert node.kinds().count("sysinfo") == 1


async def test_publisher_answers_control_and_sets_interval(node: Node) -> None:
    """A new interval takes effect without lost or duplicate slots."""
    node.configure("[publish.control]\nallow = ['interval']\n")
    await node.start()
    await node.samples(2)

    async def ask(method: str, control: str, request: str) -> Message:
        tags = f"hostname=n1,method={method},type=node"
        line = f'{control},{tags} control="{request}" {time.time_ns()}'
        subject = f"fox%2Etest.control.{method.lower()}"
        reply = await node.client.request(subject, line.encode(), timeout=10)
        [answer] = decode(reply.data)
        return answer

    states = json.loads(str((await ask("GET", "collectors", "")).value))
    assert states["cpu"] == {"interval": 0.1, "state": "on"}
    assert states["sonar_sample"]["interval"] == 300
    answer = await ask("PUT", "interval", "300ms")
    assert answer.tags["level"] == "INFO", answer.value
    await node.samples(5)
    assert (await ask("GET", "interval", "")).value == "300ms"
    for value in ("0", "1ms", "400d"):
        assert (await ask("PUT", "interval", value)).tags["reason"] == "invalid"
    assert await node.stop() == 0
    slots = node.slots()
    assert all(slot % (3 * SLOT) == 0 for slot in slots[-4:])
    assert node.missing(slots[-4:], 3 * SLOT) == 0


async def test_publisher_runs_with_sonar_only(node: Node) -> None:
    names = sorted(entry.name for entry in metadata.entry_points(group="ccpipe.collectors"))
    off = "".join(f"[publish.collectors.{name}]\nenabled = false\n" for name in names)
    node.configure(f"[publish.sonar]\nsample_interval = '300ms'\n{off}")
    await node.start()
    await eventually(lambda: len(node.envelopes) >= 3)
    assert await node.stop() == 0
    assert {m.field for m in node.messages} <= {"log"}


async def test_reload_enables_sonar(node: Node) -> None:
    """Sysinfo is published at once."""
    node.configure("[publish.sonar]\nsample_interval = 0\nsysinfo_interval = 0\n")
    await node.start()
    await node.samples(2)
    assert node.envelopes == []
    node.configure("[publish.sonar]\nsample_interval = '300ms'\n")
    node.reload()
    await eventually(lambda: set(node.kinds()) >= {"sysinfo", "sample"})
    assert await node.stop() == 0


async def test_publisher_opens_single_connection(node: Node, nats_server: NatsServer) -> None:
    """Metrics, envelopes, log and control share it."""
    await node.start()
    await eventually(lambda: bool(node.slots() and node.envelopes))
    assert node.process is not None
    there = [c.raddr for c in psutil.Process(node.process.pid).net_connections() if c.raddr]
    assert [address.port for address in there] == [nats_server.port]


async def test_timestamps_have_configured_precision(node: Node) -> None:
    """cc-metric-store expects seconds, cc-event-store nanoseconds."""
    node.configure('precision = "ns"')
    client = await nats.connect(node.site.bus.servers[0])
    subscription = await client.subscribe("fox%2Etest.metrics")
    await node.start()
    payload = (await subscription.next_msg(60)).data
    assert {len(line.rpartition(b" ")[2]) for line in payload.splitlines()} == {19}
    await client.close()


@pytest.mark.parametrize(
    "broken",
    [
        "ccpipe.node.agent.agent.Agent._status",
        "ccpipe.node.agent.responder._own_subjects",
        "ccpipe.node.agent.log.LogSource._take",
    ],
)
async def test_publisher_ends_when_background_task_fails(
    site: Site, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an unexpected error of a background task systemd restarts the service."""

    def fail(*_: object) -> None:
        raise KeyError(broken)

    monkeypatch.setattr(broken, fail)
    agent = Agent(lambda: site, None, once=False, telemetry=Telemetry())
    with pytest.raises(KeyError, match=broken):
        await asyncio.wait_for(agent.run(None), 60)


FOX = Site(cluster="fox", hostname="n1")


async def envelopes(parts: AgentParts) -> list[Envelope]:
    sampler = envelope_sampler(parts, once=True)
    return [record async for batch in sampler.batches() for record in batch.records]


async def test_single_sample_has_both_envelopes() -> None:
    """Without waiting for their intervals."""
    records = await envelopes(AgentParts.of(FOX, None, Telemetry()))
    assert {record.data.type for record in records if record.data} == {"sample", "sysinfo"}


async def test_sampler_reports_failed_collector_in_error_envelope() -> None:
    class Broken:
        def collect(self, time: int) -> list[Envelope]:
            raise CcpipeError(f"no luck at {time}")

    parts = AgentParts.of(FOX, None, Telemetry())
    parts.sonar["sonar_sample"] = Broken()
    [failed] = [record for record in await envelopes(parts) if record.data is None]
    [error] = failed.errors
    assert "no luck" in error.detail
    assert (error.cluster, error.node) == ("fox", "n1")


def test_sysinfo_omits_topology_drawing() -> None:
    [envelope, *_] = sysinfo(FOX)
    assert isinstance(envelope, SysinfoEnvelope)
    assert envelope.data is not None
    attributes = envelope.data.attributes
    assert (attributes.cluster, attributes.node) == ("fox", "n1")
    assert attributes.topo_svg == ""


@pytest.mark.parametrize("address", [None, "", "nonsense", "/nonexistent/notify", "@nobody-there"])
def test_notify_does_nothing_without_systemd(
    monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    before = len(list(Path("/proc/self/fd").iterdir()))
    systemd.notify("READY=1")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_reloading_is_sent_as_one_datagram(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """sd_notify(3) requires RELOADING and MONOTONIC_USEC in one message."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as here:
        here.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        systemd.reloading()
        first, second = here.recv(4096).decode().split("\n")
    assert first == "RELOADING=1"
    assert second.removeprefix("MONOTONIC_USEC=").isdecimal()


@pytest.mark.parametrize(
    ("period", "pid", "seconds"),
    [
        pytest.param("30000000", str(os.getpid()), 30.0, id="own pid"),
        ("30000000", None, 30.0),
        ("30000000", "1", None),
        (None, None, None),
        ("0", None, None),
        ("soon", None, None),
    ],
)
def test_watchdog_ignores_other_process_and_invalid_period(
    monkeypatch: pytest.MonkeyPatch, period: str | None, pid: str | None, seconds: float | None
) -> None:
    """A watchdog of another process, or none, needs no notifications."""
    for name, value in (("WATCHDOG_USEC", period), ("WATCHDOG_PID", pid)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert systemd.watchdog() == seconds
