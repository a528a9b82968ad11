"""The permissions of each role on the broker; only operators may set a node's controls.

The same tables are run against the configuration of ``ccpipe auth init`` and the shipped
``nats.conf``. Each operation is tried by each role on a real server.
"""

import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
from nats.aio.client import Client

from ccpipe.bus.nats.accounts import ensure_keys, users_of, write_site
from ccpipe.config import Bus
from ccpipe.errors import DeniedError
from tests.bus.nats.conftest import connected
from tests.conftest import eventually
from tests.paths import ROOT
from tests.servers.nats.daemon import nats_daemon, placed

ROLES = {"N": "node n1", "O": "node n2", "B": "bridge", "V": "viewer", "A": "operator"}
"""Abbreviations in the tables. In ``nats.conf`` all nodes are one user."""

LAST = "nobody.may"
"""A subject on which no role may publish."""

PUBLISH = """
    fritz.metrics.n1                    NB      NOB
    fritz.metrics.n2                    OB      NOB
    fritz.metrics                       B       NOB
    fritz.events.nodestate.n1           NB      -
    fritz.events.nodestate              B       NOB
    fritz.events.job                    B       NOB
    fritz.log.ccpipe.n1                 NB      -
    fritz.log.ccpipe                    B       NOB
    fritz.sonar.sample.n1               NB      -
    fritz.sonar.sample                  B       NOB
    fritz.dead                          B       B
    fritz.replicas.parquet              B       B
    fritz.control.get                   A       A
    fritz.control.put                   A       A
    fritz.control                       -       -
    fritz.control.put.n1                -       -
    fritz.other                         -       -
    h3.control.put                      -       A
    h3.metrics.n1                       -       NOB
    ccpipe.streams                      NO      NO
    _INBOX.somebody.1                   -       -
    _R_.abcdef.ghijkl                   -       -
    $JS.ACK.s.c.1.1.1.1.1               B       B
    $JS.FC.s.c.1                        B       B
    $KV.s.key                           -       -
    $SRV.PING                           -       -
    $MQTT.sess.x                        -       -
    $SYS.REQ.USER.INFO                  -       -
    $SYS.REQ.SERVER.PING                -       -
    $SYS.REQ.SERVER.PING.JSZ            -       -
    $SYS.REQ.ACCOUNT.fritz.CONNZ        -       -
    $SYS.REQ.ACCOUNT.PING.CONNZ         -       -
    $SYS.ACCOUNT.fritz.CONNECT          -       -
    $SYS.REQ.CLAIMS.UPDATE              -       -
"""
"""Subject; who may publish on it with keys of ``ccpipe auth init``, and with ``nats.conf``.

``ccpipe.streams`` is what ``$JS.API.STREAM.NAMES`` is mapped to among the nodes.
"""

SUBSCRIBE = """
    fritz.metrics.*                     BV      BV
    fritz.metrics                       BV      BV
    fritz.events.*                      BV      BV
    fritz.events.>                      BV      BV
    fritz.log.*                         BV      BV
    fritz.sonar.*                       BV      BV
    fritz.dead                          BV      BV
    fritz.replicas.*                    -       -
    fritz.control.*                     NOV     NOV
    fritz.control.put                   NOV     NOV
    fritz.control.>                     NOV     NOV
    h3.control.put                      -       NOV
    fritz.>                             -       -
    >                                   -       -
    *.metrics                           BV      BV
    *.events.*                          BV      BV
    *.dead                              BV      BV
    *.replicas.*                        -       -
    _INBOX.>                            -       -
    _INBOX.*.>                          -       -
    _INBOX.somebody.>                   -       -
    _R_.>                               -       -
    $JS.>                               -       -
    $JS.API.>                           -       -
    $JS.ACK.>                           -       -
    $JS.EVENT.ADVISORY.>                -       -
    $KV.>                               -       -
    $SYS.>                              -       -
    $SYS.ACCOUNT.*.CONNECT              -       -
    ccpipe.streams                      -       -
"""

