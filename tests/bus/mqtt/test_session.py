"""The connection to a real Mosquitto: credentials, certificates, refusals."""

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.enums import MQTTErrorCode

from ccpipe.bus.mqtt.session import MqttBroker, Session, filter_of, latest_topic, topic_of
from ccpipe.bus.mqtt.sink import MqttSink
from ccpipe.bus.mqtt.source import MqttSource
from ccpipe.bus.subjects import escape, matches
from ccpipe.config import Duration, Site
from ccpipe.errors import ConfigError, DeniedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import metric
from ccpipe.telemetry import Telemetry
from tests.certificates import certificates
from tests.conftest import free_port, program
from tests.reading import Reader
from tests.servers.mosquitto import Mosquitto

METRIC = metric("m", 1.0, time=10**18, tags={"cluster": "fox.test", "hostname": "n1"})


async def test_session_logs_in_with_password(tmp_path: Path, fox: Site) -> None:
    """Valid credentials are accepted; others are denied before anything is read."""
    secret = tmp_path / "secret"
    secret.write_text("pass\n")
    users = tmp_path / "users"
    program("mosquitto_passwd", "mosquitto")
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(users), "bridge", "pass"], check=True)
    users.chmod(0o600)
    async with Mosquitto(
        tmp_path / "m", "allow_anonymous false", f"password_file {users}"
    ) as mosquitto:
        mine = MqttBroker(url=mosquitto.url, user="bridge", password_file=str(secret))
        await MqttSink(site=fox, broker=mine).check()
        for nobody in (mosquitto.broker, MqttBroker(url=mosquitto.url, protocol="3.1.1")):
            with pytest.raises(DeniedError, match=mosquitto.url):
                await MqttSource(site=fox, telemetry=Telemetry(), broker=nobody).check()
            source = MqttSource(site=fox, telemetry=Telemetry(), broker=nobody)
            with pytest.raises(DeniedError):
                await Reader(source).read()
            with pytest.raises(DeniedError):
                async with MqttSink(site=fox, broker=nobody):
                    pass
        secret.write_text("")
        with pytest.raises(ConfigError, match=r"broker\.password_file"):
            await MqttSink(site=fox, broker=mine).check()


async def test_sink_is_denied_if_broker_refuses_messages(tmp_path: Path, fox: Site) -> None:
    """With MQTT 5 the broker reports that a topic is not permitted: nothing counts as written."""
    rules = tmp_path / "rules"
    rules.write_text("topic read #\n")
    rules.chmod(0o600)
    async with (
        Mosquitto(tmp_path / "m", "allow_anonymous true", f"acl_file {rules}") as mosquitto,
        MqttSink(site=fox, broker=mosquitto.broker) as sink,
    ):
        with pytest.raises(DeniedError, match="Not authorized"):
            await sink.write(to_lines([METRIC]))


async def test_session_is_unavailable_without_broker(fox: Site) -> None:
    nobody = MqttBroker(url=f"mqtt://127.0.0.1:{free_port()}")
    async with MqttSink(site=fox, broker=nobody) as sink:
        with pytest.raises(UnavailableError, match="refused"):
            await sink.write(to_lines([METRIC]))


async def test_session_is_unavailable_if_broker_does_not_answer(fox: Site) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts connections, sends nothing
        url = f"mqtt://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UnavailableError, match="timed out"):
            await MqttSink(site=fox, broker=MqttBroker(url=url, timeout=Duration(0.2))).check()


