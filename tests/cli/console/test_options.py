"""Options that commands share: flags override the environment."""

from pathlib import Path

import pytest

from ccpipe.cli.console.options import Where
from ccpipe.errors import MissingInputError


def test_flags_override_the_file(tmp_path: Path) -> None:
    """Those that are given; several servers are separated by commas."""
    path = tmp_path / "ccpipe.toml"
    path.write_text('cluster = "file"\n[bus]\nservers = ["nats://file"]\n')
    assert Where(config=path).site().cluster == "file"
    site = Where(config=path, server="nats://a,nats://b", cluster="flag").site()
    assert (site.cluster, site.bus.servers) == ("flag", ["nats://a", "nats://b"])
    assert float(Where(config=path).site(**{"publish.interval": "3s"}).publish.interval) == 3


def test_the_file_is_the_given_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the usual one; a given file that is missing is an error."""
    monkeypatch.setenv("CCPIPE_CONFIG", "/usual.toml")
    assert Where().path() == Path("/usual.toml")
    assert Where(config=tmp_path / "mine.toml").path() == tmp_path / "mine.toml"
    with pytest.raises(MissingInputError, match="mine.toml: No such file"):
        Where(config=tmp_path / "mine.toml").site()
