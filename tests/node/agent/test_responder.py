"""Control requests to a node over a real broker, and answers that peers understand."""

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.control_requests import control_request, send_requests
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.config import Bus, ControlOptions, Publish, Site
from ccpipe.errors import DataError
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.message import CONTROL_METHODS, Message
from ccpipe.node.agent import responder as module
from ccpipe.node.agent.responder import MAX_BYTES, MAX_LINES, Responder, read
from ccpipe.node.controls.control import Control, ControlChange
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.responding import responding

S27 = b'rapl.pkg_max_limit,hostname=nuc,method=GET,type=socket,type-id=0 control="" %d\n'
"""A request of cc-node-controller's client, byte for byte except for the time."""


def site_of(server: Any, hostname: str = "nuc", **more: Any) -> Site:
    control = ControlOptions(allow=["interval", "freq"])
    bus = Bus(servers=[server.url], **more)
    return Site(cluster="fox.test", hostname=hostname, bus=bus, publish=Publish(control=control))


class Node:
    """The controls of a node in these tests."""

    def __init__(self) -> None:
        self.interval = "10s"
        self.released = threading.Event()

    def controls(self) -> dict[str, Control]:
        return {
            "interval": Control("time", lambda tags: self.interval, self.put_interval),
            "rapl.pkg_max_limit": Control("W", lambda tags: "165000000", None, "socket"),
            "rapl.pkg_limit_1": Control("W", lambda tags: "165", self.never),
            "rapl.intel.pkg.energy_status": Control(
                "J", lambda tags: tags["type-id"], None, "socket"
            ),
            "freq.governor": Control("governor", lambda tags: "powersave", self.put_governor),
            "prefetcher.l1_dcu": Control("prefetcher", lambda tags: "on"),
            "broken": Control("breaks", lambda tags: str(1 // 0)),
            "absent": Control("is absent", self.absent),
            "hangs": Control("hangs", self.hang),
            "large": Control("too much", lambda tags: "x" * 2**20),
            "odd": Control("half a character", lambda tags: "\udc80"),
        }

    async def put_interval(self, value: str, tags: Mapping[str, str]) -> ControlChange:
        if not value.endswith("s"):
            raise DataError(f"not a time: {value}")
        before, self.interval = self.interval, value
        return ControlChange(before, value)

    def put_governor(self, value: str, tags: Mapping[str, str]) -> ControlChange:
        assert threading.current_thread() is not threading.main_thread()
        return ControlChange("powersave", value)

    def never(self, value: str, tags: Mapping[str, str]) -> ControlChange:
        raise AssertionError

    def absent(self, tags: Mapping[str, str]) -> str:
        raise FileNotFoundError(2, "No such file or directory", "/sys/x")

    def hang(self, tags: Mapping[str, str]) -> str:
        self.released.wait(60)
        return "at last"


@pytest.fixture
def node() -> Node:
    return Node()


@contextlib.asynccontextmanager
async def connected(site: Site) -> AsyncIterator[Connection]:
    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        yield bus


@pytest.fixture
async def nuc(nats_server: Any, node: Node) -> AsyncIterator[Responder]:
    site = site_of(nats_server)
    async with connected(site) as bus, responding(bus, site, node.controls()) as responder:
        yield responder


async def answered(
    server: Any, payload: bytes, subject: str = "fox%2Etest.control.get"
) -> list[Message]:
    """Send bytes as a request, as any program may; return the lines of the first answer."""
    received: list[Delivery] = []
    async with connected(site_of(server)) as bus:
        inbox = bus.new_inbox()
        await bus.subscribe(inbox, received.append)
        await bus.publish(subject, payload, reply=inbox)
        await bus.flush()
        await eventually(lambda: bool(received))
    lines = decode(received[0].payload, precision="ns")
    assert not lines.rejected
    return list(lines)


async def send(server: Any, *requests: Message, seconds: float = 10) -> list[Message]:
    site = site_of(server)
    async with connected(site) as bus:
        return await send_requests(bus, site, requests, seconds=seconds)


async def get(server: Any, name: str, **tags: str) -> Message:
    (answer,) = await send(server, control_request(name, node="nuc", tags=tags))
    return answer


async def put(server: Any, name: str, value: str, **tags: str) -> Message:
    (answer,) = await send(server, control_request(name, node="nuc", value=value, tags=tags))
    return answer


async def test_answer_suits_cc_node_controller_client(nats_server: Any, nuc: Responder) -> None:
    """One log line with the request's name and tags, ``level`` INFO, and a time in nanoseconds."""
    before = time.time_ns()
    (answer,) = await answered(nats_server, S27 % before)
    assert (answer.name, answer.field, answer.value) == ("rapl.pkg_max_limit", "log", "165000000")
    assert answer.tags == {
        "hostname": "nuc", "method": "GET", "type": "socket", "type-id": "0",
        "level": "INFO", "loglevel": "info",
    }  # fmt: skip
    assert answer.time is not None
    assert before <= answer.time <= time.time_ns()
    assert answer.problems() == []


async def test_responder_accepts_example_of_specification(nats_server: Any, nuc: Responder) -> None:
    example = b"rapl,hostname=nuc,type=socket,type-id=2,method=GET control=intel.pkg.energy_status"
    (answer,) = await answered(nats_server, example + b" 1740027951\n")
    assert (answer.name, answer.value, answer.tags["level"]) == ("rapl", "2", "INFO")


async def test_responder_accepts_control_class_with_assignment(
    nats_server: Any, nuc: Responder
) -> None:
    """``freq`` with ``governor=performance``, and LIKWID's names of classes."""
    assert (await put(nats_server, "freq", "governor=performance")).tags["level"] == "INFO"
    assert (await put(nats_server, "cpu_freq.governor", "performance")).tags["level"] == "INFO"
    assert (await get(nats_server, "cpu_freq.governor")).value == "powersave"
    assert (await get(nats_server, "prefetch.l1_dcu")).value == "on"


async def test_put_sets_value_and_logs_change(
    nats_server: Any, nuc: Responder, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await put(nats_server, "interval", "30s")
    assert node.interval == "30s"
    assert answer.value == "Set 'interval' for device 'node': SUCCESS! It was 10s, it is 30s"
    reported = [r for r in caplog.records if "interval of node set from 10s to 30s by" in r.message]
    assert len(reported) == 1
    assert reported[0].levelno == logging.WARNING
    assert "@" in reported[0].message


@pytest.mark.parametrize(
    ("name", "value", "reason", "text"),
    [
        ("rapl.pkg_limit_1", "85", "denied", "publish.control.allow does not list it"),
        ("rapl.pkg_max_limit", "85", "denied", "rapl.pkg_max_limit cannot be set"),
        ("interval", "soon", "invalid", "not a time: soon"),
        ("freq.govenor", "x", "unknown", "did you mean 'freq.governor'?"),
    ],
)
async def test_refused_put_is_answered_with_reason(
    nats_server: Any, nuc: Responder, name: str, value: str, reason: str, text: str
) -> None:
    answer = await put(nats_server, name, value)
    assert answer.tags["level"] == "ERROR"
    assert answer.tags["reason"] == reason
    assert text in str(answer.value)


@pytest.mark.parametrize(
    ("name", "reason", "text"),
    [
        ("broken", "failed", "ZeroDivisionError"),
        ("absent", "failed", "No such file"),
        ("hugepages", "unknown", "`ccpipe control get` lists them"),
        ("large", "failed", "exceeds the maximum message size"),
    ],
)
async def test_failed_get_is_answered_with_reason(
    nats_server: Any, nuc: Responder, name: str, reason: str, text: str
) -> None:
    answer = await get(nats_server, name)
    assert (answer.tags["level"], answer.tags["reason"]) == ("ERROR", reason)
    assert text in str(answer.value)
    assert (await get(nats_server, "interval")).value == "10s"


async def test_answer_that_cannot_be_encoded_becomes_error(
    nats_server: Any, nuc: Responder
) -> None:
    """Its name is ``control``, as the requested name may be what cannot be encoded."""
    (answer,) = await answered(nats_server, b'odd,hostname=nuc,method=GET control="" 1\n')
    assert (answer.name, answer.tags["level"]) == ("control", "ERROR")


async def test_allowed_controls_change_while_running(nats_server: Any, nuc: Responder) -> None:
    """As on SIGHUP; a single name can be allowed without the rest of its class."""
    nuc.allowed = ["freq.governor"]
    assert (await put(nats_server, "freq.governor", "performance")).tags["level"] == "INFO"
    assert (await put(nats_server, "interval", "30s")).tags["reason"] == "denied"


async def test_controls_are_listed_as_by_cc_node_controller(
    nats_server: Any, nuc: Responder
) -> None:
    answer = await get(nats_server, "controls", type="node")
    listed = {(c["category"], c["name"]): c for c in json.loads(str(answer.value))["controls"]}
    assert listed["freq", "governor"] == {
        "category": "freq", "name": "governor", "device_type": "node", "description": "governor",
        "methods": "ALL",
    }  # fmt: skip
    assert listed["", "interval"]["methods"] == "ALL"
    assert listed["rapl", "pkg_limit_1"]["methods"] == "GET"
    assert listed["rapl", "pkg_max_limit"]["device_type"] == "socket"


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"\xff\x00 nonsense", "line 1"),
        (b"", "the request is empty"),
        (b"interval,hostname=nuc,method=GET value=0.0 1\n", "must be 'control', not 'value'"),
        (b'interval,hostname=nuc,method=HEAD control="" 1\n', "GET, PUT"),
        (b'interval,hostname=nuc control="" 1\n', "GET, PUT"),
        (b'interval,method=PUT control="30s" 1\n', "must name its node"),
        (b"x" * (MAX_BYTES + 1), "more than 65536"),
    ],
)
async def test_invalid_request_is_answered(
    nats_server: Any, nuc: Responder, payload: bytes, text: str
) -> None:
    """cc-node-controller does not answer, so that its client waits until its timeout."""
    method = "put" if b"PUT" in payload else "get"
    (answer,) = await answered(nats_server, payload, f"fox%2Etest.control.{method}")
    assert (answer.hostname, answer.tags["level"], answer.tags["reason"]) == (
        "nuc", "ERROR", "invalid",
    )  # fmt: skip
    assert text in str(answer.value)


