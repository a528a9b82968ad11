"""Background tasks of a pipe and its parts that fail: the pipe ends, or they are tried again."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.kafka.source import KafkaSource
from ccpipe.bus.mqtt.source import MqttSource
from ccpipe.bus.nats.consumer import ConsumerReader
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.source import NatsSource
from ccpipe.bus.nats.streams import unread
from ccpipe.config import Duration, Interval, Site
from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.message import event
from ccpipe.pipeline import Batch, HoldingTranslator, Scope, Sink, Source, run
from ccpipe.sinks.file import FileSink
from ccpipe.sinks.hdf5 import Hdf5Sink
from ccpipe.sinks.parquet import ParquetSink, files
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.pipeline.parts import ListSink, ListSource, made, play, run_until, running, values


class UnexpectedError(Exception):
    """An unexpected error."""


def fail(*_: object) -> None:
    raise UnexpectedError("unexpected")


async def fail_later(*_: object) -> None:
    raise UnexpectedError("unexpected")


class Holding(HoldingTranslator[Lines, Lines]):
    """Withholds its records, and fails when it is fed without any."""

    takes = gives = Lines

    def __init__(self) -> None:
        self.held: list[Any] = []

    def feed(self, records: Lines) -> Lines:
        if not records and self.held:
            fail()
        self.held += records
        return Lines()

    def flush(self) -> Lines:
        held, self.held = self.held, []
        return to_lines(held)

    def oldest_held(self) -> int | None:
        return 1 if self.held else None


def test_pipe_ends_when_translator_fails_while_nothing_arrives() -> None:
    """Its withheld records are written, and the error is raised: the pipe would idle otherwise."""
    source, sink = ListSource([made(1, 2)], stay=True), ListSink()
    with pytest.raises(UnexpectedError):
        play(run(source, sink, translators=[Holding()]))
    assert values(sink.written) == [1, 2]
    assert source.acked == [0]


class Unstoppable(ListSource):
    """Fails when it is stopped."""

    def stop(self) -> None:
        fail()


def test_pipe_ends_although_its_source_cannot_be_stopped() -> None:
    """It is not read further; batches handed over are written."""
    source, sink = Unstoppable([made(1)], stay=True), ListSink()
    with pytest.raises(UnexpectedError):
        play(run_until(5, source, sink))
    assert values(sink.written) == [1]


async def test_pipe_ends_when_task_of_its_sink_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is logged at once, and raised once the rest is written."""
    path = str(tmp_path / "a.lp")
    sink = FileSink(path=path, fsync="interval", fsync_interval=Interval(0.01))
    monkeypatch.setattr(sink, "_sync", fail)
    with pytest.raises(UnexpectedError):
        await asyncio.wait_for(run(ListSource([made(1)], stay=True), sink), 60)
    assert "ccpipe-fsync failed: UnexpectedError: unexpected" in caplog.text


def nats_source(site: Site, monkeypatch: pytest.MonkeyPatch, name: str) -> Source[Any]:
    if name == "unread":
        monkeypatch.setattr(unread, "POLL_SECONDS", 0.01)
        monkeypatch.setattr(unread.UnreadWatch, "poll", fail_later)
    elif name == "alive":
        monkeypatch.setattr(ConsumerReader, "_held", fail)
    else:
        monkeypatch.setattr(ConsumerReader, "_ask", fail_later)
    return NatsSource(site=site, telemetry=Telemetry(), durable="d", ack_wait=Duration(0.3))


