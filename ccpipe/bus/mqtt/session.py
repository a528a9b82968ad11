"""One connection to an MQTT broker, until it is lost.

aiomqtt acknowledges messages when they arrive and hides why a publication was refused; the
underlying paho client is configured here to do better.

Topics are subjects, ``fox/metrics`` for ``fox.metrics``: a level is a token, with a name escaped as
in subjects, and so are ``+``, ``#`` and ``$``, which MQTT reserves.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import msgspec

from ccpipe.bus.subjects import escape
from ccpipe.config import Duration, mask, read_secret
from ccpipe.errors import (
    CcpipeError,
    ConfigError,
    DeniedError,
    EncodeError,
    MissingExtra,
    RejectedError,
    TimedOutError,
    UnavailableError,
    system_reason,
)
from ccpipe.message import Message
from ccpipe.process.background import guarded_call
from ccpipe.tls import tls_context

try:
    import aiomqtt
    from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode
except ImportError:
    raise MissingExtra("aiomqtt", "mqtt") from None

IN_FLIGHT = 32
"""Maximum number of published messages that await acknowledgement."""

_PORTS = {"mqtt": 1883, "mqtts": 8883}

_DENIED = {134, 135, 138, 140}
"""Bad user name or password, not authorized, banned; paho translates the codes of MQTT 3.1.1."""
_ABOUT_THE_MESSAGE = {144, 149, 153}
"""Invalid topic name, packet too large, invalid payload format."""
_ABOUT_A_PACKET = {129, 130}
"""Malformed packet, protocol error: while messages are published, one of them (Mosquitto)."""
_FAILURE = 128
"""Reason codes from this value on are failures."""


class MqttBroker(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Connection to an MQTT broker. Secrets are read from files only."""

    url: str = "mqtt://127.0.0.1:1883"
    """Address; ``mqtts://`` for TLS, with default port 8883."""
    user: str = ""
    """User name, if the broker requires one."""
    password_file: str = ""
    """File containing the user's password."""
    ca_file: str = ""
    """CA certificate of the server, if it is signed by a private CA."""
    cert_file: str = ""
    """Client certificate, if the server requires one."""
    key_file: str = ""
    """Private key of the client certificate."""
    protocol: Literal["5", "3.1.1"] = "5"
    """MQTT version; nats-server supports 3.1.1 only."""
    timeout: Duration = Duration(10)
    """Time limit for the broker's response; that for acknowledgements grows while it is slower."""

    def __post_init__(self) -> None:
        address = urlsplit(self.url)
        if address.scheme not in _PORTS or not address.hostname:
            raise ValueError(f"{mask(self.url, 'url')!r} is not an mqtt:// or mqtts:// address")
        if address.username or address.password:
            raise ValueError("url must not contain a password; use user and password_file")
        if bool(self.user) != bool(self.password_file):
            raise ValueError("user and password_file go together")
        if (self.ca_file or self.cert_file) and address.scheme != "mqtts":
            raise ValueError(
                "ca_file and cert_file need mqtts://, without which nothing is encrypted"
            )


class Persistence(msgspec.Struct, frozen=True):
    """The session that the broker keeps for a disconnected client."""

    identifier: str = ""
    """Client id, by which the broker recognises it; empty: nothing is kept."""
    seconds: int = 0
    """How long; only MQTT 5 supports it."""
    in_flight: int = 65535
    """Maximum number of unacknowledged messages sent by the broker; MQTT 5 only."""


