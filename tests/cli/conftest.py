"""Fixtures for tests of commands."""

import functools
import time
from collections.abc import Iterator

import pytest

from tests.cli.acct.acct_command import Acct, run


@pytest.fixture
def acct(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Acct]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield functools.partial(run, capsys)
    monkeypatch.undo()
    time.tzset()
