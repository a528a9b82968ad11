"""The cards of all makes on one node."""

import shutil
from pathlib import Path

import pytest

from ccpipe.node.collectors.sonar.cards import Cards
from ccpipe.node.collectors.sonar.envelope import Errors
from tests.node.conftest import Root
from tests.node.fake_nvml import Card, install


def test_cards_of_all_makes_are_told(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each make numbers its own; a process may use several."""
    root.show("kfd/first")
    folder = Path(shutil.copytree(root.path, tmp_path / "both", symlinks=True))
    answers = {"GetComputeRunningProcesses_v3": [(4711, 2**20)]}
    install(monkeypatch, folder, Card("00000000:01:00.0", "GPU-a", answers))
    errors = Errors()
    cards = Cards(node="n1", root=str(folder))
    gpus, processes = cards.sample(errors)
    uuids = ["GPU-a", "9a8c2bdcf0a0f2b1", "n1/00000000:03:00.0"]
    assert [(gpu.index, gpu.uuid) for gpu in gpus] == list(zip((0, 0, 1), uuids, strict=True))
    assert [use.uuid for use in processes[4711]] == uuids
    assert [card.manufacturer for card in cards.describe(errors)] == ["NVIDIA", "AMD", "AMD"]
    assert not errors.texts