@pytest.mark.parametrize("name", ["pull", "alive", "unread"])
async def test_pipe_ends_when_task_of_its_nats_source_fails(
    site: Site, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is indispensable."""
    with pytest.raises(UnexpectedError):
        await asyncio.wait_for(run(nats_source(site, monkeypatch, name), ListSink()), 60)


async def test_pipe_ends_when_task_of_its_mqtt_source_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would receive nothing more."""
    site = Site(cluster="fox", hostname="n1")
    source = MqttSource(site=site, telemetry=Telemetry())
    monkeypatch.setattr("ccpipe.bus.mqtt.source.Session", fail)
    with pytest.raises(UnexpectedError):
        await asyncio.wait_for(run(source, ListSink()), 60)


class Consumer:
    """A consumer of Kafka to which nothing arrives."""

    async def getmany(self, **_: object) -> dict[object, object]:
        await asyncio.sleep(0.05)
        return {}

    async def stop(self) -> None:
        """End."""


async def test_pipe_ends_when_task_of_its_kafka_source_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without commits everything would be delivered again after the next start."""
    site = Site(cluster="fox", hostname="n1")
    reading: dict[str, Any] = {"codec": LineCodec(), "topics": ["fox.metrics"], "group": "g"}
    source = KafkaSource(site=site, telemetry=Telemetry(), **reading)

    async def started(_: Scope) -> Consumer:
        return Consumer()

    monkeypatch.setattr(source, "_started", started)
    monkeypatch.setattr(source, "_keep_committing", fail_later)
    with pytest.raises(UnexpectedError):
        await asyncio.wait_for(run(source, ListSink()), 60)


async def test_server_that_cannot_be_restarted_ends_pipe(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A source may run one; a system error, such as no more processes, is retried."""
    errors = [OSError(11, "Resource temporarily unavailable"), UnexpectedError("unexpected")]

    async def start(_: NatsServer) -> None:
        raise errors.pop(0)

    class Serving(ListSource):
        async def __aenter__(self) -> Any:
            self.server = await NatsServer(tmp_path / "own").__aenter__()
            monkeypatch.setattr(NatsServer, "_start", start)
            assert self.server.pid is not None
            os.kill(self.server.pid, signal.SIGKILL)
            return await super().__aenter__()

    with pytest.raises(UnexpectedError):
        await asyncio.wait_for(run(Serving([], stay=True), ListSink()), 60)
    assert errors == []


class Repeating(Source[Any]):
    """Hands over one batch after the other until it is stopped."""

    gives = Lines

    def __init__(self) -> None:
        self.handed, self.stopped = 0, False

    def stop(self) -> None:
        self.stopped = True

    async def batches(self) -> AsyncIterator[Batch[Any]]:
        while not self.stopped:
            self.handed += 1
            yield Batch(made(self.handed))
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", ["compaction", "closed files"])
async def test_pipe_continues_while_housekeeping_of_its_sink_fails(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Data are stored without it: the error is logged and housekeeping retried."""
    calls: list[object] = []

    def fail_again(*_: object) -> None:
        calls.append(_)
        fail()

    sink: Sink[Any] = ParquetSink(dir=str(tmp_path))
    monkeypatch.setattr(files.Housekeeping, "_work_in_thread", fail_again)
    if name == "closed files":
        sink = FileSink(path=str(tmp_path / "a.lp"), max_files=1)
        monkeypatch.setattr("ccpipe.sinks.file.RETENTION_SECONDS", 0.01)
        monkeypatch.setattr(sink, "_maintain_closed_files", fail_again)
    sink.limits = type(sink.limits)(max_wait=0.01)
    async with running(Repeating(), sink):
        await eventually(lambda: len(calls) > 2)
    assert "UnexpectedError: unexpected" in caplog.text


async def test_step_is_retried_if_its_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unexpected error affects neither the other steps nor the sink."""
    calls: list[object] = []

    def fail_again(name: object) -> None:
        calls.append(name)
        fail()

    caplog.set_level(logging.ERROR)
    sink = Hdf5Sink(dir=str(tmp_path), idle_timeout=Interval(0.02), last_sample_timeout=Duration(0))
    monkeypatch.setattr(sink, "_finish", fail_again)
    tags = {"hostname": "n1", "type": "node", "jobid": "1", "stepid": "0"}
    ends = to_lines([event("step", "stop_step", "{}", time=10**18, tags=tags)])
    async with running(ListSource([ends], stay=True), sink):
        await eventually(lambda: len(calls) > 2)
    assert "retrying" in caplog.text
