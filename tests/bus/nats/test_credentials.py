"""Credentials for the broker: their files, and URLs that must not reveal them."""

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats.connection import Connection, check
from ccpipe.bus.nats.credentials import (
    TlsError,
    check_urls,
    client_options,
    requires_tls,
    tls_problem,
    without_secrets,
)
from ccpipe.config import Bus
from ccpipe.errors import ConfigError, DeniedError
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.servers.nats.daemon import nats_daemon

USER = 'authorization {{ users: [ {{ user: "node", password: "{}" }} ] }}'


async def test_password_is_read_again_for_each_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A changed password needs no restart: the next connection sends the file's new content.

    A temporarily empty file is logged, and tried again.
    """
    secret = tmp_path / "password"
    secret.write_text("old\n")
    async with nats_daemon(tmp_path, USER.format("old")) as port:
        bus = Bus(servers=[f"nats://127.0.0.1:{port}"], user="node", password_file=str(secret))
        connection = Connection(bus, name="t", telemetry=Telemetry())
        await connection.__aenter__()
    try:
        secret.write_text("")
        async with nats_daemon(tmp_path, USER.format("new"), port):
            await eventually(lambda: "is not one line of text" in caplog.text, 60)
            secret.write_text("new\n")
            await eventually(lambda: connection.is_connected, 60)
            await connection.flush()
    finally:
        await connection.__aexit__(None, None, None)


async def test_empty_password_is_refused(tmp_path: Path) -> None:
    """A server with an empty password accepts any client that sends one; ccpipe never does."""
    configuration = "authorization { users: [ { user: node, password: $NODE } ] }"
    async with nats_daemon(tmp_path, configuration, NODE="") as port:
        await check(Bus(servers=[f"nats://node:@127.0.0.1:{port}"]), Telemetry())
        for content in ("", "\n", " \t\n"):
            (tmp_path / "password").write_text(content)
            bus = Bus(
                servers=[f"nats://127.0.0.1:{port}"], user="node",
                password_file=str(tmp_path / "password"),
            )  # fmt: skip
            with pytest.raises(ConfigError, match="bus.password_file"):
                await check(bus, Telemetry())
    async with nats_daemon(tmp_path, USER.format("set")) as port:
        with pytest.raises(DeniedError):
            await check(Bus(servers=[f"nats://node:@127.0.0.1:{port}"]), Telemetry())


def test_user_without_password_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="bus.password_file: is missing"):
        client_options(Bus(user="node"))


def test_nkey_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "key.nk"
    path.write_text("SUNONSENSE")
    with pytest.raises(ConfigError, match=r"bus.nkey_file: .*key.nk: not an nkey seed") as caught:
        client_options(Bus(nkey_file=str(path)))
    assert "SUNONSENSE" not in str(caught.value)


@pytest.mark.parametrize(
    ("bus", "expected"),
    [
        (Bus(servers=["nats://h"]), False),
        (Bus(servers=["nats://h", "tls://h"]), True),
        (Bus(servers=["nats://h"], ca_file="x"), True),
        (Bus(servers=["nats://h"], tls="require"), True),
        (Bus(servers=["wss://h"]), True),
        (Bus(servers=["TLS://h"]), True),
    ],
)
def test_tls_is_required_if_any_option_requires_it(bus: Bus, expected: bool) -> None:
    """One such option or URL applies to all servers."""
    assert requires_tls(bus) is expected


@pytest.mark.parametrize(
    "server", ["", "http://h", "nats://u:hunter2/x@h", "nats://h:port", "nats:///x", "h:99999"]
)
def test_invalid_server_url_is_refused_without_showing_it(server: str) -> None:
    """It may contain a password; the error names its index."""
    with pytest.raises(ConfigError, match=r"bus.servers\[1\]: not the URL") as caught:
        check_urls(["nats://good", server])
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "server",
    ["nats://h:4222", "h", "h:4222", "nats://u:p@h", "u:p@h:1", "tls://10.0.0.1", "ws://h"],
)
def test_server_urls_are_accepted_in_common_forms(server: str) -> None:
    check_urls([server])


@given(st.text(st.characters(exclude_characters="@")), st.sampled_from(["", "nats://", "tls:/"]))
def test_messages_contain_no_secret(secret: str, scheme: str) -> None:
    assert without_secrets(f"{scheme}hunter2:{secret}hunter3@host:1").endswith("://host:1")
    assert "hunter" not in without_secrets(f"{scheme}hunter2:{secret}hunter3@host:1")
    assert without_secrets(f"nats://host:1/?token={secret}hunter2") == "nats://host:1"
    assert without_secrets(f"TLS://host:1/?token={secret}hunter2") == "tls://host:1"


def test_tls_problems_are_explained() -> None:
    refused = ssl.SSLCertVerificationError(1, "x")
    refused.verify_message = "self-signed certificate."
    assert tls_problem(refused).startswith(
        "TLS: the server's certificate is refused: self-signed certificate (its authority is"
    )
    handshake = ssl.SSLError(1, "x")
    handshake.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert tls_problem(handshake).endswith("tlsv13 alert certificate required (bus.cert_file)")
    assert tls_problem(TlsError("TLS is required")) == "TLS is required"
    assert tls_problem(ConnectionError("refused")) == ""