class Session:
    """One connection, as an async context manager; it does not reconnect."""

    def __init__(
        self,
        broker: MqttBroker,
        persistence: Persistence = Persistence(),  # noqa: B008 - frozen
        receive: Callable[[Any], None] | None = None,
    ) -> None:
        """Prepare; `receive` gets each message, which must be acknowledged with ``ack()``."""
        self.broker = broker
        self._client = _client(broker, persistence)
        # The only private attribute of aiomqtt used here; its version is bounded for that reason.
        self._paho = self._client._client  # noqa: SLF001
        if receive is not None:
            self._paho.manual_ack_set(on=True)
            self._paho.on_message = guarded_call(
                lambda _client, _userdata, message: receive(message)
            )
        self._published = self._paho.on_publish
        self._paho.on_publish = guarded_call(self._note_refusal)
        self._refusals: list[Any] = []
        self._lost: asyncio.Task[None] | None = None
        self._is_publishing = False
        self.is_subscribed = False
        """Whether the broker has confirmed a subscription."""

    async def __aenter__(self) -> Self:
        """Connect; raises UnavailableError or DeniedError."""
        try:
            await self._client.__aenter__()
        except (aiomqtt.MqttError, OSError) as error:
            raise self._explain(error) from None
        self._lost = asyncio.create_task(self._wait_until_lost(), name="ccpipe-mqtt")
        return self

    async def __aexit__(self, *exit_: object) -> None:
        assert self._lost is not None
        self._lost.cancel()
        await asyncio.gather(self._lost, return_exceptions=True)
        with contextlib.suppress(aiomqtt.MqttError):
            await self._client.__aexit__(None, None, None)

    @property
    def is_lost(self) -> bool:
        return self._lost is None or self._lost.done()

    async def wait(self) -> None:
        """Wait until the connection is lost; raises the reason."""
        assert self._lost is not None
        await asyncio.shield(self._lost)

    async def subscribe(self, filters: Sequence[str]) -> None:
        """Subscribe with QoS 1; raises UnavailableError or DeniedError."""
        try:
            codes = await self._client.subscribe([(each, 1) for each in filters])
        except aiomqtt.MqttError as error:
            raise self._explain(error) from None
        except ValueError as error:
            raise ConfigError(f"topics: {', '.join(filters)}: {error}") from None
        for each, code in zip(filters, codes, strict=False):
            if getattr(code, "value", code) >= _FAILURE:  # type: ignore[operator]
                raise DeniedError(f"{self.broker.url}: subscribing to {each}: {code}")
        self.is_subscribed = True

    def ack(self, message: Any) -> None:
        self._paho.ack(message.mid, message.qos)

    async def publish(
        self, messages: Sequence[tuple[str, bytes]], seconds: float, *, retain: bool = False
    ) -> None:
        """Publish with QoS 1, in order, until the broker has acknowledged all.

        Raises UnavailableError if the connection is lost first, TimedOutError if a few are not
        acknowledged within `seconds`, DeniedError or RejectedError if one is refused (MQTT 5 only).
        """
        self._is_publishing = True
        try:
            for start in range(0, len(messages), IN_FLIGHT):
                window = messages[start : start + IN_FLIGHT]
                await self._publish_window(window, seconds, retain=retain)
                for code in self._refusals:
                    raise self._refusal(code)
        finally:
            self._is_publishing = False

    async def _publish_window(
        self, window: Sequence[tuple[str, bytes]], seconds: float, *, retain: bool
    ) -> None:
        assert self._lost is not None
        # They are sent in this order, and each waits for its acknowledgement.
        tasks = [
            asyncio.create_task(
                self._client.publish(topic, payload, qos=1, retain=retain, timeout=math.inf)
            )
            for topic, payload in window
        ]
        stored = asyncio.gather(*tasks)
        either: set[asyncio.Future[Any]] = {stored, self._lost}
        try:
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not stored.done():
                if not self._lost.done():
                    raise TimedOutError(
                        f"{self.broker.url}: messages were not acknowledged within {seconds:g} s"
                    )
                await self.wait()
                raise UnavailableError(f"{self.broker.url}: the broker closed the connection")
            stored.result()
        except aiomqtt.MqttError as error:
            raise self._explain(error) from None
        except ValueError as error:  # a topic or payload that MQTT cannot carry
            raise EncodeError(f"{self.broker.url}: {error}") from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(stored, *tasks, return_exceptions=True)

    def _note_refusal(
        self, client: Any, userdata: Any, mid: int, code: Any, properties: Any
    ) -> None:
        if code.value >= _FAILURE:
            self._refusals.append(code)
        assert self._published is not None
        self._published(client, userdata, mid, code, properties)  # type: ignore[call-arg]

    def _refusal(self, code: Any) -> CcpipeError:
        self._refusals.clear()
        reason = f"{self.broker.url}: the broker refused a message: {code}"
        if code.value in _DENIED:
            return DeniedError(reason)
        return (
            RejectedError(reason) if code.value in _ABOUT_THE_MESSAGE else UnavailableError(reason)
        )

    async def _wait_until_lost(self) -> None:
        try:
            async for _ in self._client.messages:
                pass  # not used: see `receive`
        except aiomqtt.MqttError as error:
            raise self._explain(error.__cause__ or error) from None

    def _explain(self, error: BaseException) -> CcpipeError:
        code = getattr(error, "rc", None)
        value = code.value if isinstance(code, ReasonCode) else None  # else an error of paho itself
        cause = error if isinstance(error, OSError) else error.__cause__
        text = system_reason(cause if isinstance(cause, OSError) else error)
        reason = f"{self.broker.url}: {text or type(error).__name__}"
        if value in _DENIED:
            return DeniedError(reason)
        about = _ABOUT_THE_MESSAGE | (_ABOUT_A_PACKET if self._is_publishing else set())
        if value in about:  # the broker closes the connection over it
            return RejectedError(reason)
        return UnavailableError(reason)


