"""Options that commands share: flags override the file, times and ports are checked."""

from pathlib import Path

import pytest

from ccpipe.cli.console.options import SiteOptions, check_port, seconds
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
    assert (seconds("5m", "--for"), seconds("1.5", "--for"), seconds(None, "--for")) == (
        300,
        1.5,
        None,
    )
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
