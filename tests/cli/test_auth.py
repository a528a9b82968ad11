"""``ccpipe auth init``: the real command."""

import json
from pathlib import Path

from tests.cli.command import ccpipe


def test_auth_init_writes_keys_and_configuration(tmp_path: Path) -> None:
    """For all nodes of a list; the second run adds new ones and keeps the rest."""
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


def test_auth_init_dry_run_prints_new_keys_and_writes_nothing(tmp_path: Path) -> None:
    """Existing keys are not printed."""
    directory = tmp_path / "keys"
    given = ("auth", "init", directory, "--cluster", "fritz", "--node")
    shown = ccpipe(*given, "f[01-02]", "--dry-run")
    assert shown.code == 0, shown.err
    nodes = [str(directory / "nkeys" / "node" / f"f0{n}.nk") for n in (1, 2)]
    assert shown.out.splitlines()[:2] == nodes
    assert len(shown.out.splitlines()) == 5  # a bridge, an operator and a viewer, too
    assert not directory.exists()
    assert ccpipe(*given, "f01").code == 0
    assert ccpipe(*given, "f[01-02]", "--dry-run").out.splitlines() == nodes[1:]


def test_auth_init_gives_domains_to_bridges(tmp_path: Path) -> None:
    """Bridges of earlier runs, too."""
    directory = tmp_path / "keys"
    for domain in ("rack1", "rack2"):
        shown = ccpipe("auth", "init", directory, "--node", "a", "--domain", domain)
        assert shown.code == 0
    configuration = (directory / "nats.conf").read_text()
    for domain in ("rack1", "rack2"):
        assert f'"$JS.{domain}.API.CONSUMER.>"' in configuration
    assert ccpipe("auth", "init", directory, "--domain", "a.b").code == 78


def test_auth_init_reports_wrong_arguments(tmp_path: Path) -> None:
    """No node to make a key for, and a directory that cannot be written."""
    assert ccpipe("auth", "init", tmp_path / "keys").code == 64
    (tmp_path / "others" / "nats.conf").mkdir(parents=True)
    shown = ccpipe("auth", "init", tmp_path / "others", "--node", "a")
    assert shown.code == 73
    assert "nats.conf" in shown.err
