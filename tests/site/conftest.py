"""Images built once for all tests of this directory."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccpipe import __version__
from ccpipe.bus.nats.server import server_program
from tests.conftest import program
from tests.paths import ROOT
from tests.site.engine import Engine

STAND_INS = {
    "nats": "docker.io/library/nats:2.15-alpine",
    "victoria-metrics": "docker.io/victoriametrics/victoria-metrics:v1.122.0",
}


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with Engine(tmp_path_factory.mktemp("engine")) as engine:
        engine.import_debian()
        yield engine
    shutil.rmtree(engine.directory)


@pytest.fixture(scope="session")
def images(engine: Engine) -> Engine:
    """Build ours and the stand-ins for those of others, which have the same names."""
    options = engine.build_options()
    engine.run(
        sys.executable, ROOT / "scripts/images.py", "--engine=buildah", "--", *options,
        is_online=True, timeout=3000,
    )  # fmt: skip
    programs = engine.directory / "programs"
    programs.mkdir()
    shutil.copy(server_program(), programs / "nats-server")
    shutil.copy(program("victoria-metrics", "victoria-metrics"), programs)
    for stage, name in STAND_INS.items():
        engine.run(
            "buildah", "build", *options, f"--file={ROOT}/tests/site/stand_ins.Dockerfile",
            f"--target={stage}", f"--tag={name}", programs, is_online=True, timeout=1200,
        )  # fmt: skip
    return engine


@pytest.fixture(scope="session")
def image_archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of `podman save` with the image ccpipe: of $CCPIPE_IMAGE_ARCHIVE, or built."""
    if given := os.environ.get("CCPIPE_IMAGE_ARCHIVE"):
        return Path(given)
    images: Engine = request.getfixturevalue("images")
    file = tmp_path_factory.mktemp("image") / "ccpipe.tar"
    images.run("podman", "save", "--output", file, f"localhost/ccpipe:{__version__}")
    return file
