"""How topics are called, and what options go together."""

import ssl
from pathlib import Path

import msgspec
import pytest
from aiokafka import errors
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.kafka.broker import KafkaBroker, explain, keyed_subjects, topic_and_key
from ccpipe.bus.subjects import escape
from ccpipe.config import Site
from ccpipe.errors import (
    CcpipeError,
    ConfigError,
    DeniedError,
    EncodeError,
    RejectedError,
    UnavailableError,
)
from ccpipe.message import metric


def test_topics_are_sonars_and_keys_are_nodes() -> None:
    """A cluster's dots stand in the topic as they are; the key is the node."""
    subjects = keyed_subjects(Site(cluster="fox.no", hostname="master"), {})
    sample = subjects.templates["sonar"].format(
        cluster=escape("fox.no"), name="sample", hostname="c1-6", method=""
    )
    assert topic_and_key(sample) == ("fox.no.sample", b"c1-6")
    assert topic_and_key(sample, "hpc") == ("hpc.fox.no.sample", b"c1-6")
    load = metric("cpu_load", 1.0, time=1, tags={"hostname": "n 1"})
    assert topic_and_key(subjects.of_message(load)) == ("fox.no.metrics", b"n 1")


def test_topics_may_be_named_by_the_site() -> None:
    site = Site(cluster="fox", hostname="n1")
    subjects = keyed_subjects(site, {"metrics": "all-{cluster}"})
    assert topic_and_key(subjects.of_message(metric("m", 1.0, time=1, tags={})))[0] == "all-fox"
    with pytest.raises(ConfigError, match="metric"):
        keyed_subjects(site, {"metric": "x"})


@given(st.text(min_size=1), st.text())
def test_a_topic_is_one_or_an_error(cluster: str, node: str) -> None:
    """Names that Kafka does not allow are errors; keys are the nodes' names, whatever they hold."""
    try:
        topic, key = topic_and_key(f"{escape(cluster)}.sample {escape(node)}")
    except (EncodeError, UnicodeEncodeError):
        return
    assert topic == f"{cluster}.sample"
    assert key.decode() == (node or "%")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"servers": []}, "at least one"),
        ({"user": "me"}, "user and password_file go together"),
        ({"ca_file": "x"}, "need tls"),
        ({"mechanism": "GSSAPI"}, "mechanism"),
    ],
)
def test_options_that_cannot_be(options: dict[str, object], reason: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=reason):
        msgspec.convert(options, KafkaBroker)


def test_what_the_client_is_told(tmp_path: Path) -> None:
    """TLS and SASL, alone and together; the password is read from its file."""
    secret = tmp_path / "secret"
    secret.write_text("pass\n")
    assert KafkaBroker().options()["security_protocol"] == "PLAINTEXT"
    tls = KafkaBroker(tls=True).options()
    assert tls["security_protocol"] == "SSL"
    assert tls["ssl_context"].verify_mode is ssl.CERT_REQUIRED
    mine = {"user": "fox", "password_file": str(secret), "mechanism": "SCRAM-SHA-512"}
    options = msgspec.convert({**mine, "tls": True}, KafkaBroker).options()
    assert options["security_protocol"] == "SASL_SSL"
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("fox", "pass")
    assert msgspec.convert(mine, KafkaBroker).options()["security_protocol"] == "SASL_PLAINTEXT"
    with pytest.raises(ConfigError, match=r"broker\.ca_file"):
        KafkaBroker(tls=True, ca_file="/none").options()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.MessageSizeTooLargeError(), RejectedError),
        (errors.TopicAuthorizationFailedError(), DeniedError),
        (errors.InvalidTopicError(), EncodeError),
        (errors.KafkaTimeoutError(), UnavailableError),
        (errors.UnknownTopicOrPartitionError(), UnavailableError),
    ],
)
def test_what_an_error_means(error: Exception, expected: type[CcpipeError]) -> None:
    """Only what speaks of the message condemns it."""
    assert type(explain(error, KafkaBroker())) is expected
