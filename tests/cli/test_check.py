"""``ccpipe check``: the real command on a real broker, as a monitor runs it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.streams.stream import ensure_consumer, ensure_stream, stream_name
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.check import Finding, Status, compare, line, worst
from ccpipe.config import Bus, Site
from tests.bus.nats.conftest import connected
from tests.cli.command import Ended, ccpipe

LINE = re.compile(
    r"CCPIPE [A-Z-]+ (OK|WARNING|CRITICAL|UNKNOWN) - [^|\n]+(?: \| ('[^']+'=\S+ ?)+)?\n"
)
"""Output as the Nagios plug-in guidelines have it."""


async def run(server: NatsServer, *arguments: object, **environ: str) -> Ended:
    """Run a check to its end without blocking the event loop; its output must be one line."""
    where = ("--server", server.url, "--cluster", "fritz")
    done = await asyncio.to_thread(
        lambda: ccpipe("check", *arguments, *where, stdin=b"", **environ)
    )
    if "json" not in arguments:
        assert LINE.fullmatch(done.out), done
    return done


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Connection]:
    async with connected(Bus(servers=[nats_server.url])) as bus:
        yield bus


def site_of(server: NatsServer) -> Site:
    return Site(cluster="fritz", bus=Bus(servers=[server.url]))


async def filled(server: NatsServer, bus: Connection, count: int = 5) -> None:
    """Make stream and consumer as a bridge does, and store metrics."""
    site = site_of(server)
    jetstream = bus.jetstream()
    patterns = Subjects.of(site).patterns(["metrics"])
    stream = await ensure_stream(jetstream, site.bus, Subjects.of(site), patterns)
    await ensure_consumer(jetstream, stream, "parquet", patterns, 30)
    for _ in range(count):
        await jetstream.publish("fritz.metrics.f01", b"x value=1")


async def test_check_lag_compares_pending_messages(
    nats_server: NatsServer, bus: Connection
) -> None:
    """With the given thresholds; the numbers are in the performance data."""
    await filled(nats_server, bus)
    fine = await run(nats_server, "lag")
    assert (fine.code, fine.out) == (
        0, "CCPIPE LAG OK - parquet has 5 unread messages | 'parquet'=5;1000;10000;0\n"
    )  # fmt: skip
    assert (await run(nats_server, "lag", "--warning", "4")).code == 1
    bad = await run(nats_server, "lag", "parquet", "--warning", "1", "--critical", "4")
    assert (bad.code, bad.out[:19]) == (2, "CCPIPE LAG CRITICAL")


async def test_check_lag_is_critical_if_bridge_never_ran(
    nats_server: NatsServer, bus: Connection
) -> None:
    """A given durable name must exist; without one the status is unknown."""
    none = await run(nats_server, "lag")
    assert (none.code, none.out) == (3, "CCPIPE LAG UNKNOWN - nothing to check\n")
    await filled(nats_server, bus)
    done = await run(nats_server, "lag", "postgres", "parquet")
    assert done.code == 2
    assert "postgres has never run" in done.out


async def test_check_freshness_compares_age_of_newest_metric(
    nats_server: NatsServer, bus: Connection
) -> None:
    """With both thresholds."""
    assert (await run(nats_server, "freshness")).code == 2  # nothing is stored
    await filled(nats_server, bus)
    fine = await run(nats_server, "freshness", "--warning", "1h", "--critical", "2h")
    assert fine.code == 0
    assert re.search(r"\| 'fritz'=[\d.]+s;3600;7200;0\n", fine.out)
    assert (await run(nats_server, "freshness", "--warning", "0s", "--critical", "1h")).code == 1
    assert (await run(nats_server, "freshness", "--warning", "0s", "--critical", "0s")).code == 2


async def test_check_freshness_names_silent_node(nats_server: NatsServer, bus: Connection) -> None:
    """Each node is checked if subjects have the node's name."""
    await filled(nats_server, bus)
    subjects = {"CCPIPE_BUS__SUBJECTS__METRICS": "{cluster}.metrics.{hostname}"}
    limits = ("--warning", "1h", "--critical", "1h")
    done = await run(
        nats_server, "freshness", "--node", "f[01-02]", *limits, "-o", "json", **subjects
    )
    assert done.code == 2
    found = {each["label"]: each["status"] for each in json.loads(done.out)["findings"]}
    assert found == {"f01": "OK", "f02": "CRITICAL"}
    vague = await run(nats_server, "freshness", "--node", "f01")
    assert vague.code == 3
    assert "--node: needs" in vague.out


