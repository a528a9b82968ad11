"""NVIDIA's library NVML: the real ``pynvml`` on a library made of Python."""

import errno
import sys
import time
from pathlib import Path

import pytest

from ccpipe.errors import MissingExtra
from ccpipe.node.linux.nvml import RELEASE, Driver
from tests.node.fake_nvml import DRIVER_NOT_LOADED, UNINITIALIZED, FakeGpu, Library, install


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Library:
    return install(monkeypatch, tmp_path, FakeGpu("00000000:C1:00.0", "GPU-1"))


def test_driver_is_initialised_again_after_reset(library: Library, tmp_path: Path) -> None:
    driver = Driver(str(tmp_path))
    assert driver.gpus()[1] == 1
    library.count = UNINITIALIZED
    with pytest.raises(OSError, match="NVML: Uninitialized") as caught:
        driver.gpus()
    assert caught.value.errno == 5
    library.count = 0
    assert driver.gpus()[1] == 1
    assert library.begun == 2


def test_driver_raises_enodev_if_not_loaded(library: Library, tmp_path: Path) -> None:
    """The error is NVML's, and the next call tries again."""
    library.init = DRIVER_NOT_LOADED
    with pytest.raises(OSError, match="NVML: Driver Not Loaded") as caught:
        Driver(str(tmp_path)).gpus()
    assert caught.value.errno == 19


def test_library_is_not_loaded_without_driver(tmp_path: Path) -> None:
    """A node without GPUs does not need it."""
    assert not Driver(str(tmp_path)).is_there()
    with pytest.raises(FileNotFoundError):
        Driver(str(tmp_path)).gpus()


@pytest.mark.usefixtures("library")
def test_driver_names_missing_extra_without_python_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Driver(str(tmp_path)).is_there()
    with pytest.raises(MissingExtra, match=r"ccpipe\[nvidia\]"):
        Driver(str(tmp_path)).gpus()


def test_driver_is_released_until_time_is_over(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each user of NVML shuts it down at its next use, and initialises it again afterwards."""
    now = time.monotonic()
    monkeypatch.setattr("ccpipe.node.linux.nvml.monotonic", lambda: now)
    monkeypatch.setattr(RELEASE, "_until", 0.0)  # and as it was before, afterwards
    drivers = [Driver(str(tmp_path)) for _ in range(2)]
    for driver in drivers:
        assert driver.gpus()[1] == 1
    RELEASE.begin(60)
    for driver in drivers:
        for _ in range(2):
            with pytest.raises(OSError, match="NVML is released for another 60 s") as caught:
                driver.gpus()
            assert caught.value.errno == errno.ENODEV
    assert (library.begun, library.ended) == (2, 2)
    now += 61
    for driver in drivers:
        assert driver.gpus()[1] == 1
    assert (library.begun, library.ended) == (4, 2)


def test_driver_finds_gpu_added_later(library: Library, tmp_path: Path) -> None:
    """NVML counts GPUs when it is initialised, the driver lists the present ones."""
    cards = tmp_path / "proc/driver/nvidia/gpus"
    (cards / "0000:c1:00.0").mkdir(parents=True)
    driver = Driver(str(tmp_path))
    for _ in range(3):
        assert driver.gpus()[1] == 1
    assert library.begun == 1
    (cards / "0000:c2:00.0").mkdir()
    library.gpus.append(FakeGpu("00000000:C2:00.0", "GPU-2"))
    assert driver.gpus()[1] == 2
    assert (library.begun, library.ended) == (2, 1)
