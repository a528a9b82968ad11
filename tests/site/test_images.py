"""The images, built as `make images` does, and the services of compose.yaml in podman."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from ccpipe import __version__
from tests.deployment.compose import Prepared
from tests.paths import ROOT
from tests.site.engine import Engine

pytestmark = [pytest.mark.site, pytest.mark.timeout(3600)]

LIMITS = {"ccpipe-node": 150_000_000, "ccpipe": 400_000_000}
"""Bytes of an image with its base."""
BROKERS = ("nats", "nats-2", "nats-3")
SERVICES = (
    *BROKERS, "victoriametrics", "bridge-victoriametrics", "bridge-parquet", "publisher",
    "dashboard",
)  # fmt: skip
LIMIT_V1 = "/sys/fs/cgroup/memory/memory.limit_in_bytes"
LIMIT_V2 = "/sys/fs/cgroup/memory.max"
VARIABLES = """\
CCPIPE_BROKERS=nats://nats:4222,nats://nats-2:4222,nats://nats-3:4222
CCPIPE_STREAM_REPLICAS=3
"""


@pytest.mark.parametrize("name", LIMITS)
def test_image_is_smaller_than_limit(images: Engine, name: str) -> None:
    """With Debian's base, as an engine counts it."""
    [image] = images.json("podman", "image", "inspect", f"{name}:{__version__}")
    [base] = images.json("podman", "image", "inspect", "debian:trixie-slim")
    print(f"{name}: {image['Size'] / 1e6:.0f} MB, base {base['Size'] / 1e6:.0f} MB")
    assert image["Size"] < LIMITS[name]
    assert image["Labels"]["org.opencontainers.image.version"] == __version__
    assert image["Labels"]["org.opencontainers.image.licenses"] == "MIT"


@pytest.mark.parametrize("name", LIMITS)
def test_image_has_compiled_kernels_and_every_library(images: Engine, name: str) -> None:
    """Also on a read-only file system, without network and capabilities, not as root."""
    restricted = ("--rm", "--read-only", "--network=none", "--cap-drop=all")
    version = images.json("podman", "run", *restricted, name, "version", "-o", "json")
    assert version["kernel"] == "compiled"
    ids = images.run("podman", "run", *restricted, "--entrypoint=id", name, "-u")
    assert ids == "10001\n"
    modules = ["nacl.signing", "pynvml"]
    if name == "ccpipe":
        modules += [
            "aiohttp", "aiokafka", "aiomqtt", "asyncpg", "backports.zstd", "cramjam", "duckdb",
            "h5py", "numpy.linalg", "numpy.random", "pyarrow.compute", "pyarrow.csv",
            "pyarrow.dataset", "pyarrow.parquet", "pytz",
        ]  # fmt: skip
    imports = f"import {', '.join(modules)}"
    images.run(
        "podman", "run", *restricted, "--entrypoint=python", name, "-W", "error", "-c", imports
    )


def test_build_fails_without_python_headers(images: Engine, tmp_path: Path) -> None:
    """It would succeed with the slow version in Python, and nobody would notice."""
    text = (ROOT / "bridges/Dockerfile").read_text()
    assert text.count(" python3.13-dev") == 1
    file = tmp_path / "Dockerfile"
    file.write_text(text.replace(" python3.13-dev", ""))
    log = images.run(
        "buildah", "build", *images.build_options(), f"--file={file}", ROOT,
        is_online=True, timeout=1800, fails=True,
    )  # fmt: skip
    assert "Python.h" in log


def test_keys_are_created_in_image_when_host_has_no_ccpipe(images: Engine, tmp_path: Path) -> None:
    """By prepare.sh as root, whose containers are those of another user."""
    shutil.copy(ROOT / "compose.yaml", tmp_path)
    shutil.copytree(ROOT / "bridges", tmp_path / "bridges")
    compose = shutil.which("podman-compose", path=images.environ["PATH"])
    images.run(
        "env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"COMPOSE={compose}",
        "bridges/compose/prepare.sh", "fritz", "f01", at=tmp_path,
    )  # fmt: skip
    keys = tmp_path / "deploy/keys"
    assert (keys / "nkeys/node/f01.nk").stat().st_uid == 10001
    assert (tmp_path / "deploy/nats/nats.conf").read_text() == (keys / "nats.conf").read_text()


