"""What tests of GPUs share: the library of NVIDIA, made of Python."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.node.conftest import Told
from tests.node.fake_nvml import Card, Library, install

Load = Callable[..., Library]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Load:
    def put(*cards: Card, missing: set[str] | None = None) -> Library:
        return install(monkeypatch, tmp_path, *cards, missing=missing)

    return put


def of(values: Told, card: str) -> dict[str, Any]:
    return {name: value for (name, place), value in values.items() if place == card}
