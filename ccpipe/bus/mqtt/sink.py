"""Records to an MQTT broker."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Self

from ccpipe.bus.codecs import Codec, Packing
from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.mqtt.session import MqttBroker, Session, latest_topic, topic_of
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site, Size
from ccpipe.errors import CcpipeError, ConfigError, RejectedError, TimedOutError, UnavailableError
from ccpipe.formats.lineprotocol import encode
from ccpipe.message import Kind, Message
from ccpipe.pipeline import Limits, TimedSink
from ccpipe.records import Records

REFUSALS = 3
"""Number of times in a row that the broker must close the connection over one record alone."""
PACKET = 256 * 2**20 - 2**16
"""Maximum payload of MQTT (section 2.1.4), minus space for the topic."""


class MqttSink(TimedSink[Any]):
    """Publishes records with QoS 1 on the topics of their kind.

    ``fox.metrics`` becomes ``fox/metrics``. A write returns when the broker has acknowledged every
    message; a broker without subscribers may still discard them. A message that is published again
    after a lost connection may arrive twice.
    """

    limits = Limits(max_wait=0.0)

    def __init__(
        self,
        *,
        site: Site,
        broker: MqttBroker = MqttBroker(),  # noqa: B008 - frozen
        codec: Codec[Any] | None = None,
        prefix: str = "",
        subjects: dict[str, str | dict[str, str]] | None = None,
        latest: bool = False,
        max_lines: int = 500,
        max_bytes: Size = Size(64 * 2**10),
        max_message_bytes: Size = Size(PACKET),
    ) -> None:
        """Choose the broker, the topics and the size of messages.

        Parameters
        ----------
        broker
            Address and credentials of the broker; see the table below.
        codec
            Message format: ``line`` (default) or ``sonar``.
        prefix
            Prefix of every topic, such as ``hpc/monitoring``.
        subjects
            Overrides of ``[bus.subjects]`` for what this sink publishes.
        latest
            Also publish the newest value of each metric's series as a retained message.
        max_lines
            Maximum number of records in a message.
        max_bytes
            Maximum size of a message, unless a single record is larger.
        max_message_bytes
            The broker's size limit; a record that exceeds it becomes a dead letter.

        """
        if latest and codec is not None and codec.records is not LineCodec.records:
            raise ConfigError("latest: only metrics have a latest value; use the codec 'line'")
        if set(prefix) & set("+#\0"):
            raise ConfigError(f"prefix: {prefix!r} is not a valid topic")
        self.broker = broker
        self.time_limit = float(broker.timeout)
        self.codec: Codec[Any] = codec or LineCodec()
        self.takes = self.codec.records
        self.prefix = prefix
        self.cluster = site.cluster
        self.subjects = Subjects.of(site, subjects)
        self.latest = latest
        self.packing = Packing(max_lines, min(max_bytes, max_message_bytes), max_message_bytes)
        self._session: Session | None = None
        self._refused = 0  # times in a row that the broker closed the connection over one record

    async def __aenter__(self) -> Self:
        with contextlib.suppress(UnavailableError):
            await self._connected()
        return self

    async def __aexit__(self, *exit_: object) -> None:
        if self._session is not None:
            await self._session.__aexit__(None, None, None)
            self._session = None

    async def check(self) -> None:
        async with Session(self.broker):
            pass

    async def write(self, records: Records) -> None:
        messages = [
            (topic_of(subject, self.prefix), payload)
            for subject, payload in self.codec.encode(records, self.subjects, self.packing)
        ]
        session = await self._connected()
        try:
            await session.publish(messages, self.time_limit)
            if self.latest:
                await session.publish(self._latest_values(records), self.time_limit, retain=True)
        except TimedOutError:
            await self.__aexit__()  # the next attempt does not wait behind these messages
            raise
        except RejectedError as error:
            self._refused = self._refused + 1 if session.is_lost and len(records) == 1 else 0
            if 0 < self._refused < REFUSALS:
                raise UnavailableError(str(error)) from None
            self._refused = 0
            raise
        self._refused = 0

    def _latest_values(self, records: Iterable[Message]) -> Sequence[tuple[str, bytes]]:
        """Return one line for each series: the one with the latest time, the last of equals."""
        newest: dict[str, Message] = {}
        for record in records:
            if record.kind is not Kind.METRIC:
                continue
            topic = topic_of(latest_topic(record, self.cluster), self.prefix)
            if topic not in newest or (newest[topic].time or 0) <= (record.time or 0):
                newest[topic] = record
        return [(topic, encode([each], precision="auto")) for topic, each in newest.items()]

    async def _connected(self) -> Session:
        if self._session is not None and self._session.is_lost:
            with contextlib.suppress(CcpipeError):
                await self._session.wait()  # raises an error that is not the broker's
            await self.__aexit__()
        if self._session is None:
            self._session = await Session(self.broker).__aenter__()
        return self._session
