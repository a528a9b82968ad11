"""The package in ``examples/``, built and installed as any third party's, without a network."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ccpipe.bus.nats.server import NatsServer
from tests.cli.command import ended, environment, run_installed, start
from tests.conftest import eventually
from tests.paths import ROOT

PACKAGE = ROOT / "examples/ccpipe-pdu"
READING = b"rack17;A;12;231.5;1763596800\n"
ROW = "f0101,node_outlet_power,A12,231.5,2025-11-20T00:00:00+00:00"


def run_python(*arguments: object, cwd: Path, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True, timeout=300, check=False,
        env=environment(**environ),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that has the package's wheel and nothing else."""
    directory = tmp_path_factory.mktemp("example")
    copied = shutil.copytree(
        PACKAGE, directory / "source", ignore=shutil.ignore_patterns(".*", "__pycache__")
    )
    site = directory / "site"
    offline = ("--no-index", "--no-deps", "--no-build-isolation", "--quiet")
    run_python("-m", "pip", "install", *offline, "--target", site, copied, cwd=directory)
    return site


@pytest.fixture
def directory(installed: Path, tmp_path: Path) -> Path:
    """Return a directory of a site that has the package, and a table of outlets."""
    shutil.copytree(installed, tmp_path, dirs_exist_ok=True)
    (tmp_path / "outlets.toml").write_text('"rack17/A/12" = "f0101"\n')
    (tmp_path / "power").mkdir()
    return tmp_path


def recipes(directory: Path, port: int) -> list[Path]:
    """Copy the package's recipes, for our directory and port."""
    own = {"5170": str(port), "outlets.toml": f"{directory}/outlets.toml"}
    own['"power"'] = f'"{directory}/power"'
    for path in (PACKAGE / "recipes").iterdir():
        text = path.read_text()
        for theirs, ours in own.items():
            text = text.replace(theirs, ours)
        (directory / path.name).write_text(text)
    return [directory / "pdu-to-nats.toml", directory / "nats-to-csv.toml"]


async def test_example_parts_run_in_recipes(directory: Path, nats_server: NatsServer) -> None:
    """Datagrams pass through NATS into a file; a reading of an unknown outlet is a dead letter."""
    with socket.socket(type=socket.SOCK_DGRAM) as pdu:
        pdu.bind(("127.0.0.1", 0))
        port: int = pdu.getsockname()[1]
    environ = {"PYTHONPATH": str(directory), "CCPIPE_BUS__SERVERS": nats_server.url}
    bridges = [await start("bridge", path, **environ) for path in recipes(directory, port)]
    file = directory / "power/2025-11-20.csv"

    def is_written() -> bool:
        pdu.sendto(READING + b"rack99;A;1;5;1763596800\n", ("127.0.0.1", port))
        return file.exists() or any(bridge.returncode is not None for bridge in bridges)

    with socket.socket(type=socket.SOCK_DGRAM) as pdu:
        await eventually(is_written)
    ends = [await ended(bridge, signal.SIGTERM) for bridge in bridges]
    assert [end.code for end in ends] == [0, 0], ends
    assert set(file.read_text().splitlines()) == {ROW}
    assert "pdu.readings: unknown outlet rack99/A/1: rack99;A;1;5;1763596800" in ends[1].err


def test_plugins_lists_example_parts(directory: Path) -> None:
    """Each is usable, with its package and its options."""
    listed = run_installed(directory, "plugins")
    assert re.findall(r"^(\w+) +(\w+) +ccpipe-pdu 1\.0 +usable$", listed, re.MULTILINE) == [
        ("collectors", "hwmon_power"),
        ("sources", "pdu"),
        ("codecs", "pdu"),
        ("translators", "pdu_to_cc"),
        ("sinks", "daily_csv"),
    ]
    assert "Maximum time between two writes." in run_installed(directory, "plugins", "daily_csv")


def test_example_collector_is_published(directory: Path) -> None:
    """With the tags of the node, and with the option of its table."""
    sensors = directory / "hwmon/hwmon0"
    sensors.mkdir(parents=True)
    (sensors / "power1_input").write_text("212000000\n")
    config = directory / "ccpipe.toml"
    config.write_text(f'[publish.collectors.hwmon_power]\ndirectory = "{directory}/hwmon"\n')
    published = run_installed(directory, "publish", "--once", "--dry-run", "--config", str(config))
    metric = r"^board_power,cluster=\w+,hostname=\S+,stype=sensor,stype-id=hwmon0.power1,type=node"
    assert re.search(f"{metric} value=212.0 ", published, re.MULTILINE)


def test_example_package_passes_its_own_tests(installed: Path) -> None:
    """With the installed package, warnings being errors."""
    path = os.pathsep.join([str(installed), str(ROOT)])
    source = installed.parent / "source"
    run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=source, PYTHONPATH=path)


def test_type_checker_accepts_example_package(installed: Path) -> None:
    """Strictly, by the types of the public interface."""
    options = ("--strict", "--cache-dir", installed.parent / "cache")
    run_python("-m", "mypy", *options, "-p", "ccpipe_pdu", cwd=ROOT, MYPYPATH=str(installed))