async def test_requests_of_one_message_are_answered_in_one_message(
    nats_server: Any, nuc: Responder
) -> None:
    """The broker may allow one answer per request; a bad line does not affect the others."""
    payload = (
        b'interval,hostname=nuc,method=GET control="" 1\n'
        b"broken line\n"
        b'rapl.pkg_limit_1,hostname=nuc,method=GET control="" 1\n'
        b'interval,hostname=other,method=GET control="" 1\n'
    )
    answers = await answered(nats_server, payload)
    assert [(a.name, a.tags["level"]) for a in answers] == [
        ("interval", "INFO"), ("rapl.pkg_limit_1", "INFO"), ("control", "ERROR"),
    ]  # fmt: skip


async def test_only_requested_node_answers(nats_server: Any, nuc: Responder) -> None:
    other, site = Node(), site_of(nats_server, hostname="nuc2")
    other.interval = "1s"
    async with connected(site) as bus, responding(bus, site, other.controls()):
        requests = [control_request("interval", node=node) for node in ("nuc2", "nuc")]
        answers = await send(nats_server, *requests)
        assert {a.hostname: a.value for a in answers} == {"nuc": "10s", "nuc2": "1s"}
        await put(nats_server, "interval", "30s")
        assert other.interval == "1s"
        elsewhere = control_request("interval", node="nuc", tags={"cluster": "saga"})
        assert await send(nats_server, elsewhere, seconds=0.3) == []