# paho leaves its socket open where the server's certificate is not trusted.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_session_uses_certificates(tmp_path: Path, fox: Site) -> None:
    """Both sides present a certificate; an unknown authority is not trusted."""
    made = certificates(tmp_path)
    async with Mosquitto(
        tmp_path / "m",
        *("allow_anonymous true", "require_certificate true", f"cafile {made.ca}"),
        *(f"certfile {made.cert}", f"keyfile {made.key}"),
    ) as mosquitto:
        url = f"mqtts://127.0.0.1:{mosquitto.port}"
        ours, key = str(made.cert), str(made.key)
        broker = MqttBroker(url=url, ca_file=str(made.ca), cert_file=ours, key_file=key)
        async with MqttSink(site=fox, broker=broker) as sink:
            await sink.write(to_lines([METRIC]))
        stranger = MqttBroker(url=url, cert_file=ours, key_file=key)
        with pytest.raises(UnavailableError, match="(?i)certificate verify failed"):
            await MqttSink(site=fox, broker=stranger).check()
        with pytest.raises(ConfigError, match=r"broker\.ca_file"):
            await MqttSink(site=fox, broker=MqttBroker(url=url, ca_file="/none")).check()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"url": "127.0.0.1:1883"}, "is not an mqtt"),
        ({"url": "mqtt://h", "ca_file": "f"}, "need mqtts://"),
        ({"url": "u:secret@h"}, r"'\*\*\*@h' is not an mqtt"),
        ({"url": "mqtt://u:p@host"}, "must not contain a password"),
        ({"user": "me"}, "user and password_file go together"),
    ],
)
def test_broker_refuses_invalid_addresses(options: dict[str, str], reason: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=reason):
        msgspec.convert(options, MqttBroker)


@pytest.mark.parametrize(("scheme", "is_tls"), [("mqtt", False), ("mqtts", True), ("MQTTS", True)])
async def test_session_encrypts_when_scheme_is_mqtts(scheme: str, *, is_tls: bool) -> None:
    """The scheme is case-insensitive, as in any URL; the default port is the one of TLS."""
    paho = Session(MqttBroker(url=f"{scheme}://localhost"))._paho
    assert (paho._ssl_context is not None) == is_tls


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_publishing_on_lost_connection_is_unavailable(
    mosquitto: Mosquitto, protocol: Any
) -> None:
    """The client's error has the number that means a wrong password in MQTT 3.1.1."""
    async with Session(MqttBroker(url=mosquitto.url, protocol=protocol)) as session:
        session._paho._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)  # as when reading fails
        with pytest.raises(UnavailableError, match="not currently connected"):
            await session.publish([("topic", b"payload")], 60)


tokens = st.text(min_size=1, max_size=6).map(escape)


def test_subject_token_becomes_topic_level() -> None:
    """Dots become slashes, wildcards their counterparts; the prefix precedes them."""
    assert topic_of("fox%2Etest.metrics") == "fox%2Etest/metrics"
    assert topic_of("fox.events.job", "hpc/site/") == "hpc/site/fox/events/job"
    assert filter_of("*.metrics.*", "hpc") == "hpc/+/metrics/+"
    assert filter_of("fox.>") == "fox/+/#"


@given(st.lists(tokens, min_size=1, max_size=4), st.lists(tokens | st.just("*"), max_size=4))
def test_filter_matches_topics_of_matching_subjects(subject: list[str], pattern: list[str]) -> None:
    """A filter matches a topic if its pattern matches the subject, for any names."""
    from paho.mqtt.client import topic_matches_sub

    for each in (".".join(pattern or ["*"]), ".".join([*pattern, ">"])):
        wanted = matches(each, ".".join(subject))
        topic = topic_of(".".join(subject))
        assert not set(topic) & set("+#")
        assert topic_matches_sub(filter_of(each), topic) == wanted


def test_latest_topic_is_distinct_for_each_series() -> None:
    """A node's own values need no further levels; a core's or a device's do."""
    tags = {"cluster": "fox.no", "hostname": "n1", "type": "node"}
    core = tags | {"type": "core", "type-id": "3"}
    device = tags | {"stype": "device", "stype-id": "sd/a+"}
    names = [
        latest_topic(metric("m", 1.0, time=1, tags=each), "x") for each in (tags, core, device)
    ]
    assert names == [
        "fox%2Eno/latest/n1/m",
        "fox%2Eno/latest/n1/m/core/3",
        "fox%2Eno/latest/n1/m/device/sd%2Fa%2B",
    ]
