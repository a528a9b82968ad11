"""What a release consists of: ``make wheels`` and ``make bundle`` build and try it themselves."""

import subprocess
import tomllib
from pathlib import Path

from scripts.bundle import INSTALL
from scripts.wheels import VERSIONS
from tests.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_wheels_are_built_for_every_declared_python() -> None:
    """A version that the package declares as supported has a wheel."""
    prefix = "Programming Language :: Python :: 3."
    declared = {each.removeprefix(prefix) for each in PROJECT["classifiers"] if prefix in each}
    assert {f"3.{minor}" for minor in declared} <= set(VERSIONS)
    assert f">={VERSIONS[0]}" == PROJECT["requires-python"]


def test_install_script_names_missing_python(tmp_path: Path) -> None:
    """Without a fitting Python it says what to type, and exits with EX_UNAVAILABLE."""
    script = tmp_path / "install.sh"
    script.write_text(
        INSTALL.format(
            versions="3.98 3.97", all_versions="3.98, 3.97", extras="all", version="0.1.0"
        )
    )
    target = tmp_path / "target"
    done = subprocess.run(
        ["sh", script, target], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 69
    assert done.stderr == (
        "install.sh: no python3.98, 3.97 was found: ./install.sh DIRECTORY PYTHON\n"
    )
    assert not target.exists()
