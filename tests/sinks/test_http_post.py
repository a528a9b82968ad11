"""``HttpPostSink``: what a receiver gets, ccpipe's own source among them."""

import pytest

from ccpipe.config import Site
from ccpipe.errors import ConfigError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import encode, to_lines
from ccpipe.formats.sonar import decode as decode_sonar
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.sinks.http_post import HttpPostSink
from ccpipe.sources.http import HttpSource
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually, free_port
from tests.pipeline.parts import ListSink, running
from tests.sinks.answers import Answers
from tests.sinks.conftest import NOON, Given, carry, metric

ENVELOPE = b"""{"meta": {"producer": "sonar", "version": "0.18.0"}, "data": {"type": "cluster",
"attributes": {"time": "2025-02-20T12:00:00Z", "cluster": "fox", "slurm": true,
"partitions": [], "nodes": []}}}"""


async def test_lines(answers: Answers) -> None:
    """A batch is one request."""
    records = [metric(1.0), metric("text")]
    async with HttpPostSink(url=f"{answers.url}/lines", precision="ms") as sink:
        await sink.write(to_lines(records))
    assert [(r.method, r.path) for r in answers.requests] == [
        ("HEAD", "/lines"),
        ("POST", "/lines"),
    ]
    assert answers.bodies[1] == encode(records, precision="ms")


async def test_envelopes(answers: Answers) -> None:
    """Each is a request of its own, to the address of its type; errors alone have none."""
    found = decode_sonar(ENVELOPE)
    async with HttpPostSink(url=f"{answers.url}/api/v1/insert", format="sonar") as sink:
        assert sink.limits.lines == 1
        answers.status = 200
        await sink.write(Envelopes([*found, *found]))
    assert [r.path for r in answers.requests[1:]] == ["/api/v1/insert/cluster"] * 2
    assert decode_sonar(answers.bodies[1]) == found
    assert answers.bodies[1].endswith(b"\n")


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_receipts(answers: Answers, status: int) -> None:
    """A success is one, unless it is a page for people."""
    async with (
        HttpPostSink(url=answers.url) as sink,
        HttpPostSink(url=answers.url, html=True) as all_,
    ):
        answers.status = status
        await sink.write(to_lines([metric(1.0)]))
        answers.text = "<!doctype html><HTML>Please log in"
        if status != 204:  # which has no text
            with pytest.raises(UnavailableError, match="log in"):
                await sink.write(to_lines([metric(1.0)]))
            await all_.write(to_lines([metric(1.0)]))
        answers.status, answers.text = 422, "no"
        with pytest.raises(RejectedError):
            await sink.write(to_lines([metric(1.0)]))


async def test_to_ccpipe_itself() -> None:
    """What one bridge posts another one receives, dead letters and all."""
    listen = f"127.0.0.1:{free_port()}"

    kept, telemetry = ListSink(), Telemetry()
    source = HttpSource(site=Site(cluster="fox"), listen=listen)
    records = [metric(float(n), time=NOON) for n in range(10)]
    async with running(source, kept, telemetry=telemetry) as receiving:
        await eventually(lambda: telemetry.ready or receiving.done())
        url = f"http://{listen}/write?precision=s"
        assert await carry(Given(records), HttpPostSink(url=url)) == []
    assert kept.written == records


def test_options_that_cannot_be() -> None:
    """A profile is for envelopes."""
    with pytest.raises(ConfigError, match="profile: goes with"):
        HttpPostSink(url="http://host", profile="jobanalyzer")
