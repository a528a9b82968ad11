"""A real Slurm for the tests of this folder."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SCRIPT, Cluster


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Run a cluster; without root or the packages the test is skipped by name.

    Its parameter is a tuple of lines for slurm.conf.
    """
    reason = subprocess.run(
        [sys.executable, str(SCRIPT), "check"], capture_output=True, text=True, check=False
    ).stderr
    if reason:
        if os.environ.get("CCPIPE_TESTS_STRICT"):
            pytest.fail(reason)
        pytest.skip(reason)
    tmp_path.chmod(0o755)
    cluster = Cluster(tmp_path)
    lines: tuple[str, ...] = getattr(request, "param", ())
    cluster.control("up", *lines)
    try:
        cluster.start_bridge()
        yield cluster
    finally:
        if cluster.bridge is not None:
            cluster.bridge.kill()
            cluster.bridge.wait()
        cluster.log.close()
        cluster.control("down")