async def test_check_dead_letters_compares_number(nats_server: NatsServer, bus: Connection) -> None:
    """None is OK, one is a warning, and many are critical."""
    assert (await run(nats_server, "dead-letters")).out.startswith(
        "CCPIPE DEAD-LETTERS OK - 0 dead letters"
    )
    site = site_of(nats_server)
    subjects = Subjects.of(site)
    await ensure_stream(bus.jetstream(), site.bus, subjects, [subjects.dead()])
    assert stream_name(subjects, dead=True) == "ccpipe-fritz-dead"
    for _ in range(2):
        await bus.jetstream().publish(subjects.dead(), b"bad")
    assert (await run(nats_server, "dead-letters")).code == 1
    bad = await run(nats_server, "dead-letters", "--critical", "1", "-o", "json")
    assert bad.code == 2
    assert json.loads(bad.out)["findings"][0]["value"] == 2


async def test_check_streams_warns_about_differences(
    nats_server: NatsServer, bus: Connection
) -> None:
    """Of a stream from the configuration; a bridge that is not running is a warning, too."""
    await filled(nats_server, bus)
    done = await run(nats_server, "streams")
    assert done.code == 1
    assert "no bridge parquet runs" in done.out
    assert "'parquet'=" in done.out
    changed = await run(nats_server, "streams", CCPIPE_BUS__STREAM_MAX_BYTES="5GiB")
    assert "max_bytes is 1GiB, not 5GiB" in changed.out


async def test_check_is_critical_if_unread_messages_were_deleted(
    nats_server: NatsServer, bus: Connection
) -> None:
    """Messages deleted after the last one that a bridge received are lost."""
    await filled(nats_server, bus)
    jetstream = bus.jetstream()
    config = (await jetstream.stream_info("ccpipe-fritz")).config
    await jetstream.update_stream(config.evolve(max_msgs=2))
    done = await run(nats_server, "streams")
    assert done.code == 2
    assert "may have deleted 3 messages that parquet had not read" in done.out


async def test_check_is_critical_without_broker(unused_port: int) -> None:
    """In the monitor's format, without waiting."""
    server = ("--server", f"nats://127.0.0.1:{unused_port}")
    names = ("freshness", "lag", "dead-letters", "streams")
    checks = (asyncio.to_thread(ccpipe, "check", name, *server) for name in names)
    for done in await asyncio.gather(*checks):
        assert done.code == 2
        assert LINE.fullmatch(done.out), done.out
        assert str(unused_port) in done.out


@pytest.mark.parametrize("name", ["freshness", "lag", "dead-letters", "streams"])
def test_check_rejects_wrong_arguments(name: str) -> None:
    """The status is unknown, on the line that a monitor reads."""
    for arguments, reason in (
        (("--warning", "9", "--critical", "1"), "--warning must not be above --critical"),
        (("--no-such-option",), "Unknown option: --no-such-option"),
    ):
        done = ccpipe("check", name, *arguments)
        assert (done.code, done.err) == (3, "")
        assert done.out.startswith("CCPIPE CHECK UNKNOWN - ")
        assert reason in done.out


def test_check_is_unknown_if_configuration_is_wrong(tmp_path: object) -> None:
    """The state of the pipe is not known."""
    done = ccpipe("check", "lag", CCPIPE_BUS__STREAM_MAX_AGE="soon")
    assert done.code == 3
    assert "UNKNOWN" in done.out


findings = st.builds(
    Finding,
    label=st.text(min_size=1, max_size=20),
    status=st.sampled_from(Status),
    text=st.text(max_size=40),
    value=st.none() | st.floats(0, 1e9),
    unit=st.sampled_from(["", "s", "B", "%"]),
    warning=st.none() | st.floats(0, 1e9),
    critical=st.none() | st.floats(0, 1e9),
)


@given(st.lists(findings, max_size=5))
def test_any_findings_make_one_line_with_one_bar(found: list[Finding]) -> None:
    """Names and texts from outside break neither the line nor the performance data."""
    text = line("lag", found)
    assert len(text.splitlines()) == 1
    assert text.count("|") == any(each.value is not None for each in found)
    assert text.startswith(f"CCPIPE LAG {worst(found).name} - ")


@given(findings.filter(lambda each: each.value is not None))
def test_performance_data_follows_guidelines(finding: Finding) -> None:
    """``'label'=value[unit];[warn];[crit];[min];[max]`` with quotes doubled."""
    assert re.fullmatch(
        r"'(?:[^'=|]|'')+'=[\d.]+(?:s|B|%)?(?:;[\d.e+-]*){1,4}", finding.performance(), re.DOTALL
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], Status.UNKNOWN),
        ([Status.OK, Status.UNKNOWN], Status.UNKNOWN),
        ([Status.UNKNOWN, Status.WARNING], Status.WARNING),
        ([Status.WARNING, Status.CRITICAL, Status.OK], Status.CRITICAL),
    ],
)
def test_worst_finding_decides(found: list[Status], expected: Status) -> None:
    """Critical is worse than a warning, which is worse than unknown."""
    assert worst([Finding("a", status, "t") for status in found]) is expected


def test_thresholds_are_inclusive() -> None:
    """A value at the limit is still OK."""
    statuses = [compare(value, 1, 2) for value in (1, 1.5, 2, 3)]
    assert statuses == [Status.OK, Status.WARNING, Status.WARNING, Status.CRITICAL]
