"""Messages from an MQTT broker."""

import asyncio
import functools
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple, Self

from ccpipe.bus.codecs import Codec
from ccpipe.bus.codecs.line import JOINED_BYTES, LineCodec
from ccpipe.bus.mqtt.session import MqttBroker, Persistence, Session, filter_of
from ccpipe.bus.subjects import Subjects, escape
from ccpipe.config import Duration, Site
from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.pipeline import Batch, Scope, SharedSource, wait_for_event
from ccpipe.process.background import end_tasks
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

PENDING_BYTES = 64 * 2**20
"""Further messages with QoS 0 are dropped and counted, as nothing can slow their senders down."""
RECONNECT_SECONDS = 1.0
MAX_IN_FLIGHT = 65535


class MqttMessage(NamedTuple):
    """A message received from the broker."""

    subject: str
    payload: bytes
    arrival: int
    session: Session
    message: Any


class MqttSource(SharedSource[Any]):
    """Yields messages; small ones that arrive together form one batch.

    They are subscribed to with QoS 1 and acknowledged when their records are stored downstream.
    With a `durable` name the broker keeps the subscription and missed messages while this process
    is disconnected. Messages that it does not keep, or that are published with QoS 0, are lost.
    """

    def __init__(
        self,
        *,
        site: Site,
        telemetry: Telemetry,
        broker: MqttBroker = MqttBroker(),  # noqa: B008 - frozen
        codec: Codec[Any] | None = None,
        topics: list[str] | None = None,
        prefix: str = "",
        durable: str = "",
        queue: str = "",
        session_expiry: Duration = Duration(86400),
        max_in_flight: int = 1000,
        retained: bool = False,
    ) -> None:
        """Choose the broker, the topics and how messages are remembered.

        Parameters
        ----------
        broker
            Address and credentials of the broker; see the table below.
        codec
            Message format: ``line`` (default) or ``sonar``.
        topics
            Names of subjects, such as ``metrics`` or ``events.job``, or plain topic filters.
            Default: ``metrics``, ``events`` and ``log``, or ``sonar`` with that codec.
        prefix
            Prefix of the topics derived from subject names, such as ``hpc/monitoring``.
        durable
            Name under which the broker keeps the subscription and missed messages. Two running
            processes must not share it.
        queue
            Name of a shared subscription (MQTT 5): bridges with the same name share the messages.
        session_expiry
            How long the broker keeps messages for a `durable` name (MQTT 5).
        max_in_flight
            Maximum number of unacknowledged messages (MQTT 5).
        retained
            Read the broker's retained values on each new connection.

        """
        if not 1 <= max_in_flight <= MAX_IN_FLIGHT:
            raise ConfigError(
                f"max_in_flight: {max_in_flight} is not between 1 and {MAX_IN_FLIGHT}"
            )
        if queue and broker.protocol != "5":
            raise ConfigError("queue: only MQTT 5 has shared subscriptions")
        self.telemetry = telemetry
        self.broker = broker
        self.codec: Codec[Any] = codec or LineCodec()
        self.gives = self.codec.records
        self.queue = queue
        topics = topics or list(self.gives.subjects)
        if not topics:
            raise ConfigError(f"topics: missing; {self.gives.name} have no default topics")
        self.filters = _filters(site, topics, prefix, queue)
        # Without a dot, which nats-server refuses.
        name = f"ccpipe-{escape(site.cluster)}-{escape(durable)}" if durable else ""
        self.persistence = Persistence(name, int(session_expiry), max_in_flight)
        self.retained = retained
        self._session: Session | None = None
        self._waiting: deque[MqttMessage] = deque()
        self._waiting_bytes = 0
        self._stopped = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.telemetry.await_broker(self, self.broker.url)
        self._task = asyncio.create_task(self._stay_connected(), name="ccpipe-mqtt-source")
        self._task.add_done_callback(lambda _: self._changed.set())
        return self

    async def __aexit__(self, *exit_: object) -> None:
        await end_tasks([self._task])

    async def check(self) -> None:
        async with Session(self.broker):
            pass

    def stop(self) -> None:
        self._stopped.set()
        self._changed.set()

    async def batches(self, scope: Scope = Scope.RECORD) -> AsyncIterator[Batch[Any]]:
        if self.queue and scope > Scope.RECORD:
            raise ConfigError("queue: a translator of this recipe must see all messages")
        while True:
            while self._waiting:
                for batch in self._batches(self._take()):
                    yield batch
            if self._task is not None and self._task.done():
                self._task.result()  # raises the error that ended it
            if self._stopped.is_set():
                return
            self._changed.clear()
            await self._changed.wait()

    def _take(self) -> list[MqttMessage]:
        taken: list[MqttMessage] = []
        size = 0
        while self._waiting and size < JOINED_BYTES:
            taken.append(self._waiting.popleft())
            size += len(taken[-1].payload)
        self._waiting_bytes -= size
        return taken

    def _batches(self, arrived: list[MqttMessage]) -> Iterator[Batch[Any]]:
        first = 0
        for records, count in self.codec.decode(arrived):
            messages = arrived[first : first + count]
            yield Batch(records, functools.partial(self._acknowledge, messages))
            first += count

    async def _acknowledge(self, arrived: list[MqttMessage]) -> None:
        # On a later connection the broker may reuse the id of a lost message.
        for each in arrived:
            if each.session is self._session:
                each.session.ack(each.message)

    async def _stay_connected(self) -> None:
        """Connect, subscribe and wait, repeatedly; ends if the broker refuses us."""
        is_reported = False
        while True:
            try:
                # Set before connecting: a broker with stored messages sends them at once.
                self._session = Session(self.broker, self.persistence, self._receive)
                async with self._session:
                    await self._session.subscribe(self.filters)
                    log.info("%s: subscribed to %s", self.broker.url, ", ".join(self.filters))
                    self.telemetry.reached(self)
                    is_reported = False
                    await self._session.wait()
            except UnavailableError as error:
                self.telemetry.count(self.telemetry.bus_errors, "connection")
                if not is_reported:
                    log.warning("%s; retrying until it is back", error)
                is_reported = True
            finally:
                self._session = None
            await wait_for_event(self._stopped, RECONNECT_SECONDS)

    def _receive(self, message: Any) -> None:
        session = self._session
        assert session is not None
        if message.retain and not self.retained:
            session.ack(message)
            return
        if message.qos == 0 and self._waiting_bytes + len(message.payload) > PENDING_BYTES:
            self.telemetry.count(self.telemetry.bus_errors, "slow_consumer")
            return
        arrived = MqttMessage(message.topic, message.payload, time.time_ns(), session, message)
        self._waiting.append(arrived)
        self._waiting_bytes += len(message.payload)
        self._changed.set()


def _filters(
    site: Site, topics: "tuple[str, ...] | list[str]", prefix: str, queue: str
) -> list[str]:
    subjects = Subjects.of(site)
    found: dict[str, None] = {}
    for topic in topics:
        if subjects.has(topic):
            found |= dict.fromkeys(filter_of(p, prefix) for p in subjects.patterns([topic]))
        else:
            found[topic] = None
    return [f"$share/{queue}/{each}" if queue else each for each in found]