def _client(broker: MqttBroker, persistence: Persistence) -> aiomqtt.Client:
    address = urlsplit(broker.url)
    is_v5 = broker.protocol == "5"
    durable = bool(persistence.identifier)
    client = aiomqtt.Client(
        address.hostname or "",
        address.port or _PORTS[address.scheme],
        identifier=persistence.identifier or None,
        username=broker.user or None,
        password=read_secret("broker.password_file", broker.password_file) if broker.user else None,
        protocol=aiomqtt.ProtocolVersion.V5 if is_v5 else aiomqtt.ProtocolVersion.V311,
        clean_session=None if is_v5 else not durable,
        clean_start=not durable if is_v5 else MQTT_CLEAN_START_FIRST_ONLY,
        properties=_properties(persistence) if is_v5 else None,
        timeout=float(broker.timeout),
        max_inflight_messages=IN_FLIGHT,
        tls_context=tls_context(broker.ca_file, broker.cert_file, broker.key_file, "broker.")
        if address.scheme == "mqtts"
        else None,
    )
    client.pending_calls_threshold = IN_FLIGHT  # aiomqtt warns above it
    return client


def _properties(persistence: Persistence) -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.ReceiveMaximum = persistence.in_flight
    if persistence.identifier:
        properties.SessionExpiryInterval = persistence.seconds
    return properties


_RESERVED = str.maketrans({"+": "%2B", "#": "%23", "$": "%24"})
_WILDCARDS = {"*": "+", ">": "+/#"}  # `>` matches one token or more, `#` also none


def topic_of(subject: str, prefix: str = "") -> str:
    """Return the topic for a subject, below a prefix such as ``hpc/monitoring``."""
    return _below(prefix, subject.replace(".", "/").translate(_RESERVED))


def filter_of(pattern: str, prefix: str = "") -> str:
    """Return the topic filter for a pattern of subjects with NATS's wildcards."""
    levels = (_WILDCARDS.get(token) or topic_of(token) for token in pattern.split("."))
    return _below(prefix, "/".join(levels))


def latest_topic(metric: Message, cluster: str) -> str:
    """Return the topic of the latest value of a metric's series.

    ``<cluster>/latest/<hostname>/<metric>``, then ``/<type>/<type-id>`` where the type is not the
    node and ``/<stype>/<stype-id>`` where there is one.
    """
    tags = metric.tags
    levels = [tags.get("cluster") or cluster, "latest", metric.hostname, metric.name]
    for kind in ("type", "stype"):
        if (value := tags.get(kind)) and (kind, value) != ("type", "node"):
            levels += [value, tags.get(f"{kind}-id", "")]
    return "/".join(escape(level).translate(_RESERVED) for level in levels)


def _below(prefix: str, topic: str) -> str:
    return f"{prefix.strip('/')}/{topic}" if prefix else topic
