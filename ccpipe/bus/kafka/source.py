"""Messages from Kafka."""

import asyncio
import contextlib
import functools
import logging
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from ccpipe.bus.codecs import Codec
from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.kafka.broker import (
    SONAR_TYPES,
    KafkaBroker,
    administration,
    check,
    explain,
    explain_start,
)
from ccpipe.config import Site
from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.pipeline import Batch, Scope, SharedSource, wait_for_event
from ccpipe.process.background import background, guarded
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
"""Maximum wait of a fetch request; also the maximum delay of a stop."""
FETCH = 500
"""Maximum number of messages per fetch."""
COMMIT_SECONDS = 1.0
RETRY_SECONDS = 1.0
BUSY_SECONDS = 3600
"""How long a store may be down before the group reassigns our partitions."""


@dataclass(slots=True)
class _Partition:
    open: dict[int, None] = field(default_factory=dict)
    """Offsets handed over and not acknowledged, in order."""
    next: int = 0
    """The offset after the last one handed over."""
    committed: int = 0


class Offsets:
    """Offsets handed over and acknowledged, by partition.

    An offset may be committed once all before it are acknowledged, in whatever order.
    """

    def __init__(self) -> None:
        self._partitions: dict[Any, _Partition] = {}

    def hand_over(self, partition: Any, offset: int) -> None:
        state = self._partitions.setdefault(partition, _Partition())
        state.open[offset] = None
        state.next = offset + 1

    def acknowledge(self, partition: Any, offset: int) -> None:
        """Record an acknowledgement; ignored for a revoked partition."""
        if (state := self._partitions.get(partition)) is not None:
            state.open.pop(offset, None)

    def positions(self) -> dict[Any, int]:
        """Return the offsets to commit, of partitions with progress since the last commit."""
        found = {
            partition: next(iter(state.open), state.next)
            for partition, state in self._partitions.items()
        }
        return {
            partition: offset
            for partition, offset in found.items()
            if offset > self._partitions[partition].committed
        }

    def commit(self, positions: dict[Any, int]) -> None:
        for partition, offset in positions.items():
            if (state := self._partitions.get(partition)) is not None:
                state.committed = offset

    def forget(self, partitions: Iterable[Any]) -> None:
        for partition in partitions:
            self._partitions.pop(partition, None)


class KafkaMessage(NamedTuple):
    """A message received from Kafka."""

    subject: str
    payload: bytes
    arrival: int
    partition: TopicPartition
    offset: int


