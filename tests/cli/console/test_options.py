"""Options that commands share: configuration, logins, times and ports."""

import json
from pathlib import Path

import pytest

from ccpipe.cli.console.options import LoginOptions, SiteOptions, check_port, read_context, seconds
from ccpipe.config import Interval
from ccpipe.errors import MissingInputError, UsageError

FILE = '[bus]\nservers = ["nats://file:4222"]\nuser = "u"\n'


def test_flags_come_before_the_file(tmp_path: Path) -> None:
    """What the command line says overrides the file; what it does not say stays the file's."""
    path = tmp_path / "ccpipe.toml"
    path.write_text(f'cluster = "of-file"\n{FILE}')
    site = SiteOptions(config=path, cluster="fox", server="nats://a:1,nats://b:2").site()
    assert (site.cluster, site.bus.servers) == ("fox", ["nats://a:1", "nats://b:2"])
    assert site.bus.user == "u"
    assert SiteOptions(config=path).site().bus.servers == ["nats://file:4222"]
    assert SiteOptions(config=path).site(**{"publish.units": True}).publish.units


def test_the_file_is_the_named_one_else_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--config`` before ``CCPIPE_CONFIG``; one that is named and missing is an error."""
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


def test_ports_are_checked() -> None:
    """Before anything listens; no port is fine."""
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


PASSWORD = "p@ss w:d"  # noqa: S105 - of nobody


def write(directory: Path, name: str, **given: object) -> None:
    (directory / f"{name}.json").write_text(json.dumps({"description": "", "token": "", **given}))


def test_a_context_names_server_and_user(contexts: Path) -> None:
    """The password is quoted; a URL that has a login keeps it."""
    write(contexts, "site", url="nats://a:4222,tls://x:y@b", user="me", password=PASSWORD)
    site = LoginOptions(context="site").site()
    assert site.bus.servers == ["nats://me:p%40ss%20w%3Ad@a:4222", "tls://x:y@b"]


def test_files_of_a_context_are_used(contexts: Path) -> None:
    """Credentials, keys and certificates stay in their files."""
    write(contexts, "site", url="a", creds="/c", nkey="/n", ca="/ca", cert="/cert", key="/key")
    bus = LoginOptions(context="site").site().bus
    assert (bus.servers, bus.credentials_file, bus.nkey_file) == (["a"], "/c", "/n")
    assert (bus.ca_file, bus.cert_file, bus.key_file) == ("/ca", "/cert", "/key")


def test_the_selected_context_needs_no_name(contexts: Path) -> None:
    """``--context ''`` is the one that ``nats context select`` chose."""
    write(contexts, "one", url="nats://one")
    (contexts.parent / "context.txt").write_text("one\n")
    assert read_context("")["bus.servers"] == ["nats://one"]


def test_flags_win_over_a_context(contexts: Path) -> None:
    """What is typed is meant."""
    write(contexts, "site", url="nats://a", creds="/c")
    site = LoginOptions(
        context="site", server="nats://b,nats://c", user="u", creds=Path("/d")
    ).site()
    assert site.bus.servers == ["nats://b", "nats://c"]
    assert (site.bus.user, site.bus.credentials_file) == ("u", "/d")


def test_a_context_that_cannot_be_read_is_named(contexts: Path) -> None:
    """With the file."""
    with pytest.raises(MissingInputError, match=r"--context none: .*none\.json: No such file"):
        read_context("none")
    (contexts / "bad.json").write_text("{")
    with pytest.raises(UsageError, match="--context bad"):
        read_context("bad")