async def test_get_without_node_is_answered_by_all_nodes(nats_server: Any, nuc: Responder) -> None:
    """As with cc-node-controller, for GET only."""
    other, site = Node(), site_of(nats_server, hostname="nuc2")
    async with connected(site) as bus, responding(bus, site, other.controls()):
        answers = await send(nats_server, control_request("interval"), seconds=2)
    assert {answer.hostname for answer in answers} == {"nuc", "nuc2"}


async def test_client_returns_other_answers_when_node_is_missing(
    nats_server: Any, nuc: Responder
) -> None:
    """It waits until the timeout."""
    names = [control_request("interval", node=node) for node in ("nuc", "gone")]
    answers = await send(nats_server, *names, seconds=2)
    assert [answer.hostname for answer in answers] == ["nuc"]


async def test_client_returns_at_once_without_responders(nats_server: Any) -> None:
    """The broker reports that the subject has no subscribers."""
    async with asyncio.timeout(10):
        assert await send(nats_server, control_request("interval", node="nuc"), seconds=3600) == []


@pytest.mark.parametrize(
    ("subject", "method", "text"),
    [
        ("get", "PUT", "tag method is PUT, on the subject of GET requests"),
        ("put", "GET", "tag method is GET, on the subject of PUT requests"),
    ],
)
async def test_method_must_match_subject(
    nats_server: Any, nuc: Responder, node: Node, subject: str, method: str, text: str
) -> None:
    """The broker grants GET and PUT by subject: a client with read access must not set anything."""
    payload = f'interval,hostname=nuc,method={method},type=node control="30s" 1\n'.encode()
    (answer,) = await answered(nats_server, payload, f"fox%2Etest.control.{subject}")
    assert (answer.tags["level"], answer.tags["reason"]) == ("ERROR", "invalid")
    assert answer.value == text
    assert node.interval == "10s"