REQUEST = """
    INFO                                -       -
    STREAM.LIST                         B       B
    STREAM.INFO.s                       B       B
    STREAM.CREATE.s                     B       B
    STREAM.UPDATE.s                     B       B
    STREAM.DELETE.s                     -       -
    STREAM.PURGE.s                      -       -
    STREAM.MSG.GET.s                    B       B
    STREAM.MSG.DELETE.s                 B       B
    STREAM.SNAPSHOT.s                   -       -
    STREAM.RESTORE.s                    -       -
    STREAM.PEER.REMOVE.s                -       -
    STREAM.LEADER.STEPDOWN.s            -       -
    DIRECT.GET.s                        -       -
    DIRECT.GET.s.fritz.metrics.n1       -       -
    CONSUMER.CREATE.s                   B       B
    CONSUMER.CREATE.s.c                 B       B
    CONSUMER.CREATE.s.c.fritz.metrics   B       B
    CONSUMER.DURABLE.CREATE.s.c         B       B
    CONSUMER.NAMES.s                    B       B
    CONSUMER.LIST.s                     B       B
    CONSUMER.INFO.s.c                   B       B
    CONSUMER.DELETE.s.c                 B       B
    CONSUMER.MSG.NEXT.s.c               B       B
    CONSUMER.PAUSE.s.c                  B       B
    META.LEADER.STEPDOWN                -       -
    SERVER.REMOVE                       -       -
    ACCOUNT.PURGE.fritz                 -       -
    ACCOUNT.STREAM.MOVE.fritz.s         -       -
"""
"""Requests of JetStream's API, below ``$JS.API``."""


def rows(table: str, column: int) -> dict[str, str]:
    split = [line.split() for line in table.strip().splitlines()]
    return {cells[0]: cells[1 + column].strip("-") for cells in split}


def put(value: str, node: str = "n1") -> bytes:
    line = f'interval,hostname={node},method=PUT,type=node control="{value}" {time.time_ns()}'
    return line.encode()


def generated(directory: Path) -> tuple[str, dict[str, dict[str, Any]]]:
    for role, names in (("node", ["n1", "n2"]), *((each, [each]) for each in ROLE_NAMES)):
        ensure_keys(directory, role, names)
    write_site(directory, "fritz")
    keys = {(user.role, user.name): user.key for user in users_of(directory)}
    options = {}
    for letter, text in ROLES.items():
        role, _, name = text.partition(" ")
        name = name or role
        options[letter] = {
            "nkeys_seed": str(directory / "nkeys" / role / f"{name}.nk"),
            "inbox_prefix": f"_INBOX.{keys[role, name]}".encode(),
        }
    return (directory / "nats.conf").read_text(), options


ROLE_NAMES = ("bridge", "viewer", "operator")


def shipped(_: Path) -> tuple[str, dict[str, dict[str, Any]]]:
    configuration = (ROOT / "nats.conf").read_text()
    options = {}
    for letter, text in ROLES.items():
        role = text.split()[0]
        configuration = configuration.replace(f"$CCPIPE_{role.upper()}_PASSWORD", f"{role}-pw")
        inbox = f"_INBOX.{role}".encode()
        options[letter] = {"user": role, "password": f"{role}-pw", "inbox_prefix": inbox}
    return configuration, options


class Broker:
    """A server with one of the two configurations."""

    def __init__(self, column: int, port: int, options: Mapping[str, Any]) -> None:
        self.column = column
        self.url = f"nats://127.0.0.1:{port}"
        self._options = options
        self._clients: list[Client] = []
        self._denials: dict[Client, list[str]] = {}

    async def connect(self, letter: str) -> Client:
        denials: list[str] = []

        async def note(error: Exception) -> None:
            denials.append(str(error))

        client = await nats.connect(self.url, error_cb=note, **self._options[letter])
        self._clients.append(client)
        self._denials[client] = denials
        return client

    async def refused(self, client: Client) -> set[str]:
        denials = self._denials[client]
        await client.publish(LAST, b"")  # the server answers in order
        await eventually(lambda: any(LAST in text for text in denials), 60)
        return {text.removeprefix("nats: permissions violation for ") for text in denials}

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


