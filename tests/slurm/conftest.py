"""A real Slurm for the tests of this directory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SCRIPT, Cluster


@pytest.fixture(scope="session")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Cluster]:
    """Run a cluster; without root or the packages the test is skipped by name.

    Its parameter is a tuple of lines for slurm.conf. Tests with the same lines share one cluster.
    """
    reason = subprocess.run(
        [sys.executable, str(SCRIPT), "check"], capture_output=True, text=True, check=False
    ).stderr
    if reason:
        if os.environ.get("CCPIPE_TESTS_STRICT"):
            pytest.fail(reason)
        pytest.skip(reason)
    lines: tuple[str, ...] = getattr(request, "param", ())
    if "cgroup" in " ".join(lines) and not Path("/sys/fs/cgroup/freezer").is_dir():
        pytest.skip("this kernel has no control groups of version 1")
    directory = tmp_path_factory.mktemp("slurm")
    for path in (directory, directory.parent, directory.parent.parent):
        path.chmod(path.stat().st_mode | 0o055)  # jobs run as other users, too
    cluster = Cluster(directory)
    try:
        cluster.control("up", *lines)
        yield cluster
    finally:  # also after a failed start or Ctrl-C
        cluster.close()
        cluster.control("down")
