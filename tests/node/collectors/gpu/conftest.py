"""What tests of GPUs share: the library of NVIDIA, made of Python."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.node.fake_nvml import Card, Library, install

Load = Callable[..., Library]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Load:
    def put(*cards: Card, missing: set[str] | None = None) -> Library:
        return install(monkeypatch, tmp_path, *cards, missing=missing)

    return put
