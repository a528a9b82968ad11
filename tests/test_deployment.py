"""What the project ships to deploy: it names files that exist and settings that are known."""

import re
from pathlib import Path

import pytest
import yaml

from ccpipe.config import Recipe, load
from ccpipe.registry import build
from ccpipe.telemetry import Telemetry

TOP = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((TOP / "compose.yaml").read_text())
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
