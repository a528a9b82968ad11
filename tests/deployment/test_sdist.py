"""The source distribution and its wheel, installed and run without the working copy."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from ccpipe.bus.nats.server import NatsServer
from tests.cli.command import environment
from tests.paths import ROOT


def run(*command: object, **options: str) -> str:
    """Run a command to its end and return its stdout; fail with its stderr."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        cwd="/",
        env=environment(**options),
    )
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def kernel_paths() -> set[str]:
    return {
        path.relative_to(ROOT / "ccpipe").with_suffix("").as_posix()
        for path in (ROOT / "ccpipe").rglob("_*.pyx")
    }


def copy_sources(directory: Path) -> Path:
    """Copy the sources into a directory, without what was built from them."""
    unwanted = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "*.so", "__pycache__")
    return Path(shutil.copytree(ROOT, directory / "source", ignore=unwanted))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_failed_compilation_removes_older_kernel(tmp_path: Path) -> None:
    """An editable install falls back to Python; if kernels are required, it fails."""
    source = copy_sources(tmp_path)
    older = source / f"ccpipe/bus/nats/protocol/_frames{EXTENSION_SUFFIXES[0]}"
    older.touch()
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed")
    install = (*pip, "--prefix", tmp_path / "prefix", "--editable", source)
    run(*install, CC="false", CXX="false")
    assert not list(source.rglob("*.so"))
    with pytest.raises(AssertionError, match="returned non-zero exit status"):
        run(*install, CC="false", CXX="false", CCPIPE_REQUIRE_KERNELS="1")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_installation_from_sdist_runs_recipes_by_name(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """In a new environment, with recipes, units, nats.conf and pages."""
    source = copy_sources(tmp_path)
    run(sys.executable, "-m", "build", "--outdir", tmp_path, source)
    [archive] = tmp_path.glob("ccpipe-*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "compose.yaml"} < names
    assert not {name for name in names if name.endswith((".so", ".pyc"))}

    [wheel] = tmp_path.glob("ccpipe-*.whl")
    with zipfile.ZipFile(wheel) as contents:
        inside = set(contents.namelist())
    compiled = {name.partition(".")[0] for name in inside if name.endswith(".so")}
    assert compiled == {f"ccpipe/{path}" for path in kernel_paths()}
    static = ROOT / "ccpipe/dashboard/static"
    page = {path.relative_to(ROOT).as_posix() for path in static.rglob("*") if path.is_file()}
    assert page < inside

    home = tmp_path / "venv"
    run(sys.executable, "-m", "venv", home)
    run(home / "bin/python", "-m", "pip", "install", "--quiet", f"{wheel}[parquet]")
    program = home / "bin/ccpipe"
    where = run(home / "bin/python", "-c", "import ccpipe; print(ccpipe.__file__)").strip()
    assert Path(where).is_relative_to(home)

    settings = {"CCPIPE_BUS__SERVERS": nats_server.url, "XDG_STATE_HOME": str(tmp_path / "state")}
    run(program, "bridge", "parquet", "--dry-run", "--for", "1s", **settings)
    shown = run(program, "publish", "--once", "--dry-run", **settings)
    assert f"cpu_load,cluster=local,hostname={os.uname().nodename}" in shown

    written = run(program, "init", tmp_path / "site", "--units").splitlines()
    found = {str(Path(path).relative_to(tmp_path / "site")) for path in written}
    assert {"ccpipe.toml", "nats.conf", "systemd/ccpipe-publish.service"} < found
    ours = {f"bridges/{path.name}" for path in (ROOT / "bridges").glob("*.toml")}
    assert ours < found
    pages = Path(where).parent / "shipped" / "docs"
    assert (pages / "README.md").read_text() == (ROOT / "docs/README.md").read_text()
    assert (home / "share/man/man1/ccpipe.1").is_file()
