"""What the project ships to deploy: it names files that exist and settings that are known."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from ccpipe.config import Recipe, Site, load
from ccpipe.registry import build
from ccpipe.telemetry import Telemetry
from tests.conftest import program
from tests.paths import ROOT

TOP = ROOT
COMPOSE = yaml.safe_load((TOP / "compose.yaml").read_text())
UNITS = sorted((TOP / "bridges/systemd").glob("*.service"))
BRIDGES = [name for name in COMPOSE["services"] if name.startswith("bridge-")]


def test_compose_mounts_files_that_exist() -> None:
    """A bind mount of a missing file would make a folder in its place."""
    mounts = [
        volume.split(":")[0]
        for service in COMPOSE["services"].values()
        for volume in service.get("volumes", [])
    ]
    binds = [mount for mount in mounts if mount.startswith(".")]
    assert binds == ["./nats.conf"]
    assert all((TOP / bind).is_file() for bind in binds)
    assert {mount for mount in mounts if mount not in binds} == set(COMPOSE["volumes"])


def test_compose_gives_the_server_every_password_that_its_configuration_reads() -> None:
    """A variable that is not set would keep nats-server from starting."""
    read = set(re.findall(r"\$(CCPIPE_\w+)", (TOP / "nats.conf").read_text().split("jetstream")[1]))
    script = " ".join(COMPOSE["services"]["nats"]["entrypoint"])
    assert read == set(re.findall(r"export (CCPIPE_\w+)=", script))


@pytest.mark.parametrize("name", BRIDGES)
def test_compose_sets_only_what_recipes_know(name: str, tmp_path: Path) -> None:
    """Each bridge's recipe, with the container's environment on top, makes its sink."""
    service = COMPOSE["services"][name]
    _, recipe = service["command"]
    path = TOP / recipe.lstrip("/")
    environ = {**service["environment"], "CCPIPE_CLUSTER": "local"}
    if "CCPIPE_SINK__DIR" in environ:
        environ["CCPIPE_SINK__DIR"] = str(tmp_path)
    loaded = load(path, Recipe, environ=environ)
    assert loaded.bus.servers == ["nats://nats:4222"]
    assert loaded.bus.password_file.removeprefix("/run/secrets/") in COMPOSE["secrets"]
    assert build(
        "sinks",
        loaded.sink,
        where=str(path),
        path="sink",
        context={"site": loaded, "telemetry": Telemetry()},
    )


def test_the_image_copies_what_exists() -> None:
    """Every path that the Dockerfile takes from the project is there."""
    text = (TOP / "bridges/Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE)
    for pattern in " ".join(copied).split():
        assert list(TOP.glob(pattern)), pattern


@pytest.fixture(params=UNITS, ids=lambda unit: unit.stem)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of a unit whose command is one that every machine has."""
    path: Path = request.param
    copy = tmp_path / path.name
    copy.write_text(path.read_text().replace("/usr/local/bin/ccpipe", "/bin/true"))
    return copy


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Ask systemd's own program about a unit."""
    command = [str(program("systemd-analyze", "systemd")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_units_say_what_systemd_knows(unit: Path) -> None:
    """A setting that is misspelt would only be a warning in a log, and harden nothing."""
    done = analyze("verify", "--man=no", str(unit))
    assert (done.returncode, done.stderr) == (0, "")


def test_units_are_hardened(unit: Path) -> None:
    """The exposure that systemd reckons, from 0 to 100, stays low."""
    done = analyze("security", "--offline=true", "--threshold=25", str(unit))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", UNITS, ids=lambda unit: unit.stem)
def test_units_name_settings_that_are_known(path: Path) -> None:
    """Every variable of ours, in force or offered, sets a key of the configuration."""
    text = path.read_text()
    assert (TOP / "docs/node.md").read_text().count(path.name)
    given = dict(re.findall(r"^#?Environment=(CCPIPE_\w+)=(.+)$", text, re.MULTILINE))
    given.pop("CCPIPE_CONFIG")
    loaded = load(None, Site, environ={**given, "CCPIPE_BUS__USER": "node"})
    assert Path(loaded.bus.password_file).name == "nats-password"
