"""The publisher's log on the bus: complete, bounded, and without feedback loops."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Bus, Site
from ccpipe.errors import ConfigError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, decode, encode
from ccpipe.message import Message
from ccpipe.node.agent import log as own
from ccpipe.node.agent.log import LogSource
from ccpipe.pipeline import Limits, Sink, run
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually, free_port

SITE = Site(cluster="fox", hostname="n1")
log = logging.getLogger("tests.log")


@pytest.fixture(autouse=True)
def _time_to_connect() -> None:
    """Do not delay opening a sink: here the broker is often unreachable."""


@pytest.fixture(autouse=True)
def _log_all_levels() -> Any:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.DEBUG)
    yield
    root.setLevel(before)


async def drained(source: LogSource) -> list[Message]:
    source.stop()
    return [message async for batch in source.batches() for message in batch.records]


def texts(messages: Sequence[Message]) -> list[Any]:
    return [message.value for message in messages]


@contextlib.asynccontextmanager
async def running(
    source: LogSource, sink: Any, **options: Any
) -> AsyncIterator["asyncio.Task[None]"]:
    stop = asyncio.Event()
    task = asyncio.create_task(run(source, sink, stop=stop, **options))
    try:
        yield task
    finally:
        stop.set()
        await task


async def test_source_converts_record_to_log_line() -> None:
    """Component, level, node and type follow the specification."""
    async with LogSource(site=SITE) as source:
        log.warning("disk %s is slow", "sda")
        (line,) = await drained(source)
    assert line.problems() == []
    assert (line.name, line.value, line.field) == ("ccpipe", "disk sda is slow", "log")
    assert line.tags == {"cluster": "fox", "hostname": "n1", "type": "node", "loglevel": "warn"}
    assert list(decode(encode([line], precision="ns"))) == [line]


async def test_source_maps_levels_to_specification() -> None:
    async with LogSource(site=SITE, level="debug") as source:
        for number in (10, 15, 20, 30, 40, 50):
            log.log(number, "x")
        levels = [line.tags["loglevel"] for line in await drained(source)]
    assert levels == ["debug", "debug", "info", "warn", "error", "error"]


async def test_source_changes_level_while_running() -> None:
    async with LogSource(site=SITE, level="off") as source:
        log.critical("a")
        source.change("error")
        log.warning("b")
        log.error("c")
        assert texts(await drained(source)) == ["c"]
        with pytest.raises(ConfigError, match="log is 'loud', not one of debug"):
            source.change("loud")


async def test_source_detaches_from_root_logger_on_exit() -> None:
    before = logging.getLogger().handlers[:]
    async with LogSource(site=SITE) as source:
        assert logging.getLogger().handlers != before
    assert logging.getLogger().handlers == before
    log.error("x")
    assert await drained(source) == []


async def test_source_shortens_long_traceback() -> None:
    async with LogSource(site=SITE) as source:
        try:
            raise ValueError("y" * 100_000)
        except ValueError:
            log.exception("it broke")
        (line,) = await drained(source)
    text = str(line.value)
    assert text.startswith("it broke\nTraceback")
    assert text.endswith("yyy")
    assert len(text) < own.MAX_TEXT + 100


@pytest.mark.parametrize(
    "text", [pytest.param("\udc80 half", id="half a character"), 'two\nlines \\ "q"', "", "\x00"]
)
async def test_source_encodes_any_text(text: str) -> None:
    """File names in messages need not be UTF-8."""
    async with LogSource(site=SITE) as source:
        log.error("%s", text)
        lines = await drained(source)
    (read,) = decode(encode(lines))
    assert read.field == "log"


async def test_source_reports_record_that_cannot_be_formatted() -> None:
    """Logging never raises."""
    async with LogSource(site=SITE) as source:
        source.handle(logging.makeLogRecord({"msg": "%d apples", "args": ("no",), "levelno": 40}))
        (line,) = await drained(source)
    assert line.value == "'%d apples' cannot be formatted: TypeError"


async def test_source_makes_times_unique() -> None:
    async with LogSource(site=SITE) as source:
        for number in range(50):
            source.handle(
                logging.makeLogRecord({"msg": f"{number}", "levelno": 40, "created": 1e9})
            )
        times = [line.time or 0 for line in await drained(source)]
    assert sorted(set(times)) == times
    assert len(times) == 50


async def test_source_accepts_records_of_concurrent_threads() -> None:
    async with LogSource(site=SITE) as source:
        threads = [threading.Thread(target=log.error, args=("%d", number)) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(map(int, texts(await drained(source)))) == list(range(50))


async def test_source_suppresses_further_lines_of_call_site() -> None:
    """After the first lines their number is logged; other call sites are unaffected."""
    async with LogSource(site=SITE) as source:
        for number in range(own.ALLOWED + 500):
            log.warning("number %d", number)
        log.warning("another")
        lines = texts(await drained(source))
    assert lines[: own.ALLOWED] == [f"number {number}" for number in range(own.ALLOWED)]
    last = f"number {own.ALLOWED + 499}"
    assert lines[own.ALLOWED :] == [
        "another",
        f"500 more lines suppressed here, last: {last}",
    ]


async def test_source_resumes_call_site_after_period(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(own, "monotonic", lambda: now)
    async with LogSource(site=SITE) as source:
        for number in range(own.ALLOWED + 3):
            if number == own.ALLOWED + 2:
                now += own.PERIOD
            log.warning("number %d", number)
        lines = texts(await drained(source))
    assert lines[own.ALLOWED :] == [
        f"2 more lines suppressed here, last: number {own.ALLOWED + 1}",
        f"number {own.ALLOWED + 2}",
    ]


async def test_source_drops_oldest_lines_when_full() -> None:
    async with LogSource(site=SITE) as source:
        for number in range(own.MAX_LINES + 7):
            record = {"msg": f"{number}", "levelno": 40, "lineno": number}
            source.handle(logging.makeLogRecord(record))
        lines = texts(await drained(source))
    assert lines[0] == "7"
    assert lines[-1] == "7 log lines lost: logged faster than they could be published"
    assert len(lines) == own.MAX_LINES + 1


@contextlib.asynccontextmanager
async def reading(site: Site) -> AsyncIterator[list[Any]]:
    reported: list[Any] = []
    async with NatsSource(
        site=site, telemetry=Telemetry(), subjects=["log"], durable="test"
    ) as source:

        async def read() -> None:
            async for batch in source.batches():
                reported.extend(texts(batch.records))

        task = asyncio.create_task(read())
        yield reported
        source.stop()
        await task


def _handlers() -> list[logging.Handler]:
    return logging.getLogger().handlers


class _UnavailableSink(Sink[Any]):
    """A sink that is unavailable until `is_back`."""

    takes = Lines

    def __init__(self) -> None:
        self.is_back = False
        self.tries = 0
        self.written: list[Message] = []

    async def write(self, records: Any) -> None:
        self.tries += 1
        if not self.is_back:
            raise UnavailableError("not here")
        self.written += records


async def test_retries_of_unavailable_sink_are_logged_once() -> None:
    sink, source = _UnavailableSink(), LogSource(site=SITE)
    async with running(source, sink, limits=Limits(max_wait=0, max_backoff=0.001)):
        await eventually(lambda: source in _handlers())
        log.error("the first")
        await eventually(lambda: sink.tries > 3 * own.ALLOWED)
        sink.is_back = True
        await eventually(lambda: "the first" in texts(sink.written))
    assert sum("not here; retrying" in text for text in texts(sink.written)) == 1


async def test_log_is_published_once_server_is_back(tmp_path: Path) -> None:
    (tmp_path / "nats").mkdir()
    server, telemetry = NatsServer(tmp_path / "nats", port=free_port()), Telemetry()
    site = Site(cluster="fox", hostname="n1", bus=Bus(servers=[server.url]))
    sink, source = NatsSink(site=site, telemetry=telemetry), LogSource(site=site)
    async with (
        contextlib.AsyncExitStack() as later,
        running(source, sink, limits=Limits(max_wait=0, max_backoff=0.05), telemetry=telemetry),
    ):
        await eventually(lambda: source in _handlers())
        log.error("before the server runs")
        await eventually(lambda: telemetry.total(telemetry.retries) > 20)
        await later.enter_async_context(server)
        async with reading(site) as reported:
            await eventually(lambda: "before the server runs" in reported)
            log.error("after it runs")
            await eventually(lambda: "after it runs" in reported)
    assert reported.count("before the server runs") == 1
    assert sum("retrying" in text for text in reported) <= own.ALLOWED + 1


class _RejectingSink(Sink[Any]):
    """A sink that rejects every log line."""

    takes = Lines

    def __init__(self) -> None:
        self.writes = 0

    async def write(self, records: Any) -> None:
        self.writes += 1
        raise RejectedError("no log lines here", range(len(records)))


async def test_dead_letter_of_log_line_is_not_published() -> None:
    sink, telemetry, source = _RejectingSink(), Telemetry(), LogSource(site=SITE)
    async with running(source, sink, limits=Limits(max_wait=0), telemetry=telemetry):
        await eventually(lambda: source in _handlers())
        log.error("one")
        await eventually(lambda: telemetry.total(telemetry.dead) == 1)
        log.error("two")
        await eventually(lambda: telemetry.total(telemetry.dead) == 2)
    assert sink.writes == 2


class _LoggingSink(Sink[Any]):
    """A sink that logs each write, a feedback loop."""

    takes = Lines

    def __init__(self) -> None:
        self.written: list[Message] = []

    async def write(self, records: Any) -> None:
        self.written += records
        log.info("wrote %d lines", len(records))


async def test_feedback_loop_of_logging_sink_is_stopped() -> None:
    sink, source = _LoggingSink(), LogSource(site=SITE)
    async with running(source, sink, limits=Limits(max_wait=0)):
        await eventually(lambda: source in _handlers())
        log.error("go")
        await eventually(lambda: len(sink.written) > own.ALLOWED)
        await asyncio.sleep(0.2)  # a feedback loop would have written thousands
        assert len(sink.written) == own.ALLOWED + 1
