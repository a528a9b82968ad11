"""``ccpipe doctor``: the real command on a real broker."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.streams.stream import ensure_consumer, ensure_stream
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.check import Status
from ccpipe.cli.doctor import machine
from ccpipe.cli.doctor.broker import clock_offset
from ccpipe.cli.doctor.machine import disks, spools, units_of
from ccpipe.config import Bus, Publish, Site, SpoolOptions
from tests.bus.nats.conftest import connected
from tests.cli.command import Ended, ccpipe
from tests.paths import ROOT
from tests.servers.nats.daemon import nats_daemon, placed


async def run(url: str, *arguments: object) -> Ended:
    where = ("--server", url, "--cluster", "fritz")
    return await asyncio.to_thread(lambda: ccpipe("doctor", *arguments, *where))


async def findings(url: str, *arguments: object) -> tuple[int, dict[str, Any]]:
    """Return the exit code, and status and text of the last finding of each check."""
    done = await run(url, *arguments, "-o", "json")
    found = json.loads(done.out)["findings"]
    return done.code, {each["check"]: (each["status"], each["finding"]) for each in found}


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Connection]:
    async with connected(Bus(servers=[nats_server.url])) as bus:
        yield bus


async def filled(server: NatsServer, bus: Connection) -> None:
    """Make stream and consumer as a bridge does, and store metrics."""
    site = Site(cluster="fritz", bus=Bus(servers=[server.url]))
    subjects = Subjects.of(site)
    patterns = subjects.patterns(["metrics"])
    stream = await ensure_stream(bus.jetstream(), site.bus, subjects, patterns)
    await ensure_consumer(bus.jetstream(), stream, "parquet", patterns, 30)
    for _ in range(3):
        await bus.jetstream().publish("fritz.metrics.f01", b"x value=1")


async def test_doctor_finds_streams_bridges_clock_and_metrics(
    nats_server: NatsServer, bus: Connection
) -> None:
    """A bridge that does not run is a warning, and the exit code is 1."""
    await filled(nats_server, bus)
    code, found = await findings(nats_server.url)
    assert code == 1
    assert found["bridges"][0] == "WARNING"
    assert found["bridges"][1].startswith("no bridge parquet runs")
    assert found["bridges"][1].endswith("; 3 unread messages")
    assert found["streams"] == ("OK", "ccpipe-fritz: 3 messages, 168 B of 1 GiB")
    assert found["clock"] == ("OK", "as the broker's")
    assert found["metrics"][0] == "OK"
    assert found["dead letters"] == ("OK", "0 dead letters")
    assert nats_server.url.partition("@")[2] in found["broker"][1]


async def test_doctor_is_critical_if_broker_is_away() -> None:
    """The exit code is 2; what does not need the broker is still checked."""
    code, found = await findings("nats://127.0.0.1:1")
    assert code == 2
    assert found["broker"] == ("CRITICAL", "no NATS server answers at nats://127.0.0.1:1")
    assert found["ccpipe"][0] == "OK"


async def test_doctor_publishes_nothing(nats_server: NatsServer, bus: Connection) -> None:
    """It only looks: neither a message, a stream nor a consumer is left behind."""
    seen: list[str] = []
    await bus.subscribe("fritz.>", lambda delivery: seen.append(delivery.subject))
    await bus.flush()
    await findings(nats_server.url, "null", ROOT / "bridges" / "parquet.toml")
    await bus.flush()
    account = await bus.jetstream().account_info()
    assert (seen, account.streams, account.consumers) == ([], 0, 0)


async def test_doctor_tells_what_user_may_subscribe_to(tmp_path: Path) -> None:
    """By subscribing as that user; a viewer may not examine streams."""
    configuration = placed((ROOT / "nats.conf").read_text(), tmp_path)
    for role in ("node", "bridge", "viewer", "operator"):
        configuration = configuration.replace(f"$CCPIPE_{role.upper()}_PASSWORD", role)
    async with nats_daemon(tmp_path, configuration) as port:
        url = f"nats://127.0.0.1:{port}"
        secret = tmp_path / "password"
        secret.write_text("viewer")
        login = ("--nats-user", "viewer", "--password-file", secret)
        _, found = await findings(url, *login)
        assert found["permissions"][1] == (
            "may subscribe to metrics, events, log, sonar, dead, control"
        )
        assert found["streams"][0] == "UNKNOWN"
        secret.write_text("node")
        _, found = await findings(url, "--nats-user", "node", "--password-file", secret)
        assert found["permissions"][1] == (
            "may subscribe to control; not to metrics, events, log, sonar, dead"
        )


async def test_doctor_checks_recipes(nats_server: NatsServer, tmp_path: Path) -> None:
    """Those next to the configuration, or those given; stores are really asked."""
    config = tmp_path / "ccpipe.toml"
    config.write_text("")
    (tmp_path / "bridges").mkdir()
    recipe = tmp_path / "bridges" / "store.toml"
    recipe.write_text(
        '[source]\nuse = "nats"\ndurable = "x"\n'
        '[sink]\nuse = "victoriametrics"\nurl = "http://127.0.0.1:1"\n'
    )
    code, found = await findings(nats_server.url, "--config", config)
    assert code == 2
    status, text = found["recipe store"]
    assert (status, "127.0.0.1:1" in text, "refused" in text) == ("CRITICAL", True, True)
    _, found = await findings(nats_server.url, "null", "--config", config)
    assert found["recipe null"] == ("OK", "null → null answers")
    assert "recipe store" not in found


async def test_doctor_names_configuration_that_is_invalid(tmp_path: Path) -> None:
    """Without a configuration nothing else can be checked."""
    config = tmp_path / "ccpipe.toml"
    config.write_text("clutser = 'x'\n")
    done = await run("nats://127.0.0.1:1", "--config", config)
    assert done.code == 2
    [line] = [line for line in done.out.splitlines() if line.startswith("CRITICAL")]
    assert "clutser" in line


TIMES = st.integers(0, 10**9).map(lambda ms: datetime.fromtimestamp(ms / 1000, UTC))


@given(TIMES, st.integers(0, 1000), st.floats(-100, 100), st.floats(0, 1))
def test_clock_offset_is_lower_bound_of_difference(
    before: datetime, taken: int, ahead: float, share: float
) -> None:
    """It is never larger than the true difference, nor smaller by more than the answer took."""
    after = before + timedelta(milliseconds=taken)
    theirs = before + share * (after - before) - timedelta(seconds=ahead)
    offset = clock_offset(before, theirs, after)
    assert abs(offset) <= abs(ahead) + 1e-5
    assert abs(offset) >= abs(ahead) - taken / 1000 - 1e-5
    assert offset == 0 or (offset > 0) == (ahead > 0)


def test_spools_warns_of_messages_that_wait(tmp_path: Path) -> None:
    """With their number, the disk space and the age of the oldest."""
    site = Site(publish=Publish(spool=SpoolOptions(dir=str(tmp_path))))
    assert [each.status for each in spools(site)] == [Status.OK]
    old = tmp_path / "000000000012-3-1500.metrics"
    old.write_bytes(b"x" * 5000)
    os.utime(old, (0, 0))
    [found] = spools(site)
    assert found.status is Status.WARNING
    assert f"{tmp_path}: 3 messages, 8 KiB of 64 MiB, waiting for " in found.text


def test_disks_reports_each_file_system_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that does not exist yet is on the file system of the next one above it."""
    [found] = disks([tmp_path, tmp_path / "not" / "yet"])
    assert (found.status, found.unit) == (Status.OK, "B")
    monkeypatch.setattr(machine, "FREE_CRITICAL", 2**62)
    monkeypatch.setattr(machine, "FREE_WARNING", 2**63)
    [found] = disks([tmp_path])
    assert found.status is Status.CRITICAL


UNITS = """\
ccpipe-bridge@parquet.service loaded active running ccpipe: the bridge parquet
ccpipe-bridge@postgres.service loaded activating auto-restart ccpipe: the bridge postgres
ccpipe-publish.service loaded failed failed ccpipe: this node's metrics, onto the bus
ccpipe-step.service loaded inactive dead ccpipe: steps
"""
"""Output of systemctl 252."""


def test_units_of_tells_failed_from_stopped_units() -> None:
    """A unit that failed or restarts is critical, a stopped one a warning."""
    found = [(each.status.name, each.text.partition(":")[0]) for each in units_of(UNITS)]
    assert found == [
        ("OK", "running"),
        ("CRITICAL", "ccpipe-bridge@postgres.service is activating (auto-restart)"),
        ("CRITICAL", "ccpipe-publish.service is failed (failed)"),
        ("WARNING", "ccpipe-step.service is inactive (dead)"),
    ]