@pytest.fixture(params=[generated, shipped])
async def broker(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    configuration, options = request.param(tmp_path / "keys")
    async with nats_daemon(tmp_path, placed(configuration, tmp_path)) as port:
        opened = Broker(int(request.param is shipped), port, options)
        try:
            yield opened
        finally:
            await opened.close()


@contextlib.asynccontextmanager
async def listening(client: Client, subject: str) -> AsyncIterator[list[bytes]]:
    heard: list[bytes] = []

    async def hear(message: Any) -> None:
        heard.append(message.data)

    await client.subscribe(subject, cb=hear)
    await client.flush()
    yield heard


async def test_each_role_may_do_its_work_and_nothing_else(broker: Broker) -> None:
    """The tables apply to every role; only requests of role A reach a node.

    The published payload is a valid request to set a control.
    """
    node = await broker.connect("N")
    wrong = []
    async with listening(node, "fritz.control.*") as heard:
        for letter, role in ROLES.items():
            client = await broker.connect(letter)
            heard.clear()
            expected = {}
            for subject, letters in rows(PUBLISH, broker.column).items():
                await client.publish(subject, put("9s"))
                expected[f'publish to "{subject}"'] = letters
            for request, letters in rows(REQUEST, broker.column).items():
                await client.publish(f"$JS.API.{request}", b"", client.new_inbox())
                expected[f'publish to "$JS.API.{request}"'] = letters
            for subject, letters in rows(SUBSCRIBE, broker.column).items():
                await client.subscribe(subject)
                expected[f'subscription to "{subject}"'] = letters
            refused = await broker.refused(client)
            wrong += [
                f"{role}: {work}"
                for work, letters in expected.items()
                if (work.lower() in refused) == (letter in letters)
            ]
            await node.flush()
            assert bool(heard) == (letter == "A"), role
    assert not wrong


async def test_broker_rejects_clients_without_key(broker: Broker, tmp_path: Path) -> None:
    """Neither without a user nor with a wrong password."""
    secret = tmp_path / "password"
    secret.write_text("x\n")
    for bus in (Bus(), Bus(user="operator", password_file=str(secret))):
        with pytest.raises(DeniedError):
            async with connected(msgspec.structs.replace(bus, servers=[broker.url])):
                pass


STREAM = {"name": "s", "subjects": ["fritz.metrics.*", "fritz.dead"]}
NODES = "fritz.control.put"
REPUBLISH = {"src": "fritz.metrics.x", "dest": NODES}

WAYS: dict[str, list[tuple[str, object]]] = {
    "push consumer": [
        ("CONSUMER.CREATE.s", {"stream_name": "s", "config": {"deliver_subject": NODES}})
    ],
    "durable push consumer without acknowledgements": [
        (
            "CONSUMER.DURABLE.CREATE.s.d",
            {
                "stream_name": "s",
                "config": {"durable_name": "d", "deliver_subject": NODES, "ack_policy": "none"},
            },
        )
    ],
    "pull consumer, with the nodes' subject for replies": [
        ("CONSUMER.CREATE.s.p", {"stream_name": "s", "config": {"name": "p"}}),
        ("CONSUMER.MSG.NEXT.s.p", {"batch": 1}),
    ],
    "republish": [
        (
            "STREAM.CREATE.r",
            {
                "name": "r",
                "subjects": ["fritz.log.*"],
                "republish": {"src": "fritz.log.x", "dest": NODES},
            },
        ),
        ("publish fritz.log.x", None),
    ],
    "republish by a stream that gets its messages from another": [
        ("STREAM.CREATE.q", {"name": "q", "sources": [{"name": "s"}], "republish": REPUBLISH})
    ],
    "republish by a mirror": [
        ("STREAM.CREATE.m", {"name": "m", "mirror": {"name": "s"}, "republish": REPUBLISH})
    ],
    "republish by an update": [
        ("STREAM.UPDATE.s", {**STREAM, "republish": REPUBLISH}),
        ("publish fritz.metrics.x", None),
    ],
    "republish of a transformed subject": [
        (
            "STREAM.CREATE.t",
            {
                "name": "t",
                "subjects": ["fritz.sonar.*"],
                "subject_transform": {"src": "fritz.sonar.*", "dest": NODES},
                "republish": {"src": NODES, "dest": NODES},
            },
        ),
        ("publish fritz.sonar.x", None),
    ],
}
"""How the holder of a bridge's key has a stored request delivered on the nodes' subject."""


@pytest.mark.parametrize("way", WAYS)
async def test_delivery_of_stream_reaches_no_node(broker: Broker, way: str) -> None:
    """A viewer, in the account with JetStream, receives it; nodes receive from operators only."""
    bridge, viewer, node, operator = [await broker.connect(letter) for letter in "BVNA"]

    async def api(request: str, body: object, reply: str) -> None:
        await bridge.publish(f"$JS.API.{request}", json.dumps(body).encode(), reply)

    async with listening(viewer, NODES) as delivered, listening(node, "fritz.control.*") as heard:
        inbox = bridge.new_inbox()
        async with listening(bridge, inbox) as answers:
            await api("STREAM.CREATE.s", STREAM, inbox)
            await eventually(lambda: len(answers) == 1)
            await bridge.publish("fritz.metrics.x", put("9s"))
            for request, body in WAYS[way]:
                if request.startswith("publish "):
                    await bridge.publish(request.split()[1], put("9s"))
                elif ".MSG.NEXT." in request:
                    await api(request, body, NODES)
                else:
                    before = len(answers)
                    await api(request, body, inbox)
                    await eventually(lambda before=before: len(answers) > before)  # type: ignore[misc]
            assert not [answer for answer in map(json.loads, answers) if "error" in answer]
            await eventually(lambda: any(b"method=PUT" in each for each in delivered), 20)
        await operator.publish(NODES, put("2s"))
        await operator.flush()
        await eventually(lambda: any(b'"2s"' in each for each in heard))
    assert len(heard) == 1


async def test_replies_to_chosen_subject_stay_in_account_of_nodes(broker: Broker) -> None:
    """A node that sets any reply subject causes no message in the account of the bridges.

    Nodes receive at most the broker's own reply: no line, and without a reply subject.
    """
    bridge, viewer, node, other = [await broker.connect(letter) for letter in "BVNO"]
    subjects = ["fritz.events.job", "fritz.metrics.n2", "fritz.dead", "fritz.replicas.parquet"]
    stream = {"name": "s", "subjects": ["fritz.metrics.*", "fritz.events.*"]}
    await bridge.request("$JS.API.STREAM.CREATE.s", json.dumps(stream).encode(), timeout=20)
    seen: list[str] = []
    replies: list[str] = []

    async def see(message: Any) -> None:
        seen.append(message.subject)
        replies.append(message.reply)

    for subject in ("fritz.metrics.*", "fritz.events.*", "fritz.dead"):
        await viewer.subscribe(subject, cb=see)
    await viewer.flush()
    async with listening(other, "fritz.control.*") as heard:
        for chosen in (*subjects, NODES):
            await node.publish("fritz.metrics.n1", put("9s"), reply=chosen)
            await node.publish("ccpipe.streams", b"", reply=chosen)
        await node.publish(
            "fritz.metrics.n1", put("9s"), headers={"Nats-Trace-Dest": NODES, "Nats-Msg-Id": "t"}
        )
        await node.request("fritz.metrics.n1", b"last", timeout=20)
        await other.flush()
        await viewer.flush()
    assert set(seen) == {"fritz.metrics.n1"}
    assert all(reply.startswith("_R_.") for reply in replies if reply)
    assert all(each.startswith(b"{") for each in heard)
    state = json.loads((await bridge.request("$JS.API.STREAM.INFO.s", timeout=20)).data)["state"]
    assert state["num_subjects"] == 1