async def test_responder_counts_requests_by_outcome(nats_server: Any, nuc: Responder) -> None:
    await get(nats_server, "interval")
    await put(nats_server, "rapl.pkg_limit_1", "85")
    assert nuc.telemetry.requests.values == {"answered": 1, "denied": 1}


async def test_flat_subject_serves_both_methods(nats_server: Any, node: Node) -> None:
    """As cc-node-controller is configured: ``cc-control`` for all."""
    site = site_of(nats_server, subjects={"control": "cc-control"})
    async with connected(site) as bus, responding(bus, site, node.controls()):
        (answer,) = await answered(nats_server, S27 % 1, subject="cc-control")
        assert answer.value == "165000000"
        payload = b'interval,hostname=nuc,method=PUT,type=node control="30s" %d\n'
        await answered(nats_server, payload % time.time_ns(), subject="cc-control")
    assert node.interval == "30s"


async def test_subject_per_node_receives_requests_of_that_node_only(
    nats_server: Any, node: Node
) -> None:
    """The broker can then restrict PUTs by node; a GET for all nodes has a subject of its own."""
    site = site_of(nats_server, subjects={"control": "{cluster}.control.{hostname}.{method}"})
    received: list[Delivery] = []
    async with (
        connected(site) as bus,
        responding(bus, site, node.controls()),
        connected(site) as other,
    ):
        await other.subscribe("fox%2Etest.control.nuc.*", received.append)
        await other.flush()
        requests = [control_request("interval", node=node) for node in ("nuc", "n2")]
        answers = await send_requests(other, site, requests[:1], seconds=10)
        assert [answer.value for answer in answers] == ["10s"]
        assert await send_requests(other, site, requests[1:], seconds=10) == []
        answers = await send_requests(other, site, [control_request("interval")], seconds=2)
        assert [answer.hostname for answer in answers] == ["nuc"]
    assert [delivery.subject for delivery in received] == ["fox%2Etest.control.nuc.get"]


