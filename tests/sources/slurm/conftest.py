"""Slurm's commands for the tests of this directory."""

from pathlib import Path

import pytest

from tests.sources.slurm.programs import Programs


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path / "bin")
