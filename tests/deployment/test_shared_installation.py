"""One installation on a file system that nodes share, mounted read-only by each of them."""

import compileall
import py_compile
import shutil
import site
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.site.shared import start_on_nodes


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment with a copy of ccpipe; its libraries are those of the tests."""
    directory = tmp_path_factory.mktemp("shared")
    words = [sys.executable, "-m", "venv", "--without-pip", str(directory)]
    subprocess.run(words, check=True, timeout=300)
    [packages] = directory.glob("lib/python3.*/site-packages")
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "ccpipe", packages / "ccpipe", ignore=unwanted)
    description = Path(str(metadata.distribution("ccpipe").locate_file("")))
    for path in description.glob("ccpipe-*.dist-info"):
        shutil.copytree(path, packages / path.name)
    (packages / "libraries.pth").write_text("\n".join(site.getsitepackages()))
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(packages / "ccpipe", quiet=1, invalidation_mode=mode)
    return directory


def test_shared_installation_serves_each_node_under_its_name(
    installation: Path, tmp_path: Path
) -> None:
    """Eight nodes publish at once from a directory to which none of them can write."""
    command = (
        installation / "bin" / "python",
        "-P",
        "-m",
        "ccpipe",
        "publish",
        "--once",
        "--dry-run",
    )
    starts = start_on_nodes(installation, 8, command, tmp_path)
    for name, output in starts.outputs.items():
        assert f"cpu_load,cluster=local,hostname={name},type=node value=" in output
