"""``docs/reference/wire.md`` agrees with the code."""

import re
import tomllib

import nats

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.publisher import MESSAGE_ID
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.subjects import REQUESTED_BY, TEMPLATES, Subjects
from ccpipe.config import Site, load
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.message import Kind
from ccpipe.pipeline import DeadLetter
from ccpipe.telemetry import Telemetry
from tests.paths import ROOT

PAGE = (ROOT / "docs/reference/wire.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert isinstance(found, str)
    return found


def test_page_has_every_subject_template() -> None:
    """With its default."""
    rows = re.findall(r"^\| `(\w+)` \| `(\{cluster\}\S+)` \|", PAGE, re.MULTILINE)
    assert dict(rows) == TEMPLATES


def test_example_lines_are_canonical() -> None:
    """They follow the rules and show each kind."""
    payload = block("line").encode()
    lines = decode(payload)
    assert encode(lines, precision="auto") == payload
    assert not [problem for message in lines for problem in message.problems()]
    assert {message.kind for message in lines} == set(Kind) - {Kind.OTHER}


def test_lenient_examples_need_lenient_decoder() -> None:
    """Each example is rejected by the strict one."""
    for line in block("lenient").splitlines():
        assert len(decode(line.encode()).rejected) == 1
        lines = decode(line.encode(), lenient=True)
        assert (len(lines), len(lines.rejected)) == (1, 0)


def test_configuration_of_page_is_accepted() -> None:
    """And the example of an escaped name is right."""
    site = load(None, Site, below=tomllib.loads(block("toml")), environ={})
    subjects = Subjects.of(site)
    messages = decode(block("line").encode())
    assert [subjects.of_message(message) for message in messages[:2]] == [
        "hpc-nats",
        "cc.job.event",
    ]
    usual = Subjects.of(Site(cluster="fox.educloud.no"))
    assert f"`{usual.patterns(['metrics'])[0]}`" in PAGE


async def test_headers_of_page_equal_those_on_broker(site: Site, nats_server: NatsServer) -> None:
    """A dead letter with all attributes has each header of the table and the id, no other."""
    original = b"x" * 2**21
    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        letter = DeadLetter(original, "why", "f.metrics", line=1, offset=0)
        await NatsDeadLetterSink(bus, site).write([letter])
    client = await nats.connect(nats_server.url)
    message = await client.jetstream().get_msg("ccpipe-fox%2Etest-dead", 1)
    await client.close()
    named = set(re.findall(r"^\| `(Ccpipe-[\w-]+)` \|", PAGE, re.MULTILINE))
    assert set(message.headers or {}) == {*named, MESSAGE_ID}
    assert f"`{MESSAGE_ID}`" in PAGE
    assert f"`{REQUESTED_BY}`" in PAGE
