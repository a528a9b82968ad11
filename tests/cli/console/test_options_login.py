"""How a person's command reaches the broker."""

import json
from pathlib import Path

import pytest

from ccpipe.cli.console.options import LoginOptions, read_context
from ccpipe.errors import MissingInputError, UsageError


@pytest.fixture(autouse=True)
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder of contexts of the program nats."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    return folder


PASSWORD = "p@ss w:d"  # noqa: S105 - of nobody


def write(folder: Path, name: str, **given: object) -> None:
    """Write a context as ``nats context save`` does."""
    (folder / f"{name}.json").write_text(json.dumps({"description": "", "token": "", **given}))


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