class Compose:
    """The services of a prepared copy, run by podman-compose."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self.engine = engine
        self.prepared = Prepared(directory, "fritz", "f[01-02]")
        assert self.prepared.done.returncode == 0, self.prepared.done.stderr
        with (directory / ".env").open("a") as file:
            file.write(VARIABLES)
        self.name = directory.name

    def __enter__(self) -> Self:
        self.run("up", "--detach", *SERVICES)
        return self

    def __exit__(self, *_: object) -> None:
        self.run("down", "--timeout=5")

    def run(self, *words: str) -> str:
        files = ("--file=compose.yaml", "--file=bridges/compose/three-brokers.yaml")
        command = ("podman-compose", *files, "--profile=parquet", *words)
        return self.engine.run(*command, at=self.prepared.directory, timeout=600)

    def container(self, service: str) -> str:
        return f"{self.name}_{service}_1"

    def inside(self, service: str, *words: str, fails: bool = False) -> str:
        return self.engine.run("podman", "exec", self.container(service), *words, fails=fails)

    def is_healthy(self, service: str) -> bool:
        """Run a container's own health check; podman has systemd run it otherwise."""
        script = f"podman healthcheck run {self.container(service)} >/dev/null 2>&1; echo $?"
        return self.engine.run("sh", "-c", script) == "0\n"

    def newest(self, match: str) -> float:
        """Return the time of the newest sample in VictoriaMetrics, 0 without one."""
        url = "http://127.0.0.1:8428"
        self.engine.run("wget", "-q", "-O-", f"{url}/internal/force_flush")
        found = self.engine.run("wget", "-q", "-O-", f"{url}/api/v1/export?match[]={match}")
        samples = [json.loads(line) for line in found.splitlines()]
        return max((each["timestamps"][-1] / 1000 for each in samples), default=0.0)


def until(holds: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(1)


@pytest.fixture(scope="module")
def compose(images: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    with Compose(images, tmp_path_factory.mktemp("site")) as compose:
        until(lambda: compose.newest("cpu_load") > 0)
        yield compose


@pytest.mark.parametrize("service", SERVICES)
def test_service_is_healthy(compose: Compose, service: str) -> None:
    """By the health check of compose.yaml, run in its container."""
    until(lambda: compose.is_healthy(service))


@pytest.mark.parametrize("service", SERVICES)
def test_service_is_restricted(compose: Compose, service: str) -> None:
    """Not root, no capabilities, a read-only file system; ours have limits of memory."""
    uid, capabilities = compose.inside(
        service, "sh", "-c", "id -u; grep CapEff /proc/self/status"
    ).splitlines()
    assert (uid, int(capabilities.split()[1], 16)) == ("10001", 0)
    assert "Read-only" in compose.inside(service, "touch", "/etc/written", fails=True)
    limits = {"publisher": 256 << 20, "dashboard": 1 << 30, "bridge-parquet": 1 << 30}
    if service in limits:
        found = compose.inside(service, "sh", "-c", f"cat {LIMIT_V1} 2>/dev/null || cat {LIMIT_V2}")
        assert int(found) == limits[service]


def test_dashboard_shows_node_of_publisher(compose: Compose, tmp_path: Path) -> None:
    """In a browser, with the token of prepare.sh."""
    token = compose.prepared.path("deploy/secrets/dashboard_tokens").read_text()
    host = compose.prepared.variables["CCPIPE_HOSTNAME"]
    url = f"http://127.0.0.1:8770/#token={token}"
    picture = tmp_path / "dashboard.png"
    look = (sys.executable, "-m", "tests.site.look")
    text = compose.engine.run("env", "TMPDIR=/tmp", *look, url, host, picture, at=ROOT)
    assert "fritz" in text
    print(picture)


def test_parquet_files_are_written_and_read(compose: Compose) -> None:
    """By pyarrow and DuckDB without the parts that the image leaves out."""
    query = "ccpipe query --dir /data 'select max(value) from metrics' --output json || true"
    until(lambda: "max" in compose.inside("bridge-parquet", "sh", "-c", query))


def test_metrics_arrive_while_broker_is_down(compose: Compose) -> None:
    """Each of the three keeps every stream: two store on when one has ended."""
    compose.engine.run("podman", "stop", "--time=5", compose.container("nats"))
    stopped = time.time()
    try:
        until(lambda: compose.newest("cpu_load") > stopped + 15)
    finally:
        compose.engine.run("podman", "start", compose.container("nats"))
    until(lambda: compose.is_healthy("nats"))


def test_added_node_is_known_after_reload(compose: Compose) -> None:
    """By prepare.sh and a signal, as the page says; its publisher is the node image."""
    directory = compose.prepared.directory
    prepare = directory / "bridges/compose/prepare.sh"
    compose.engine.run(prepare, "fritz", "g01", at=directory)
    for broker in BROKERS:
        compose.engine.run("podman", "kill", "--signal=HUP", compose.container(broker))
    key = directory / "deploy/keys/nkeys/node/g01.nk"
    compose.engine.run(
        "podman", "run", "--rm", "--read-only", "--network=host", "--tmpfs=/tmp",
        f"--volume={key}:/key:ro", f"--volume={directory}/deploy/keys/ccpipe.toml:/site.toml:ro",
        "--env=CCPIPE_CONFIG=/site.toml", "--env=CCPIPE_BUS__NKEY_FILE=/key",
        "--env=CCPIPE_BUS__SERVERS=nats://127.0.0.1:4223", "--env=CCPIPE_HOSTNAME=g01",
        "--env=XDG_STATE_HOME=/tmp", "ccpipe-node", "publish", "--once",
    )  # fmt: skip
    until(lambda: compose.newest('{hostname="g01"}') > 0)
