"""scripts/images.py: what it asks of an engine. tests/site/test_images.py builds the images."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from ccpipe import __version__
from scripts.images import EXTRAS
from tests.paths import ROOT

ENGINE = """#!/bin/sh
[ "$1" = info ] && exit {info}
printf '%s\\n' "$@" >> {log}
exit {build}
"""


def images(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "scripts/images.py", *words],
        env={**os.environ, "PATH": str(path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def engine(path: Path, name: str, *, info: int = 0, build: int = 0) -> Path:
    """Put a program of that name there, which writes down how it was called."""
    log = path / f"{name}.log"
    program = path / name
    program.write_text(ENGINE.format(info=info, build=build, log=log))
    program.chmod(0o755)
    return log


def test_images_names_engines_when_none_runs(tmp_path: Path) -> None:
    """A client without its daemon is not one."""
    log = engine(tmp_path, "docker", info=1)
    done = images(tmp_path)
    assert done.returncode == 1
    assert done.stderr == "none of docker, podman, buildah is installed and running\n"
    assert not log.exists()


def test_images_are_tagged_with_version_and_registry(tmp_path: Path) -> None:
    """By the first engine that runs; further arguments are the engine's."""
    engine(tmp_path, "docker", info=1)
    log = engine(tmp_path, "podman")
    done = images(tmp_path, "--registry", "registry.example.org/hpc/", "--", "--pull")
    assert done.returncode == 0, done.stderr
    names = [f"registry.example.org/hpc/{name}" for name in EXTRAS]
    tags = [(f"{name}:{__version__}", f"{name}:latest") for name in names]
    assert done.stdout.splitlines() == [" ".join(pair) for pair in tags]
    words = log.read_text().splitlines()
    assert words.count("build") == words.count("--pull") == len(EXTRAS)
    assert {f"--tag={tag}" for pair in tags for tag in pair} <= set(words)
    assert f"--label=org.opencontainers.image.version={__version__}" in words


def test_images_exits_with_status_of_failed_build(tmp_path: Path) -> None:
    """And builds no further one."""
    log = engine(tmp_path, "buildah", build=7)
    done = images(tmp_path)
    assert (done.returncode, done.stdout) == (7, "")
    assert log.read_text().splitlines().count("build") == 1


def test_image_of_node_has_extras_of_project() -> None:
    """An extra that does not exist is only a warning of pip."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "bridges/Dockerfile").read_text()
    [default] = [line for line in text.splitlines() if line.startswith("ARG EXTRAS=")]
    for words in ([default], *EXTRAS.values()):
        for word in words:
            assert set(word.partition("EXTRAS=")[2].split(",")) <= {*known["optional-dependencies"]}
