"""The systemd units: systemd accepts them, they are hardened, and their settings are known."""

import re
import subprocess
from pathlib import Path

import pytest

from ccpipe.config import Site, load
from tests.conftest import program
from tests.paths import ROOT

UNITS = sorted((ROOT / "bridges/systemd").glob("*.service"))


@pytest.fixture(params=UNITS, ids=lambda unit: unit.stem)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of a unit whose command is one that every machine has."""
    path: Path = request.param
    copy = tmp_path / path.name
    copy.write_text(path.read_text().replace("/usr/local/bin/ccpipe", "/bin/true"))
    return copy


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(program("systemd-analyze", "systemd")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_units_have_settings_known_to_systemd(unit: Path) -> None:
    """A misspelt setting would only be a warning in a log, and harden nothing."""
    done = analyze("verify", "--man=no", str(unit))
    assert (done.returncode, done.stderr) == (0, "")


def test_units_are_hardened(unit: Path) -> None:
    """The exposure computed by systemd, from 0 to 100, stays low."""
    done = analyze("security", "--offline=true", "--threshold=25", str(unit))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", UNITS, ids=lambda unit: unit.stem)
def test_units_name_known_settings_of_ccpipe(path: Path) -> None:
    """Every variable of ours, active or in a comment, sets a key of the configuration."""
    text = path.read_text()
    pages = ("docs/node/publisher.md", "docs/operations/dashboard.md")
    assert any(path.name in (ROOT / page).read_text() for page in pages)
    given = dict(re.findall(r"^#?Environment=(CCPIPE_\w+)=(.+)$", text, re.MULTILINE))
    given.pop("CCPIPE_CONFIG")
    loaded = load(None, Site, environ={**given, "CCPIPE_BUS__USER": "node"})
    assert Path(loaded.bus.password_file).name == "nats-password"
    has_dashboard = path.stem == "ccpipe-dashboard"
    assert bool(loaded.dashboard.token_file and loaded.dashboard.proxy_secret_file) == has_dashboard


def test_units_with_common_directory_have_same_user() -> None:
    """The unit that starts becomes the owner: with two users they would alternate."""
    owners = {
        (found["StateDirectory"], found["User"])
        for path in UNITS
        for found in [
            dict(re.findall(r"^(StateDirectory|User)=(.+)$", path.read_text(), re.MULTILINE))
        ]
    }
    assert len(owners) == 1


@pytest.mark.parametrize("name", ["ccpipe-publish", "ccpipe-step"])
def test_units_on_nodes_may_open_devices(name: str) -> None:
    """GPUs, BMC, disks and registers; systemd before 253 denies them with ProtectClock."""
    text = (ROOT / f"bridges/systemd/{name}.service").read_text()
    closing = r"^(ProtectClock|PrivateDevices|DevicePolicy|DeviceAllow)="
    assert not re.findall(closing, text, re.MULTILINE)
