"""Refusals of a server: errors that name the remedy, raised at once."""

from collections.abc import AsyncIterator
from pathlib import Path

import nats
import nats.js.errors
import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.errors import ForbiddenError, explain, storage_problem
from ccpipe.bus.nats.publisher import NoStreamError, Outgoing, Publisher, store
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.streams.stream import ensure_stream
from ccpipe.bus.subjects import KEPT, Subjects
from ccpipe.config import Bus, Site
from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import event, log, metric
from ccpipe.pipeline import run
from ccpipe.telemetry import Telemetry
from tests.bus.nats.conftest import connected
from tests.bus.nats.reader import NOW, TAGS
from tests.servers.nats.daemon import nats_daemon
from tests.sinks.conftest import Given, KeptDeadLetters


@pytest.mark.parametrize(
    ("code", "description", "words"),
    [
        (10047, "insufficient storage resources available", "no more storage"),
        (10023, "insufficient resources", "no more storage"),
        (10077, "error storing message: write x.blk: no space left on device", "restart"),
        (10077, "maximum bytes exceeded", "stream_max_bytes"),
        (10077, "something new", "server's log"),
        (10002, "resource limits exceeded for account", "account"),
    ],
)
def test_storage_error_names_resource_and_its_remedy(
    code: int, description: str, words: str
) -> None:
    """The broker's own text is kept, so that its documentation can be searched for it."""
    said = storage_problem(code, description)
    assert words in said
    assert description in said


def test_other_errors_are_not_storage_problems() -> None:
    """A code unrelated to storage keeps the broker's text."""
    assert storage_problem(10058, "stream name already in use") == ""
    denied = nats.js.errors.APIError(code=403, description="no")
    assert isinstance(explain(denied, "x"), DeniedError)
    off = explain(nats.js.errors.ServiceUnavailableError(), "x")
    assert isinstance(off, UnavailableError)
    assert "jetstream = false" in str(off)


async def test_full_stream_that_refuses_messages_is_named(nats_server: NatsServer) -> None:
    """With ``stream_discard = "new"`` the error names the full stream and the limit to raise."""
    async with connected(Bus(servers=[nats_server.url])) as bus:
        await bus.jetstream().add_stream(
            name="small", subjects=["a"], max_bytes=4096, discard="new"
        )
        for number in range(3):
            await store(bus, [Outgoing("a", b"x" * 1000, f"{number}")], set())
        with pytest.raises(UnavailableError, match="stream_max_bytes"):
            await store(bus, [Outgoing("a", b"x" * 1000, "one too many")], set())


CONFIGURATION = """
jetstream {{ store_dir: "{directory}" }}
authorization {{ users: [
  {{ user: all, password: pw }}
  {{ user: node, password: pw, permissions {{
      publish: ["*.metrics", "*.events.*"], subscribe: ["_INBOX.node.>"] }} }}
  {{ user: deaf, password: pw, permissions {{ publish: ">", subscribe: ["nothing"] }} }}
] }}
"""
RECORDS = [
    log("ccpipe", "info", "forbidden", time=NOW, tags=TAGS),
    metric("m", 1.0, time=NOW, tags=TAGS),
    event("job", "f", "{}", time=NOW, tags=TAGS),
    log("ccpipe", "info", "forbidden too", time=NOW + 1, tags=TAGS),
    metric("m", 2.0, time=NOW + 1, tags=TAGS),
]
PASSWORD = "pw"  # noqa: S105 - of a server on loopback
LOG = "fox%2Etest.log.ccpipe"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    (tmp_path / "pw").write_text(PASSWORD)
    configuration = CONFIGURATION.format(directory=tmp_path / "js")
    async with nats_daemon(tmp_path, configuration) as port:
        yield Site(
            cluster="fox.test",
            bus=Bus(
                servers=[f"nats://127.0.0.1:{port}"], user="all", password_file=f"{tmp_path}/pw"
            ),
        )