async def test_hanging_control_blocks_no_other(
    nats_server: Any, nuc: Responder, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It times out, and is not read again while it hangs."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    first, second = await get(nats_server, "hangs"), await get(nats_server, "hangs")
    assert first.value == "hangs takes more than 0.2 s"
    assert second.value == "hangs is still blocked by an earlier request"
    monkeypatch.setattr(module, "ANSWER_SECONDS", 60)
    assert (await get(nats_server, "interval")).value == "10s"
    node.released.set()
    await eventually(lambda: "hangs" not in nuc._running)
    assert (await get(nats_server, "hangs")).value == "at last"


async def test_responder_refuses_requests_as_busy_beyond_limit(
    nats_server: Any, nuc: Responder, node: Node
) -> None:
    """Waiting requests are still answered."""
    site, received = site_of(nats_server), list[Delivery]()
    many = module.MAX_WAITING + 10
    async with connected(site) as bus:
        inbox = bus.new_inbox()
        await bus.subscribe(inbox, received.append)
        await bus.publish("fox%2Etest.control.get", encode([control_request("hangs", node="nuc")]))
        await eventually(lambda: "hangs" in nuc._running)
        for _ in range(many):
            payload = encode([control_request("interval", node="nuc")], precision="ns")
            await bus.publish("fox%2Etest.control.get", payload, reply=inbox)
        await eventually(lambda: len(received) >= many - module.MAX_WAITING)
        node.released.set()
        await eventually(lambda: len(received) == many)
    values = [str(decode(delivery.payload)[0].value) for delivery in received]
    assert values.count("10s") == module.MAX_WAITING
    assert sum(value.startswith("busy: ") for value in values) == 10


async def test_responder_answers_after_reconnect(nats_server: Any, nuc: Responder) -> None:
    assert nats_server._process is not None
    nats_server._process.kill()
    await eventually(lambda: not nuc.bus.is_connected)
    await eventually(lambda: nuc.bus.is_connected, seconds=30)
    await nuc.bus.flush()
    assert (await get(nats_server, "interval")).value == "10s"


async def test_put_without_reply_subject_is_executed(
    nats_server: Any, nuc: Responder, node: Node
) -> None:
    site = site_of(nats_server)
    async with connected(site) as bus:
        payload = encode([control_request("interval", node="nuc", value="7s")], precision="ns")
        await bus.publish("fox%2Etest.control.put", payload)
        await bus.flush()
        await eventually(lambda: node.interval == "7s")


@given(st.binary(max_size=300))
def test_read_parses_any_bytes(payload: bytes) -> None:
    """It never raises; a request without a problem is a control line to this node."""
    for found in read(payload, cluster="fox", hostname="nuc"):
        if not found.problem:
            assert found.message.hostname in ("", "nuc")
            assert found.message.field == "control"
            assert found.method in CONTROL_METHODS


words = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=8)


@given(
    name=words.filter(lambda word: not word.startswith("#")),
    tags=st.dictionaries(
        st.sampled_from(["hostname", "cluster", "method", "type", "type-id", "level"]) | words,
        st.sampled_from(["nuc", "fox", "GET", "PUT", "node"]) | words,
        max_size=5,
    ),
    field=st.sampled_from(["control", "value", "log"]),
    text=st.text(st.characters(codec="utf-8"), max_size=20),
)
async def test_answer_has_name_and_tags_of_request(
    name: str, tags: dict[str, str], field: str, text: str
) -> None:
    """The client can match answers to requests."""
    site = Site(cluster="fox", hostname="nuc")
    try:
        payload = encode([Message(name, tags, text, 1, field)], precision="ns")
    except DataError:
        return
    responder = Responder(Connection(site.bus, name="x", telemetry=Telemetry()), site, {})
    for found in read(payload, cluster="fox", hostname="nuc"):
        answer = await responder._answer(found, Delivery("s", payload, b"", "r"))
        (line,) = decode(responder._line(found, answer), precision="ns")
        assert line.field == "log"
        assert line.hostname == "nuc"
        assert line.tags["level"] in ("INFO", "ERROR")
        assert line.name == name
        kept = tags.keys() - {"level", "loglevel", "reason", "hostname"}
        assert {key: line.tags[key] for key in kept} == {key: tags[key] for key in kept}


def test_read_ignores_lines_beyond_limit() -> None:
    """One message cannot keep a node busy for long."""
    payload = b'interval,hostname=nuc,method=GET control=""\n' * (MAX_LINES + 50)
    assert len(read(payload, cluster="fox", hostname="nuc")) == MAX_LINES
