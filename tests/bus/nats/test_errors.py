"""What a server refuses: in words that name the cure, and told at once to who waits."""

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
from tests.sinks.conftest import Given, KeptLetters


@pytest.mark.parametrize(
    ("code", "description", "words"),
    [
        (10047, "insufficient storage resources available", "no more storage"),
        (10023, "insufficient resources", "no more storage"),
        (10077, "error storing message: write x.blk: no space left on device", "restart"),
        (10077, "maximum bytes exceeded", "stream_size"),
        (10077, "something new", "server's log"),
        (10002, "resource limits exceeded for account", "account"),
    ],
)
def test_a_missing_resource_is_named_with_its_cure(code: int, description: str, words: str) -> None:
    """The broker's own words stay, so that its documentation can be searched for them."""
    said = storage_problem(code, description)
    assert words in said
    assert description in said


def test_other_errors_are_no_storage_problem() -> None:
    """A code that has nothing to do with storage stays what the broker calls it."""
    assert storage_problem(10058, "stream name already in use") == ""
    denied = nats.js.errors.APIError(code=403, description="no")
    assert isinstance(explain(denied, "x"), DeniedError)
    off = explain(nats.js.errors.ServiceUnavailableError(), "x")
    assert isinstance(off, UnavailableError)
    assert "jetstream = false" in str(off)


async def test_a_full_stream_that_refuses_is_named(nats_server: NatsServer) -> None:
    """With ``stream_discard = "new"`` the publisher learns what is full and what to raise."""
    async with connected(Bus(servers=[nats_server.url])) as bus:
        await bus.jetstream().add_stream(
            name="small", subjects=["a"], max_bytes=4096, discard="new"
        )
        for number in range(3):
            await store(bus, [Outgoing("a", b"x" * 1000, f"{number}")], set())
        with pytest.raises(UnavailableError, match="stream_size"):
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
async def test_what_is_forbidden_is_a_dead_letter_and_the_rest_goes_once(
    site: Site, jetstream: bool
) -> None:
    telemetry, letters = Telemetry(), KeptLetters()
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


async def test_a_refusal_ends_the_wait_of_its_subject_alone(site: Site) -> None:
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


async def test_without_a_stream_that_it_could_make_a_publisher_says_who_does(site: Site) -> None:
    """Later, for a bridge will make it: in no case never, and not after a timeout of the API."""
    node = as_user(site, "node")
    async with Connection(node.bus, name="t", telemetry=Telemetry()) as bus:
        publisher = Publisher(bus, node.bus, Subjects.of(node))
        with pytest.raises(NoStreamError, match="a bridge does when it starts"):
            await publisher.publish([Outgoing.of("fox%2Etest.metrics", b"m value=1")])


async def test_whoever_may_not_hear_replies_is_told_so(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it publishes may be stored, but nobody could ever confirm that."""
    monkeypatch.setattr("ccpipe.bus.nats.publisher.STORE_SECONDS", 0.5)
    await make_stream(site)
    async with NatsSink(site=as_user(site, "deaf"), telemetry=Telemetry()) as sink:
        with pytest.raises(DeniedError, match=r"subscribe to _INBOX\.deaf\."):
            await sink.write(to_lines(RECORDS))


async def test_a_flush_comes_behind_what_was_published(site: Site) -> None:
    """Its answer says that the server has seen that: a refusal is known by then."""
    node = as_user(site, "node")
    async with connected(node.bus) as bus:
        for _ in range(20):
            with pytest.raises(ForbiddenError), bus.permissions.publishing([LOG]):  # noqa: PT012
                await bus.publish(LOG, b"x")
                await bus.flush()