def as_user(site: Site, user: str, *, jetstream: bool = True) -> Site:
    bus = site.bus
    return Site(
        cluster=site.cluster,
        bus=Bus(
            servers=bus.servers, user=user, password_file=bus.password_file, jetstream=jetstream
        ),
    )


async def make_stream(site: Site) -> None:
    async with connected(site.bus) as bus:
        subjects = Subjects.of(site)
        await ensure_stream(bus.jetstream(), site.bus, subjects, subjects.patterns(KEPT))


@pytest.mark.parametrize("jetstream", [True, False])
async def test_forbidden_records_are_dead_letters_and_others_are_sent_once(
    site: Site, jetstream: bool
) -> None:
    telemetry, letters = Telemetry(), KeptDeadLetters()
    client = await nats.connect(site.bus.servers[0], user="all", password=PASSWORD)
    heard = await client.subscribe(">")
    await client.flush()
    await make_stream(site)
    sink = NatsSink(site=as_user(site, "node", jetstream=jetstream), telemetry=telemetry)
    source = Given(to_lines(RECORDS))
    await run(source, sink, dead_letter_sink=letters, telemetry=telemetry)
    await client.flush()
    messages = [await heard.next_msg() for _ in range(heard.pending_msgs)]
    payloads = [message.data for message in messages if message.subject.startswith("fox")]
    await client.close()
    assert [letter.original.count(b"forbidden") for letter in letters.letters] == [1, 1]
    assert LOG in letters.letters[0].reason
    text = b"".join(payloads)
    assert (text.count(b"value=1"), text.count(b"value=2"), text.count(b"event=")) == (1, 1, 1)
    assert telemetry.total(telemetry.written) == 3


async def test_refusal_affects_its_subject_only(site: Site) -> None:
    """Messages on other subjects are stored by the same call, and all refused ones are named."""
    await make_stream(site)
    node = as_user(site, "node")
    async with Connection(node.bus, name="t", telemetry=Telemetry()) as bus:
        subjects = Subjects.of(node)
        publisher = Publisher(bus, node.bus, subjects)
        names = ["fox%2Etest.metrics", "x.y", "fox%2Etest.events.job", "A.b"]
        messages = [Outgoing.of(name, b"m value=1") for name in names]
        with pytest.raises(ForbiddenError) as caught:
            await publisher.publish(messages)
        assert caught.value.subjects == {"x.y", "A.b"}
        assert publisher.unstored(messages) == [messages[1], messages[3]]


async def test_publisher_that_cannot_create_stream_names_bridge(site: Site) -> None:
    """It is unavailable, not denied, as a bridge will create it; no API timeout is awaited."""
    node = as_user(site, "node")
    async with Connection(node.bus, name="t", telemetry=Telemetry()) as bus:
        publisher = Publisher(bus, node.bus, Subjects.of(node))
        with pytest.raises(NoStreamError, match="a bridge does when it starts"):
            await publisher.publish([Outgoing.of("fox%2Etest.metrics", b"m value=1")])


async def test_publisher_reports_that_it_may_not_subscribe_to_replies(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages may be stored, but could never be acknowledged."""
    monkeypatch.setattr("ccpipe.bus.nats.publisher.STORE_SECONDS", 0.5)
    await make_stream(site)
    async with NatsSink(site=as_user(site, "deaf"), telemetry=Telemetry()) as sink:
        with pytest.raises(DeniedError, match=r"subscribe to _INBOX\.deaf\."):
            await sink.write(to_lines(RECORDS))


async def test_flush_returns_after_refusals_of_earlier_messages(site: Site) -> None:
    """Its response shows that the server has processed them."""
    node = as_user(site, "node")
    async with connected(node.bus) as bus:
        for _ in range(20):
            with pytest.raises(ForbiddenError), bus.permissions.publishing([LOG]):  # noqa: PT012
                await bus.publish(LOG, b"x")
                await bus.flush()
