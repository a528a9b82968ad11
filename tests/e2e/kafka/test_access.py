"""A real Kafka with access control: TLS, passwords by each mechanism, reported refusals."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.kafka.broker import KafkaBroker
from ccpipe.bus.kafka.sink import KafkaSink
from ccpipe.bus.kafka.source import KafkaSource
from ccpipe.config import Site, to_struct
from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import metric
from ccpipe.telemetry import Telemetry
from tests.bus.kafka.conftest import NOON, read_from
from tests.certificates import Certificates, certificates
from tests.servers.kafka import PASSWORD, USER, Kafka

SITE = Site(cluster="secure", hostname="n1")
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class Secure(NamedTuple):
    """A broker and what its clients need."""

    kafka: Kafka
    tls: Certificates
    directory: Path

    def broker(self, listener: str, *, password: str = PASSWORD, **options: Any) -> KafkaBroker:
        table: dict[str, Any] = {"servers": [f"127.0.0.1:{self.kafka.ports[listener]}"]}
        table["timeout"] = "30s"
        if listener.endswith("ssl"):
            table |= {"tls": True, "ca_file": str(self.tls.ca)}
        if listener.startswith("sasl"):
            secret = self.directory / "password"
            secret.write_text(f"{password}\n")
            table |= {"user": USER, "password_file": str(secret)}
        return to_struct(table | options, KafkaBroker, where="test")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    directory = tmp_path_factory.mktemp("secure-kafka")
    tls = certificates(directory)
    kafka = Kafka(directory, tls)
    asyncio.run(kafka.start())
    yield Secure(kafka, tls, directory)
    kafka.stop()


async def both_ways(broker: KafkaBroker, topic: str) -> None:
    site = msgspec.structs.replace(SITE, cluster=topic)
    sent = [metric("m", 1.0, time=NOON, tags={"cluster": topic, "hostname": "n1"})]
    async with KafkaSink(site=site, broker=broker, codec=LineCodec()) as sink:
        await sink.check()
        await sink.write(to_lines(sent))
    options: dict[str, Any] = {"group": "g", "topics": [f"{topic}.metrics"]}
    source = KafkaSource(site=site, telemetry=Telemetry(), broker=broker)
    await source.check()
    assert await read_from(broker, site, 1, codec=LineCodec(), **options) == sent


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["sasl_ssl", "sasl_plaintext"])
async def test_kafka_accepts_password_by_every_mechanism(
    secure: Secure, listener: str, mechanism: str
) -> None:
    """With TLS and without; the password is read from its file."""
    broker = secure.broker(listener, mechanism=mechanism)
    await both_ways(broker, f"{listener}-{mechanism}".lower())


async def test_client_presents_its_certificate(secure: Secure) -> None:
    """If the broker requires one; without it the client is refused."""
    own = {"cert_file": str(secure.tls.cert), "key_file": str(secure.tls.key)}
    await both_ways(secure.broker("ssl", **own), "ssl")
    with pytest.raises(UnavailableError, match="127"):
        await KafkaSink(site=SITE, broker=secure.broker("ssl")).check()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_wrong_password_is_denied(secure: Secure, mechanism: str) -> None:
    """At once, by source, sink and ``check()``, since retrying is useless."""
    broker = secure.broker("sasl_ssl", password="wrong", mechanism=mechanism)  # noqa: S106
    sink = KafkaSink(site=SITE, broker=broker)
    source = KafkaSource(site=SITE, telemetry=Telemetry(), broker=broker)
    for part in (sink, source):
        with pytest.raises(DeniedError, match="Authentication"):
            await part.check()
    with pytest.raises(DeniedError, match="Authentication"):
        async with sink:
            pass
    async with source:
        with pytest.raises(DeniedError, match="Authentication"):
            await anext(source.batches())


async def test_server_of_unknown_authority_is_unavailable(secure: Secure, tmp_path: Path) -> None:
    """The reason names the certificate; it may be renewed, so it is retried."""
    other = certificates(tmp_path)
    broker = secure.broker("sasl_ssl", ca_file=str(other.ca))
    with pytest.raises(UnavailableError, match="(?i)certificate verify failed"):
        await KafkaSink(site=SITE, broker=broker).check()


# aiokafka may leave the socket of a failed handshake to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_tls_to_plain_listener_is_unavailable(secure: Secure) -> None:
    """The reason is reported."""
    broker = secure.broker(
        "sasl_ssl", servers=[f"127.0.0.1:{secure.kafka.ports['sasl_plaintext']}"]
    )
    with pytest.raises(UnavailableError, match="127"):
        await KafkaSink(site=SITE, broker=broker).check()
