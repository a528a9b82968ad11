"""``OtlpSink``: what is sent, and the responses of receivers."""

import time

import pytest
from aiohttp import web

from ccpipe.config import Duration
from ccpipe.errors import RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.otlp.responses import PartialSuccess, encode_status
from ccpipe.message import Message
from ccpipe.sinks.otlp import OtlpSink
from tests.formats.otlp.oracle import read
from tests.sinks.answers import Answers, served
from tests.sinks.conftest import NOON, SECOND, Given, carry, metric


class Receiver:
    """Answers as receivers of OTLP do: of each request it stores the points below `limit`."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.stored: dict[tuple[str, int], float] = {}

    async def answer(self, request: web.Request) -> web.Response:
        points = read(await request.read())
        good = [point for point in points if point.value < self.limit]
        self.stored |= {(point.name, point.time): point.value for point in good}
        partial = PartialSuccess(len(points) - len(good), "value too large")
        return web.Response(body=partial.encode(), content_type="application/x-protobuf")


async def test_request_is_compressed_protobuf(answers: Answers) -> None:
    answers.status = 200
    async with OtlpSink(url=answers.url, tenant="hpc") as sink:
        await sink.write(to_lines([metric(1.5), metric(2, n="1")]))
    request, body = answers.requests[-1], answers.bodies[-1]
    assert request.path == "/v1/metrics"
    assert request.headers["Content-Type"] == "application/x-protobuf"
    assert request.headers["Content-Encoding"] == "gzip"
    assert request.headers["X-Scope-OrgID"] == "hpc"
    assert [(point.name, point.value) for point in read(body)] == [
        ("cpu_load", 1.5), ("cpu_load", 2),
    ]  # fmt: skip


async def test_row_without_time_has_time_of_writing(answers: Answers) -> None:
    answers.status = 200
    async with OtlpSink(url=answers.url) as sink:
        await sink.write(to_lines([Message("m", {}, 1.0, None)]))
    (point,) = read(answers.bodies[-1])
    assert abs(point.time - time.time_ns()) < 600 * SECOND


async def test_counters_are_sums(answers: Answers) -> None:
    """Those whose names match a pattern of the option."""
    answers.status = 200
    async with OtlpSink(url=answers.url, counters=["net_*", "x"]) as sink:
        names = "net_bytes", "x", "xy"
        await sink.write(to_lines([Message(name, {}, 1.0, NOON) for name in names]))
    assert [point.kind for point in read(answers.bodies[-1])] == ["sum", "sum", "gauge"]


async def test_texts_are_dead_letters(answers: Answers) -> None:
    answers.status = 200
    letters = await carry(
        Given([metric("text"), Message("job", {"function": "stop"}, "{}", NOON, "event"),
               metric(1.0)]),
        OtlpSink(url=answers.url),
    )  # fmt: skip
    assert [each.reason for each in letters] == ["OpenTelemetry stores numbers, not text"] * 2
    assert len(read(answers.bodies[-1])) == 1


async def test_time_that_otlp_cannot_represent_is_dead_letter(answers: Answers) -> None:
    """The others are sent."""
    answers.status = 200
    records = [metric(float(n), time=NOON + n) for n in range(8)] + [metric(9.0, time=-5)]
    letters = await carry(Given(records), OtlpSink(url=answers.url))
    assert [each.original.split()[1:] for each in letters] == [[b"value=9.0", b"-5"]]
    assert sum(len(read(body)) for body in answers.bodies) == 8


async def test_partially_rejected_request_is_bisected() -> None:
    """A receiver says how many points it rejected, not which: these become dead letters."""
    receiver = Receiver(limit=100)
    records = [metric(float(n), time=NOON + n) for n in range(98)]
    records += [metric(float(n), time=NOON + n) for n in (100, 200)]
    async with served(receiver.answer) as url:
        letters = await carry(Given(records), OtlpSink(url=url))
    assert [each.original.split()[1] for each in letters] == [b"value=100.0", b"value=200.0"]
    assert letters[0].reason.endswith("/v1/metrics: value too large")
    assert len(receiver.stored) == 98


async def test_receipt_is_success_with_response_of_otlp(answers: Answers) -> None:
    """An empty one, or one that rejects nothing; not a page."""
    answers.status = 200
    async with OtlpSink(url=answers.url) as sink:
        await sink.write(to_lines([metric(1.0)]))
        answers.text = "\n\0"  # an empty partial success, as Collectors send
        await sink.write(to_lines([metric(1.0)]))
        answers.text = "<html>Please log in</html>"
        with pytest.raises(UnavailableError, match="log in"):
            await sink.write(to_lines([metric(1.0)]))


async def test_error_has_message_of_status(answers: Answers) -> None:
    """Which is protobuf, too."""
    answers.status = 200
    async with OtlpSink(url=answers.url) as sink:
        answers.status, answers.text = 400, encode_status("too old").decode()
        with pytest.raises(RejectedError, match="/v1/metrics: 400 Bad Request: too old$"):
            await sink.write(to_lines([metric(1.0)]))


async def test_overloaded_receiver_gets_pause_that_it_asks_for() -> None:
    """``Retry-After`` in a response of 429 or 503 is honoured."""
    tries: list[float] = []

    async def answer(_: web.Request) -> web.Response:
        tries.append(time.monotonic())
        if len(tries) == 2:  # the first one is that of the check
            return web.Response(status=429, headers={"Retry-After": "1"})
        return web.Response(status=200)

    async with served(answer) as url:
        assert await carry(Given([metric(1.0)]), OtlpSink(url=url, timeout=Duration(60))) == []
    assert len(tries) == 3
    assert tries[2] - tries[1] >= 1
