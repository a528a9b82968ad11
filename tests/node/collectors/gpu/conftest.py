"""Fixtures of tests of GPUs: NVIDIA's library, written in Python."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.node.conftest import Reported
from tests.node.fake_nvml import FakeGpu, Library, install

Load = Callable[..., Library]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Load:
    def put(*cards: FakeGpu, missing: set[str] | None = None) -> Library:
        return install(monkeypatch, tmp_path, *cards, missing=missing)

    return put


def of(values: Reported, card: str) -> dict[str, Any]:
    return {name: value for (name, place), value in values.items() if place == card}
