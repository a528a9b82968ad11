"""Messages from NATS: through a durable JetStream consumer or a plain subscription."""

import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any, Literal, Self

from ccpipe.bus.codecs import Codec
from ccpipe.bus.codecs.identity import SubjectCheckingCodec
from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.nats.connection import PENDING_BYTES, Connection, check
from ccpipe.bus.nats.consumer import STUCK_SECONDS, ConsumerReader, MessageReader
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.protocol.frames import Deliveries
from ccpipe.bus.nats.replicas import Replicas
from ccpipe.bus.nats.streams.partitions import StreamPartition
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Duration, Site
from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.pipeline import Batch, Scope, SharedSource, wait_for_event
from ccpipe.telemetry import Telemetry

PROBE_SECONDS = 10.0
"""Interval at which a plain subscription checks that the broker responds."""


class SubscriptionReader(MessageReader):
    """A plain subscription: only messages published from now on."""

    def __init__(
        self,
        bus: Connection,
        codec: Codec[Any],
        telemetry: Telemetry,
        patterns: list[str],
        queue: str,
    ) -> None:
        super().__init__(bus, codec, telemetry)
        self.patterns = patterns
        self.queue = queue

    async def __aenter__(self) -> Self:
        for pattern in self.patterns:
            await self.bus.subscribe_lists(pattern, self._receive, self.queue)
        self.start(probe=self._probe())
        return self

    def _receive(self, deliveries: Deliveries) -> None:
        """Keep messages of a plain subscription; beyond the limit they are dropped and counted."""
        if self._waiting_bytes + deliveries.size > PENDING_BYTES:
            self.telemetry.count(self.telemetry.bus_errors, "slow_consumer", len(deliveries))
            return
        self._keep(deliveries)

    async def _probe(self) -> None:
        while not self._stopped.is_set():
            with contextlib.suppress(UnavailableError):
                await self.bus.flush()
                self.telemetry.expect(self, STUCK_SECONDS)
            await wait_for_event(self._stopped, PROBE_SECONDS)


class NatsSource(SharedSource[Any]):
    """Yields messages; small ones that arrive together form one batch.

    With a `durable` name it reads the cluster's stream: the broker records what was acknowledged,
    redelivers the rest after a crash, and several bridges with the same name share the work.
    Without one it is a plain subscription, which receives only messages published from now on.
    """

    def __init__(
        self,
        *,
        site: Site,
        telemetry: Telemetry,
        codec: Codec[Any] | None = None,
        subjects: list[str] | None = None,
        durable: str = "",
        queue: str = "",
        ack_wait: Duration = Duration(20),
        drain_timeout: Duration = Duration(0),
        identity: Literal["tags", "subject"] = "tags",
    ) -> None:
        """Take the options.

        Parameters
        ----------
        codec
            Message format: ``line`` (default) or ``sonar``.
        subjects
            Names of ``[bus.subjects]``, or literal subjects; by default ``metrics``, ``events`` and
            ``log``, or ``sonar`` with Sonar's codec.
        durable
            Name under which the broker records what was acknowledged; without one this is a plain
            subscription.
        queue
            Name of the group that shares a plain subscription.
        ack_wait
            Time after which the broker redelivers the messages of a dead bridge to another one; a
            live bridge keeps extending it.
        drain_timeout
            How long to continue reading after a stop, until the stream is empty.
        identity
            How the publisher of a record is identified: by the record's ``tags``, or by the
            ``subject``, with which the tags must then agree; see ``docs/operations/security.md``.

        """
        for option, name in (("durable", durable), ("queue", queue)):
            if unfit := re.search(r"[\s.*>/\\]", name):
                raise ConfigError(f"{option}: {name!r}: {unfit[0]!r} cannot be in such a name")
        self.site = site
        self.telemetry = telemetry
        self.codec: Codec[Any] = codec or LineCodec()
        self.gives = self.codec.records
        subjects = subjects or list(self.gives.subjects)
        if not subjects:
            raise ConfigError(f"subjects: missing; {self.gives.name} have no default subjects")
        self.patterns = Subjects.of(site).patterns(subjects)
        if identity == "subject":
            self.codec = SubjectCheckingCodec(self.codec, Subjects.of(site), subjects)
        self.durable = durable
        self.queue = queue
        self.ack_wait = float(ack_wait)
        self.drain_timeout = float(drain_timeout)
        self.bus = Connection(site.bus, name=durable or "bridge", telemetry=telemetry)
        self.reader: SubscriptionReader | ConsumerReader | Replicas | None = None
        """The reader of the broker, while the source is open."""
        self._stack = contextlib.AsyncExitStack()
        self._is_stopped = False

    async def __aenter__(self) -> Self:
        self._is_stopped = False
        await self._stack.enter_async_context(self.bus)
        if not self.durable:
            self.reader = SubscriptionReader(
                self.bus, self.codec, self.telemetry, self.patterns, self.queue
            )
            await self._stack.enter_async_context(self.reader)
        return self

    async def __aexit__(self, *exit_: object) -> None:
        self.reader = None
        await self._stack.aclose()

    async def check(self) -> None:
        await check(self.site.bus, self.telemetry)

    def stop(self) -> None:
        self._is_stopped = True
        if self.reader is not None:
            self.reader.stop()

    async def batches(self, scope: Scope = Scope.RECORD) -> AsyncIterator[Batch[Any]]:
        """Yield batches until stopped.

        Nodes are kept together where the stream has partitions; otherwise a process that must see
        all records of a node reads alone, as one that must see the whole cluster.
        """
        reader = self.reader or await self.start(scope)
        if self._is_stopped:
            reader.stop()
        async for batch in reader.batches():
            yield batch

    async def start(self, scope: Scope = Scope.RECORD) -> ConsumerReader | Replicas:
        """Begin to read a durable consumer; otherwise ``batches`` does."""
        # It stays open until the source is closed: batches are acknowledged later.
        self.reader = reader = self._durable_reader(scope)
        return await self._stack.enter_async_context(reader)

    @property
    def stream(self) -> str:
        return self.reader.stream if isinstance(self.reader, ConsumerReader) else ""

    def _durable_reader(self, scope: Scope) -> ConsumerReader | Replicas:
        if self.site.bus.stream_partitions > 1:
            return Replicas(
                self.bus, self.site, self.durable, self.patterns, self.ack_wait, self._read,
                exclusive=scope == Scope.CLUSTER, sticky=scope > Scope.RECORD,
            )  # fmt: skip
        partition = StreamPartition(self.durable)
        return self._read(partition, exclusive=scope > Scope.RECORD, is_whole=True)

    def _read(
        self, partition: StreamPartition, *, exclusive: bool = False, is_whole: bool = False
    ) -> ConsumerReader:
        return ConsumerReader(
            self.bus, self.codec, self.telemetry, site=self.site, partition=partition,
            patterns=self.patterns, ack_wait=self.ack_wait, drain=self.drain_timeout,
            exclusive=exclusive, is_whole=is_whole,
        )  # fmt: skip

    @property
    def dead_letter_sink(self) -> NatsDeadLetterSink:
        return NatsDeadLetterSink(self.bus, self.site)
