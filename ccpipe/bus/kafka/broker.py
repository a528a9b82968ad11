"""Connection options of a Kafka cluster, topic names, and translation of its errors."""

import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal
from urllib.parse import unquote

import msgspec
from aiokafka import errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import create_conn

from ccpipe.bus.subjects import TEMPLATES, Subjects
from ccpipe.config import Duration, Site, read_secret
from ccpipe.errors import (
    CcpipeError,
    DeniedError,
    EncodeError,
    RejectedError,
    UnavailableError,
    system_reason,
)
from ccpipe.tls import tls_context

SONAR_TYPES = ("sample", "sysinfo", "job", "cluster")

TOPICS = TEMPLATES | {"sonar": "{cluster}.{name}"}
"""Topics are named after subjects, except Sonar's, which has its own."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_KEY = " {hostname}"
"""Appended to each template: a space, which no escaped name contains, and the message key."""


class KafkaBroker(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Connection to a Kafka cluster. Secrets are read from files only."""

    servers: tuple[str, ...] = ("127.0.0.1:9092",)
    """Brokers of the cluster, as ``host:port``; one reachable broker suffices."""
    tls: bool = False
    """Use TLS."""
    ca_file: str = ""
    """CA certificate of the servers, if it is signed by a private CA."""
    cert_file: str = ""
    """Client certificate, if the servers require one."""
    key_file: str = ""
    """Private key of the client certificate."""
    user: str = ""
    """User name, if the cluster requires one (SASL)."""
    password_file: str = ""
    """File containing the user's password."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """SASL mechanism."""
    timeout: Duration = Duration(10)
    """Time limit for a broker's response."""

    def __post_init__(self) -> None:
        if not self.servers:
            raise ValueError("servers: at least one is needed")
        if bool(self.user) != bool(self.password_file):
            raise ValueError("user and password_file go together")
        if not self.tls and (self.ca_file or self.cert_file):
            raise ValueError("ca_file and cert_file need tls = true")

    @property
    def url(self) -> str:
        return ", ".join(self.servers)

    def options(self) -> dict[str, Any]:
        """Return the options as aiokafka's clients take them; raises ConfigError for a bad file."""
        security = ("SASL_" if self.user else "") + ("SSL" if self.tls else "PLAINTEXT")
        options: dict[str, Any] = {
            "bootstrap_servers": list(self.servers),
            "request_timeout_ms": int(self.timeout * 1000),
            "security_protocol": security,
        }
        if self.tls:
            context = tls_context(self.ca_file, self.cert_file, self.key_file, "broker.")
            options["ssl_context"] = context
        if self.user:
            options["sasl_mechanism"] = self.mechanism
            options["sasl_plain_username"] = self.user
            options["sasl_plain_password"] = read_secret("broker.password_file", self.password_file)
        return options


def keyed_subjects(site: Site, topics: Mapping[str, str]) -> Subjects:
    """Return topic templates, overridden by `topics`, each with the message key appended."""
    subjects = Subjects.of(site, dict(topics))
    own = {name: text for name, text in subjects.templates.items() if text != TEMPLATES.get(name)}
    templates = {name: text + _KEY for name, text in {**TOPICS, **own}.items()}
    return Subjects(subjects.cluster, subjects.hostname, templates)


def topic_and_key(subject: str, prefix: str = "") -> tuple[str, bytes]:
    """Split a subject of ``keyed_subjects`` into topic and key; raises EncodeError.

    Kafka allows dots in topic names, so that a cluster's name is not escaped.
    """
    escaped, _, key = subject.partition(" ")
    topic = unquote(f"{prefix}.{escaped}" if prefix else escaped)
    if not _TOPIC.fullmatch(topic):
        raise EncodeError(
            f"{topic!r} is not a valid Kafka topic (letters, digits, '.', '_' and '-')"
        )
    return topic, unquote(key).encode()


@contextlib.asynccontextmanager
async def administration(broker: KafkaBroker) -> AsyncIterator[AIOKafkaAdminClient]:
    """Connect an administration client; raises UnavailableError or DeniedError."""
    admin = AIOKafkaAdminClient(**broker.options())
    try:
        await admin.start()
        yield admin
    except errors.KafkaError as error:
        raise await explain_start(error, broker) from None
    finally:
        await admin.close()


async def check(broker: KafkaBroker) -> None:
    async with administration(broker) as admin:
        await admin.describe_cluster()


_REJECTED = (
    errors.MessageSizeTooLargeError,
    errors.RecordTooLargeError,
    errors.RecordListTooLargeError,
)
_DENIED = (
    errors.TopicAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.AuthenticationFailedError,
    errors.SaslAuthenticationFailed,
    errors.UnsupportedSaslMechanismError,
)


async def explain_start(error: Exception, broker: KafkaBroker) -> CcpipeError:
    """Determine why a client did not start.

    aiokafka reports only that no broker could be reached and logs the reason, so each broker is
    tried again: a wrong password must end a bridge, an unavailable broker must not.
    """
    if not isinstance(error, errors.KafkaConnectionError):
        return explain(error, broker)
    options = broker.options()
    found: list[CcpipeError] = []
    for server in options.pop("bootstrap_servers"):
        host, _, port = server.rpartition(":")
        try:
            connection = await create_conn(host.strip("[]"), int(port), **options)
        except (errors.KafkaError, OSError, ValueError) as reason:  # includes TimeoutError
            found.append(explain(reason, broker))
        else:
            connection.close()
    denied = [each for each in found if isinstance(each, DeniedError)]
    return next(iter(denied or found), explain(error, broker))


def explain(error: Exception, broker: KafkaBroker) -> CcpipeError:
    name = f"{type(error).__name__}: {error}"
    reason = f"{broker.url}: {system_reason(error) if isinstance(error, OSError) else name}"
    if isinstance(error, _REJECTED):
        return RejectedError(reason)
    if isinstance(error, _DENIED):
        return DeniedError(reason)
    if isinstance(error, errors.InvalidTopicError):
        return EncodeError(reason)
    return UnavailableError(reason)
