"""Where servers that run on Java are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

TOOL = ROOT / "scripts/java_servers.py"


def jars(server: str) -> Path:
    """Return the directory of a server's jars; skip or fail where they are not installed."""
    command = [sys.executable, str(TOOL), "path", server]
    done = subprocess.run(command, capture_output=True, check=True)
    path = Path(done.stdout.decode().strip())
    if not path.is_dir():
        reason = f"{server} is not installed: python3 scripts/java_servers.py install {server}"
        if os.environ.get("CCPIPE_TESTS_STRICT"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path
