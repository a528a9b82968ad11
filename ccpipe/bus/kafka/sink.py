"""Records to Kafka."""

import asyncio
import contextlib
from typing import Any, Literal, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from ccpipe.bus.codecs import Codec, Packing
from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.kafka.broker import (
    KafkaBroker,
    check,
    explain,
    explain_start,
    keyed_subjects,
    topic_and_key,
)
from ccpipe.config import Site, Size
from ccpipe.errors import UnavailableError
from ccpipe.pipeline import Limits, Sink
from ccpipe.process.background import background
from ccpipe.records import Records

OVERHEAD = 1024
"""Bytes of a message reserved for its key and Kafka's framing."""


class KafkaSink(Sink[Any]):
    """Publishes records on the topics of their kind, as Sonar does: the key is the node.

    A write returns when all in-sync replicas have stored every message. Messages resent after a
    lost connection are stored once while this process lives; after a restart they may be
    duplicated.
    """

    limits = Limits(max_wait=0.0)

    def __init__(
        self,
        *,
        site: Site,
        broker: KafkaBroker = KafkaBroker(),  # noqa: B008 - frozen
        codec: Codec[Any] | None = None,
        topics: dict[str, str] | None = None,
        prefix: str = "",
        compression: Literal["snappy", "gzip", "lz4", "zstd", "none"] = "snappy",
        max_lines: int = 500,
        max_bytes: Size = Size(64 * 2**10),
        max_message_bytes: Size = Size(2**20),
    ) -> None:
        """Choose the cluster, the topics and the size of messages.

        Parameters
        ----------
        broker
            Address and credentials of the cluster; see the table below.
        codec
            Message format: ``sonar`` (default) or ``line``.
        topics
            Custom topic names: templates keyed by ``sonar``, ``metrics``, ``events``, ``log``.
        prefix
            Prefix of every topic, separated by a dot.
        compression
            Compression of batches.
        max_lines
            Maximum number of lines in a line protocol message.
        max_bytes
            Maximum size of a line protocol message, unless a single line is longer.
        max_message_bytes
            The brokers' size limit, ``message.max.bytes``.

        """
        self.broker = broker
        self.codec: Codec[Any] = codec or SonarCodec()
        self.takes = self.codec.records
        self.prefix = prefix
        self.subjects = keyed_subjects(site, topics or {})
        limit = max_message_bytes - OVERHEAD
        self.packing = Packing(max_lines, min(max_bytes, max_message_bytes), limit)
        self.options = {
            "client_id": f"{site.cluster}/{site.hostname}",
            "compression_type": None if compression == "none" else compression,
            "max_request_size": int(max_message_bytes),
            "max_batch_size": min(int(max_message_bytes), 256 * 2**10),
            "enable_idempotence": True,
            "acks": "all",
        }
        self._producer: AIOKafkaProducer | None = None
        self._stopping: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        with contextlib.suppress(UnavailableError):
            await self._started()
        return self

    async def __aexit__(self, *exit_: object) -> None:
        if self._producer is not None:
            self._stop(self._producer)
        if self._stopping:
            await asyncio.wait(self._stopping)

    async def check(self) -> None:
        await check(self.broker)

    async def write(self, records: Records) -> None:
        messages = [
            (*topic_and_key(subject, self.prefix), payload)
            for subject, payload in self.codec.encode(records, self.subjects, self.packing)
        ]
        producer = await self._started()
        sent: list[asyncio.Future[Any]] = []
        try:
            for topic, key, payload in messages:
                sent.append(await producer.send(topic, payload, key=key))
            await asyncio.gather(*sent)
        except KafkaError as error:
            await asyncio.gather(*sent, return_exceptions=True)
            await asyncio.shield(self._stop(producer))  # one that failed may not recover
            raise explain(error, self.broker) from None

    async def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            producer = AIOKafkaProducer(**self.options, **self.broker.options())
            try:
                await producer.start()
            except asyncio.CancelledError:
                self._stop(producer)
                raise
            except KafkaError as error:
                await asyncio.shield(self._stop(producer))
                raise await explain_start(error, self.broker) from None
            self._producer = producer
        return self._producer

    def _stop(self, producer: AIOKafkaProducer) -> asyncio.Task[None]:
        """Stop a producer, whatever time limit ends the caller: half stopped it stays connected."""
        if producer is self._producer:
            self._producer = None
        stopping = background(_stopped(producer), "ccpipe-kafka-stop")
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)
        return stopping


async def _stopped(producer: AIOKafkaProducer) -> None:
    with contextlib.suppress(KafkaError):
        await producer.stop()
