"""The owners of processes in captured trees."""

import re
from pathlib import Path

import pytest

from ccpipe.node.collectors.sonar import process
from ccpipe.node.linux.process_table import owner_of as of_directory

_EFFECTIVE_USER = re.compile(rb"^Uid:\t\d+\t(\d+)\t", re.MULTILINE)


@pytest.fixture(autouse=True)
def owners_of_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file ``status`` of a tree name the owner: its directories belong to the tester."""

    def owner_of(directory: str) -> int | None:
        if directory.startswith("/proc/"):
            return of_directory(directory)
        status = Path(directory, "status")
        found = _EFFECTIVE_USER.search(status.read_bytes()) if status.exists() else None
        return int(found[1]) if found else None

    monkeypatch.setattr(process, "owner_of", owner_of)
