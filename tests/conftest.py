"""What all tests share: real programs, found or reported missing by name."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ccpipe", deadline=None, max_examples=150)
settings.load_profile("ccpipe")


def program(name: str, package: str) -> Path:
    """Return the path of a real program that a Debian package brings.

    Where it is missing the test is skipped by name with the reason; in CI, which sets
    ``CCPIPE_TESTS_STRICT``, it fails.
    """
    path = shutil.which(name)
    if path is None:
        reason = f"{name} is not installed: apt-get install {package} (scripts/install-debian.sh)"
        if os.environ.get("CCPIPE_TESTS_STRICT"):
            pytest.fail(reason)
        pytest.skip(reason)
    return Path(path)
