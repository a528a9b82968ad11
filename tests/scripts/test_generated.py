"""Files that are generated: each is as its script would write it now."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

SCRIPTS = {
    "collector_pages.py": "docs/collectors",
    "generate_dashboards.py": "bridges/grafana/dashboards",
    "generate_kubernetes.py": "bridges/kubernetes",
    "generate_reference.py": "docs/reference",
    "sonar_pages.py": "docs/sonar",
    "store_pages.py": "docs/stores",
}
"""The directory of each; in ``docs/`` a page names the command."""


def texts(directory: Path) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_text() for path in files}


@pytest.mark.parametrize(("script", "directory"), SCRIPTS.items())
def test_generated_files_are_current(script: str, directory: str, tmp_path: Path) -> None:
    """None is missing, and none is obsolete."""
    made = tmp_path / "made"
    shutil.copytree(ROOT / directory, made)
    found = texts(ROOT / directory)
    for name, text in found.items():
        if script in text or name.endswith(".json"):
            (made / name).unlink()
    subprocess.run([sys.executable, ROOT / "scripts" / script, made], check=True)
    assert texts(made) == found
    command = f"python scripts/{script} {directory}`"
    assert directory.startswith("bridges/") or any(command in text for text in found.values())
