"""ClusterCockpit's own programs, where they were built: what tests beside them share."""

import shutil
from pathlib import Path

import pytest


def peer(name: str) -> Path:
    """Return a program of ClusterCockpit; no package brings it, so the test is skipped without."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not on PATH: build github.com/ClusterCockpit/{name} with Go")
    return Path(path)
