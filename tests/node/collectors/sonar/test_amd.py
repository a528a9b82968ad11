"""AMD GPUs as Sonar reports them: ``/sys/class/drm`` and ``/sys/class/kfd``."""

import shutil
from pathlib import Path

import pytest

from ccpipe.formats.sonar import SampleGpu, SampleProcessGpu, SysinfoGpuCard
from ccpipe.node.collectors.sonar.envelope import Errors
from ccpipe.node.collectors.sonar.gpus import AmdGpus, Gpus
from tests.node.conftest import Root, unpack
from tests.node.fake_nvml import FakeGpu, install

FULL, SPARSE = "9a8c2bdcf0a0f2b1", "n1/00000000:03:00.0"


def made(root: object) -> AmdGpus:
    return AmdGpus(node="n1", root=str(root))


def test_amd_gpus_report_their_use(root: Root) -> None:
    """In KB, watts, MHz and percent; one without a unique id is named by node and address."""
    root.show("kfd/first")
    errors = Errors()
    gpus, _ = made(root).sample(errors)
    assert gpus == [
        SampleGpu(
            index=0,
            uuid=FULL,
            fan=20,
            memory=16 * 2**20,
            ce_util=97,
            memory_util=25,
            temperature=45,
            power=300,
            power_limit=280,
            ce_clock=800,
            memory_clock=1600,
        ),
        SampleGpu(index=1, uuid=SPARSE),
    ]
    assert not errors.texts


def test_amd_gpus_report_memory_of_processes(root: Root) -> None:
    """By the GPU's number in the compute driver; zero bytes are omitted."""
    root.show("kfd/first")
    _, processes = made(root).sample(Errors())
    assert processes == {
        4711: [
            SampleProcessGpu(0, FULL, gpu_memory=8 * 2**20, gpu_memory_util=12.5),
            SampleProcessGpu(1, SPARSE, gpu_memory=2**19, gpu_memory_util=50.0),
        ],
        4712: [SampleProcessGpu(0, FULL, gpu_memory=4)],
    }


def test_amd_gpus_are_described(root: Root) -> None:
    """The model is a number if the GPU has no name."""
    root.show("kfd/first")
    errors = Errors()
    assert made(root).describe(errors) == [
        SysinfoGpuCard(
            index=0,
            uuid=FULL,
            address="00000000:C1:00.0",
            manufacturer="AMD",
            model="AMD INSTINCT MI210",
            driver="6.3.6",
            firmware="113-D67301-059",
            memory=64 * 2**20,
            power_limit=280,
            max_power_limit=300,
            max_ce_clock=1700,
            max_memory_clock=1600,
        ),
        SysinfoGpuCard(
            index=1,
            uuid=SPARSE,
            address="00000000:03:00.0",
            manufacturer="AMD",
            model="0x73bf",
            driver="6.3.6",
            memory=2**20,
        ),
    ]
    assert not errors.texts


def test_amd_gpus_omit_only_values_of_bad_file(root: Root, tmp_path: Path) -> None:
    root.show("kfd/first")
    directory = tmp_path / "kfd-first"
    (directory / "sys/class/drm/card1/device/mem_info_vram_total").write_text("much\n")
    errors = Errors()
    full, sparse = made(directory).sample(errors)[0]
    assert (full.ce_util, sparse) == (97, SampleGpu(index=1, uuid=SPARSE))
    [text] = errors.texts
    assert "mem_info_vram_total: 'much' is not a number" in text


def test_amd_gpus_encode_any_content(root: Root, tmp_path: Path) -> None:
    """No measure is negative; invalid UTF-8 becomes question marks."""
    root.show("kfd/first")
    device = tmp_path / "kfd-first/sys/class/drm/card0/device"
    (device / "gpu_busy_percent").write_text("-1\n")
    (device / "mem_info_vram_total").write_text("-4096\n")
    (device / "product_name").write_bytes(b"MI\xff\n")
    [gpu, _], _ = made(tmp_path / "kfd-first").sample(Errors())
    [card, _] = made(tmp_path / "kfd-first").describe(Errors())
    assert (gpu.ce_util, gpu.memory_util) == (0, 0)
    assert (card.model, card.memory) == ("MI?", 0)


def test_amd_gpus_omit_only_processes_if_one_is_bad(tmp_path: Path, root: Root) -> None:
    root.show("kfd/first")
    (tmp_path / "kfd-first/sys/class/kfd/kfd/proc/4711/vram_20").write_text("-5\n")
    errors = Errors()
    gpus, _ = made(tmp_path / "kfd-first").sample(errors)
    assert len(gpus) == 2
    [text] = errors.texts
    assert "vram_20: '-5' is not a counter" in text


def test_amd_gpus_are_empty_without_gpu(tmp_path: Path) -> None:
    for other in ("", "## /sys/class/drm/card0/device/vendor\n0x10de\n"):
        unpack(f"@ first\n{other}@ second\n", tmp_path)
        errors = Errors()
        assert made(tmp_path).sample(errors) == ([], {})
        assert made(tmp_path).describe(errors) == []
        assert not errors.texts


def test_gpus_of_all_vendors_are_reported(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.show("kfd/first")
    directory = Path(shutil.copytree(root.path, tmp_path / "both", symlinks=True))
    answers = {"GetComputeRunningProcesses_v3": [(4711, 2**20)]}
    install(monkeypatch, directory, FakeGpu("00000000:01:00.0", "GPU-a", answers))
    errors = Errors()
    cards = Gpus(node="n1", root=str(directory))
    gpus, processes = cards.sample(errors)
    uuids = ["GPU-a", "9a8c2bdcf0a0f2b1", "n1/00000000:03:00.0"]
    assert [(gpu.index, gpu.uuid) for gpu in gpus] == list(zip((0, 0, 1), uuids, strict=True))
    assert [use.uuid for use in processes[4711]] == uuids
    assert [card.manufacturer for card in cards.describe(errors)] == ["NVIDIA", "AMD", "AMD"]
    assert not errors.texts