class KafkaSource(SharedSource[Any]):
    """Yields messages; offsets are committed when their records are stored downstream.

    With a `group`, the brokers keep its position: uncommitted messages are redelivered after a
    crash, and bridges of one group share the partitions. Without one, only messages published from
    now on are received.
    """

    def __init__(
        self,
        *,
        site: Site,
        telemetry: Telemetry,
        broker: KafkaBroker = KafkaBroker(),  # noqa: B008 - frozen
        codec: Codec[Any] | None = None,
        topics: list[str] | None = None,
        pattern: str = "",
        prefix: str = "",
        group: str = "",
    ) -> None:
        r"""Choose the cluster and the topics.

        Parameters
        ----------
        broker
            Address and credentials of the cluster; see the table below.
        codec
            Message format: ``sonar`` (default) or ``line``.
        topics
            The topics. Without topics and pattern, with the codec ``sonar``: Sonar's topics of the
            site's cluster, ``<cluster>.sample``, ``.sysinfo``, ``.job`` and ``.cluster``.
        pattern
            A regular expression for topics, such as ``.*\.(sample|sysinfo|job|cluster)`` for all
            clusters; topics created later are included after some minutes.
        prefix
            Prefix of the site's topics, separated by a dot.
        group
            Name of the consumer group.

        """
        if topics and pattern:
            raise ConfigError("topics and pattern: only one of them can be given")
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"pattern: {pattern!r}: {error}") from None
        self.site = site
        self.telemetry = telemetry
        self.broker = broker
        self.codec: Codec[Any] = codec or SonarCodec()
        self.gives = self.codec.records
        if not (topics or pattern) and self.gives is not SonarCodec.records:
            raise ConfigError(f"topics: missing; {self.gives.name} have no default topics")
        head = f"{prefix}.{site.cluster}" if prefix else site.cluster
        self.topics = topics or [f"{head}.{each}" for each in SONAR_TYPES]
        self.pattern = pattern
        self.group = group
        self._offsets = Offsets()
        self._consumer: AIOKafkaConsumer | None = None
        self._committer: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()

    async def __aexit__(self, *exit_: object) -> None:
        if self._consumer is None:
            return
        if self._committer is not None:
            self._committer.cancel()
            await asyncio.gather(self._committer, return_exceptions=True)
            await self._commit()
        with contextlib.suppress(KafkaError):
            await self._consumer.stop()
        self._consumer = None

    async def check(self) -> None:
        await check(self.broker)

    def stop(self) -> None:
        self._stopped.set()

    async def batches(self, scope: Scope = Scope.RECORD) -> AsyncIterator[Batch[Any]]:
        self.telemetry.await_broker(self, self.broker.url)
        consumer = self._consumer = await self._connected(scope)
        self.telemetry.reached(self)
        if consumer is not None and self.group:
            self._committer = background(self._keep_committing(), "ccpipe-commit")
        while consumer is not None and not self._stopped.is_set():
            try:
                found = await consumer.getmany(
                    timeout_ms=int(POLL_SECONDS * 1000), max_records=FETCH
                )
            except KafkaError as error:
                raise explain(error, self.broker) from None
            for partition, messages in found.items():
                for batch in self._batches([_arrived(partition, each) for each in messages]):
                    yield batch

    async def _connected(self, scope: Scope) -> AIOKafkaConsumer | None:
        """Join the group, or wait until that is possible; None if stopped before."""
        is_reported = False
        while not self._stopped.is_set():
            try:
                return await self._started(scope)
            except UnavailableError as error:
                self.telemetry.count(self.telemetry.bus_errors, "connection")
                if not is_reported:
                    log.warning("%s; retrying until it is reachable", error)
                is_reported = True
            await wait_for_event(self._stopped, RETRY_SECONDS)
        return None

    def _batches(self, arrived: list[KafkaMessage]) -> Iterator[Batch[Any]]:
        for each in arrived:  # before any of them can be acknowledged
            self._offsets.hand_over(each.partition, each.offset)
        first = 0
        for records, count in self.codec.decode(arrived):
            messages = arrived[first : first + count]
            ack = functools.partial(self._acknowledge, messages) if self.group else None
            yield Batch(records, ack)
            first += count

    async def _acknowledge(self, arrived: list[KafkaMessage]) -> None:
        for each in arrived:
            self._offsets.acknowledge(each.partition, each.offset)

    async def _started(self, scope: Scope) -> AIOKafkaConsumer:
        if self.group and scope > Scope.RECORD:
            await self._refuse_others()
        consumer = AIOKafkaConsumer(
            client_id=f"{self.site.cluster}/{self.site.hostname}",
            group_id=self.group or None,
            enable_auto_commit=False,
            auto_offset_reset="earliest" if self.group else "latest",
            max_poll_interval_ms=BUSY_SECONDS * 1000,
            **self.broker.options(),
        )
        given = {"pattern": self.pattern} if self.pattern else {"topics": self.topics}
        consumer.subscribe(**given, listener=_Listener(self))
        try:
            await consumer.start()
        except KafkaError as error:
            await consumer.stop()
            raise await explain_start(error, self.broker) from None
        return consumer

    async def _refuse_others(self) -> None:
        async with administration(self.broker) as admin:
            [described] = await admin.describe_consumer_groups([self.group])
        if described.groups[0][_MEMBERS]:
            raise ConfigError(
                f"group: another process is a member of {self.group!r}, and a translator of this "
                "recipe must see all messages"
            )

    async def _keep_committing(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_SECONDS)
            await self._commit()

    async def _commit(self) -> None:
        """Commit stored messages; on failure they are redelivered."""
        assert self._consumer is not None
        if positions := self._offsets.positions():
            try:
                await self._consumer.commit(positions)
            except KafkaError as error:
                log.warning("%s", explain(error, self.broker))
            else:
                self._offsets.commit(positions)

    async def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit stored messages of partitions that may be reassigned."""
        if self.group and self._consumer is not None:
            await self._commit()
        self._offsets.forget(partitions)


_MEMBERS = 5
"""Fields of a described group: error, name, state, protocol type, protocol, members (KIP-133)."""


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka ships no types
    def __init__(self, source: KafkaSource) -> None:
        self.source = source

    @guarded
    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self.source.give_up(revoked)

    @guarded
    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        names = sorted(f"{each.topic}[{each.partition}]" for each in assigned)
        log.info("%s: reading %s", self.source.broker.url, ", ".join(names) or "nothing yet")


def _arrived(partition: TopicPartition, message: Any) -> KafkaMessage:
    milliseconds = message.timestamp
    arrival = milliseconds * 10**6 if milliseconds > 0 else time.time_ns()
    return KafkaMessage(message.topic, message.value or b"", arrival, partition, message.offset)
