"""The configuration, cluster and broker that a command uses."""

from pathlib import Path

import pytest

from ccpipe.cli.console.where import Where
from ccpipe.errors import MissingInputError

FILE = '[bus]\nservers = ["nats://file:4222"]\nuser = "u"\n'


def test_flags_come_before_the_file(tmp_path: Path) -> None:
    """What the command line says overrides the file; what it does not say stays the file's."""
    path = tmp_path / "ccpipe.toml"
    path.write_text(f'cluster = "of-file"\n{FILE}')
    site = Where(config=path, cluster="fox", server="nats://a:1,nats://b:2").site()
    assert (site.cluster, site.bus.servers) == ("fox", ["nats://a:1", "nats://b:2"])
    assert site.bus.user == "u"
    assert Where(config=path).site().bus.servers == ["nats://file:4222"]
    assert Where(config=path).site(**{"publish.units": True}).publish.units


def test_the_file_is_the_named_one_else_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--config`` before ``CCPIPE_CONFIG``; one that is named and missing is an error."""
    path, other = tmp_path / "ccpipe.toml", tmp_path / "other.toml"
    path.write_text(FILE)
    monkeypatch.setenv("CCPIPE_CONFIG", str(path))
    assert Where().path() == path
    assert Where(config=other).path() == other
    with pytest.raises(MissingInputError, match="other.toml"):
        Where(config=other).site()
