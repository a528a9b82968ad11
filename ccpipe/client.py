"""The bus for programs in Python: ``connect``, then publish and subscribe."""

import asyncio
import time as clock
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from types import AsyncGeneratorType
from typing import Any, Literal, Self, overload

from ccpipe.bus.codecs import Codec
from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Site, find_config, load
from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.formats.sonar import Envelope, Envelopes
from ccpipe.message import Message, event, log, metric
from ccpipe.telemetry import Telemetry


def connect(
    servers: str | Sequence[str] = (), *, cluster: str = "", config: Path | str | None = None
) -> "BusClient":
    """Return a client of a cluster's bus, to be used with ``async with``.

    Whatever is not given, such as credentials, is taken from the site's configuration: the file
    `config`, else ``$CCPIPE_CONFIG``, the user's or the system's ``ccpipe.toml``. Without servers
    there either, it is a running ``ccpipe up``, else localhost.

    Parameters
    ----------
    servers
        URL such as ``nats://10.0.0.1:4222``, or several.
    cluster
        Name of the cluster.
    config
        Configuration file.

    Raises
    ------
    ConfigError
        if the configuration is wrong, naming the key path.

    """
    urls = [servers] if isinstance(servers, str) else list(servers)
    flags = {"bus.servers": urls or None, "cluster": cluster or None}
    return BusClient(load(Path(config) if config else find_config(), Site, flags=flags))


class BusClient:
    """Publishes to a cluster's bus and subscribes to it; opened by ``async with``.

    Opening raises UnavailableError if no server answers, and DeniedError if it refuses the
    credentials. Once open, a lost connection is made again.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._telemetry = Telemetry()
        self._connection = Connection(
            site.bus, name="python", telemetry=self._telemetry, forever=False
        )
        self._lines, self._envelopes = self._sink(LineCodec()), self._sink(SonarCodec())
        self._open: dict[NatsSource, asyncio.Event] = {}
        """Sources of subscriptions, each with whether it is closed."""
        self._iterators = weakref.WeakSet[AsyncGeneratorType[Any, None]]()

    def _sink(self, codec: Codec[Any]) -> NatsSink:
        sink = NatsSink(site=self._site, telemetry=self._telemetry, codec=codec)
        return sink.using(self._connection)

    async def __aenter__(self) -> Self:
        await self._connection.__aenter__()
        return self

    async def __aexit__(self, *exit_: object) -> None:
        try:
            for each in list(self._iterators):
                if not each.ag_running:  # no task waits for its next records
                    await each.aclose()
            for source in self._open:
                source.stop()
            for closed in list(self._open.values()):
                await closed.wait()
        finally:
            await self._connection.__aexit__(None, None, None)

    async def publish(
        self, name: str, value: float, /, *, time: int | None = None, **tags: str | int
    ) -> None:
        """Publish a metric; return when the broker has stored it, if it uses JetStream.

        Parameters
        ----------
        name
            Name of the metric.
        value
            A number.
        time
            Nanoseconds since the epoch; default: now.
        tags
            Default: our own ``cluster`` and ``hostname``, and ``type="node"``. A tag whose name is
            not an identifier is written ``**{"type-id": 3}``.

        Raises
        ------
        EncodeError, RejectedError
            if the message breaks a rule of the specification, or exceeds the broker's limit.
        UnavailableError
            if it could not be stored now, and may be later.

        """
        await self._publish(metric(name, value, time=_now(time), tags=self._tags(tags)))

    async def publish_event(
        self, name: str, function: str, text: str, /, *, time: int | None = None, **tags: str | int
    ) -> None:
        """Publish an event of a class such as ``job``, with its function; see ``publish``."""
        await self._publish(event(name, function, text, time=_now(time), tags=self._tags(tags)))

    async def publish_log(
        self,
        component: str,
        level: str,
        text: str,
        /,
        *,
        time: int | None = None,
        **tags: str | int,
    ) -> None:
        """Publish a log line; `level` is debug, info, warn or error; see ``publish``."""
        await self._publish(log(component, level, text, time=_now(time), tags=self._tags(tags)))

    async def _publish(self, message: Message) -> None:
        if problems := message.problems():
            raise EncodeError(f"{message.name}: {'; '.join(problems)}")
        await self.publish_records(message)

    async def publish_records(
        self, records: Message | Iterable[Message] | Envelope | Envelopes, /
    ) -> None:
        """Publish messages, or Sonar's envelopes, as they are; see ``publish``."""
        if isinstance(records, Envelope | Envelopes):
            await self._envelopes.write(
                Envelopes([records]) if isinstance(records, Envelope) else records
            )
        else:
            several = [records] if isinstance(records, Message) else records
            await self._lines.write(to_lines(several))

    @overload
    def subscribe(
        self, subject: Literal["sonar"], /, *, durable: str = ""
    ) -> AsyncIterator[Envelopes]: ...
    @overload
    def subscribe(
        self, *subjects: Literal["metrics", "events", "log"], durable: str = ""
    ) -> AsyncIterator[Lines]: ...
    @overload
    def subscribe(
        self, *subjects: str, durable: str = ""
    ) -> AsyncIterator[Lines] | AsyncIterator[Envelopes]: ...
    def subscribe(
        self, *subjects: str, durable: str = ""
    ) -> AsyncIterator[Lines] | AsyncIterator[Envelopes]:
        """Yield what is published, as ``Lines``, or as ``Envelopes`` for the subject ``sonar``.

        Bytes that could not be decoded are in ``rejected`` of what is yielded. The subscription
        begins with the iteration, and ends with it or with the client.

        Parameters
        ----------
        subjects
            ``metrics``, ``events``, ``log`` or ``sonar`` for the cluster's subjects, or subjects
            of the broker such as ``*.metrics``; default: ``metrics``, ``events`` and ``log``.
        durable
            Name of a consumer of the stream, which continues where the last one of this name
            ended. Records are acknowledged when the next ones are requested; unacknowledged ones
            are delivered again.

        Raises
        ------
        UnavailableError, DeniedError
            if the broker cannot be reached at first, or refuses the credentials.

        """
        codec = SonarCodec() if subjects == ("sonar",) else LineCodec()
        source = NatsSource(
            site=self._site, telemetry=self._telemetry, codec=codec,
            subjects=list(subjects), durable=durable,
        )  # fmt: skip
        iterator = self._records(source)
        assert isinstance(iterator, AsyncGeneratorType)
        self._iterators.add(iterator)
        return iterator

    async def _records(self, source: NatsSource) -> AsyncGenerator[Any]:
        closed = self._open[source] = asyncio.Event()
        try:
            async with source:
                async for batch in source.batches():
                    yield batch.records
                    if batch.ack is not None:
                        await batch.ack()
        finally:
            del self._open[source]
            closed.set()

    def _tags(self, tags: Mapping[str, str | int]) -> dict[str, str]:
        usual = {"cluster": self._site.cluster, "hostname": self._site.hostname, "type": "node"}
        return usual | {key: str(value) for key, value in tags.items()}


def _now(time: int | None) -> int:
    return clock.time_ns() if time is None else time
