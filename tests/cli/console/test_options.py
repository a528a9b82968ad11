"""Options that commands share: configuration, logins, times and ports."""

import json
import time
from datetime import datetime
from pathlib import Path

import pytest

from ccpipe.cli.console.options import (
    BrokerOptions,
    SiteOptions,
    check_port,
    expand_nodes,
    expand_patterns,
    point_in_time,
    read_context,
    seconds,
)
from ccpipe.config import Interval
from ccpipe.errors import MissingInputError, UsageError

FILE = '[bus]\nservers = ["nats://file:4222"]\nuser = "u"\n'


def test_flags_override_file(tmp_path: Path) -> None:
    """Without a flag, the value of the file is used."""
    path = tmp_path / "ccpipe.toml"
    path.write_text(f'cluster = "of-file"\n{FILE}')
    site = SiteOptions(config=path, cluster="fox", server="nats://a:1,nats://b:2").site()
    assert (site.cluster, site.bus.servers) == ("fox", ["nats://a:1", "nats://b:2"])
    assert site.bus.user == "u"
    assert SiteOptions(config=path).site().bus.servers == ["nats://file:4222"]
    assert SiteOptions(config=path).site(**{"publish.units": True}).publish.units


def test_config_option_overrides_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--config`` before ``CCPIPE_CONFIG``; a named file that is missing is an error."""
    path, other = tmp_path / "ccpipe.toml", tmp_path / "other.toml"
    path.write_text(FILE)
    monkeypatch.setenv("CCPIPE_CONFIG", str(path))
    assert SiteOptions().path() == path
    assert SiteOptions(config=other).path() == other
    with pytest.raises(MissingInputError, match="other.toml"):
        SiteOptions(config=other).site()


def test_durations_are_read_from_flags() -> None:
    """With a unit or in seconds; an error names the flag."""
    assert [seconds(text, "--for") for text in ("5m", "1.5", None)] == [300, 1.5, None]
    with pytest.raises(UsageError, match=r"^--for: not a duration: 'soon' \(expected e.g."):
        seconds("soon", "--for")
    with pytest.raises(UsageError, match=r"^--interval: not an interval: 0.0"):
        seconds("0", "--interval", Interval)


def test_node_lists_are_expanded_and_patterns_are_not() -> None:
    """Node lists have Slurm's syntax, patterns a shell's; a bad list is reported with the flag."""
    assert expand_nodes(["n[1-3,07]", "gpu1", "n2"]) == ["n1", "n2", "n3", "n07", "gpu1"]
    assert expand_patterns(["n[1-2]", "n[12]*", "f?", "x[ab]"]) == [
        "n1", "n2", "n[12]*", "f?", "x[ab]",
    ]  # fmt: skip
    for expanded in (expand_nodes, expand_patterns):
        assert expanded(None) == []
        with pytest.raises(UsageError, match=r"^--node n\[1-: "):
            expanded(["n[1-"])


def test_time_is_date_time_of_day_or_duration_before_now() -> None:
    """A time without a zone is local; one without a date is of today."""
    assert point_in_time("2025-02-20T14:30:00.5Z", "--since") == 1740061800_500_000_000
    assert point_in_time("1969-12-31T23:59:59.5Z", "--since") == -500_000_000
    midnight = datetime.combine(datetime.now().date(), datetime.min.time())  # noqa: DTZ005
    assert point_in_time("00:00", "--since") == midnight.timestamp() * 10**9
    assert 590 < time.time() - point_in_time("10m", "--since") / 1e9 < 700
    for text in ("soon", "", "10 weeks", "99999999d", "25:00"):
        with pytest.raises(UsageError, match=rf"^--until: not a time: '{text}' \(expected e.g. 14"):
            point_in_time(text, "--until")


def test_ports_are_checked_before_use() -> None:
    """No port is valid, too."""
    check_port(None, "--port")
    check_port(65535, "--port")
    for port in (-1, 0, 65536):
        with pytest.raises(UsageError, match=rf"^--port {port}: not a port"):
            check_port(port, "--port")


@pytest.fixture
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    directory = tmp_path / "nats" / "context"
    directory.mkdir(parents=True)
    return directory


PASSWORD = "p@ss w:d"  # noqa: S105 - used nowhere


def write(directory: Path, name: str, **given: object) -> None:
    (directory / f"{name}.json").write_text(json.dumps({"description": "", "token": "", **given}))


def test_context_gives_server_and_user(contexts: Path) -> None:
    """The password is quoted; a URL with a login keeps it."""
    write(contexts, "site", url="nats://a:4222,tls://x:y@b", user="me", password=PASSWORD)
    site = BrokerOptions(context="site").site()
    assert site.bus.servers == ["nats://me:p%40ss%20w%3Ad@a:4222", "tls://x:y@b"]


def test_context_gives_credential_files(contexts: Path) -> None:
    """Credentials, keys and certificates stay in their files."""
    write(contexts, "site", url="a", creds="/c", nkey="/n", ca="/ca", cert="/cert", key="/key")
    bus = BrokerOptions(context="site").site().bus
    assert (bus.servers, bus.credentials_file, bus.nkey_file) == (["a"], "/c", "/n")
    assert (bus.ca_file, bus.cert_file, bus.key_file) == ("/ca", "/cert", "/key")


def test_empty_context_is_selected_one(contexts: Path) -> None:
    """The one chosen by ``nats context select``."""
    write(contexts, "one", url="nats://one")
    (contexts.parent / "context.txt").write_text("one\n")
    assert read_context("")["bus.servers"] == ["nats://one"]


def test_flags_override_context(contexts: Path) -> None:
    write(contexts, "site", url="nats://a", creds="/c")
    site = BrokerOptions(
        context="site", server="nats://b,nats://c", nats_user="u", creds=Path("/d")
    ).site()
    assert site.bus.servers == ["nats://b", "nats://c"]
    assert (site.bus.user, site.bus.credentials_file) == ("u", "/d")


def test_every_command_with_broker_logs_in_with_options() -> None:
    """The configuration of the cluster is read with them, too."""
    bus = (
        SiteOptions(server="tls://a", nats_user="me", password_file=Path("/p"), creds=Path("/c"))
        .site()
        .bus
    )
    assert (bus.servers, bus.user) == (["tls://a"], "me")
    assert (bus.password_file, bus.credentials_file) == ("/p", "/c")


@pytest.mark.parametrize("server", ["http://a:1", "127.0.0.1:99999", "nats://a,", "nats://"])
def test_invalid_server_is_usage_error_with_flag_and_value(server: str) -> None:
    """Not an error of the configuration."""
    wrong = server.rsplit(",", maxsplit=1)[-1]
    with pytest.raises(UsageError, match=f"^--server: not the URL of a NATS server: '{wrong}' "):
        SiteOptions(server=server).site()


def test_password_in_invalid_server_is_masked() -> None:
    with pytest.raises(UsageError) as caught:
        SiteOptions(server=f"http://u:{PASSWORD}@a").site()
    assert PASSWORD not in str(caught.value)


def test_unreadable_context_is_named_with_file(contexts: Path) -> None:
    with pytest.raises(MissingInputError, match=r"--context none: .*none\.json: No such file"):
        read_context("none")
    (contexts / "bad.json").write_text("{")
    with pytest.raises(UsageError, match="--context bad"):
        read_context("bad")
