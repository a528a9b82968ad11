"""``ccpipe auth init``: the real command."""

import json
from pathlib import Path

from tests.cli.command import ccpipe


def test_keys_and_configuration_are_written(tmp_path: Path) -> None:
    """For all nodes of a list; the second run adds and keeps."""
    directory = tmp_path / "keys"
    shown = ccpipe("auth", "init", directory, "--cluster", "fritz", "--node", "f[01-03]")
    assert (shown.code, shown.err.count("nats.conf")) == (0, 1)
    assert "f[01-03]" in shown.out
    more = ccpipe("auth", "init", directory, "--cluster", "fritz", "--node", "f04", "-o", "json")
    users = json.loads(more.out)
    assert [u["name"] for u in users if u["role"] == "node"] == ["f01", "f02", "f03", "f04"]
    assert all(Path(user["file"]).is_file() for user in users)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert '"fritz.metrics.f04"' in (directory / "nats.conf").read_text()


def test_bridges_get_domains(tmp_path: Path) -> None:
    """Those of earlier runs too."""
    directory = tmp_path / "keys"
    for domain in ("rack1", "rack2"):
        shown = ccpipe("auth", "init", directory, "--node", "a", "--domain", domain)
        assert shown.code == 0
    configuration = (directory / "nats.conf").read_text()
    for domain in ("rack1", "rack2"):
        assert f'"$JS.{domain}.API.CONSUMER.>"' in configuration
    assert ccpipe("auth", "init", directory, "--domain", "a.b").code == 78


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    """Nobody to make a key for, and a place that cannot be written."""
    assert ccpipe("auth", "init", tmp_path / "keys").code == 64
    (tmp_path / "others" / "nats.conf").mkdir(parents=True)
    shown = ccpipe("auth", "init", tmp_path / "others", "--node", "a")
    assert shown.code == 73
    assert "nats.conf" in shown.err
