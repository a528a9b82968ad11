"""NVIDIA's library NVML: the real ``pynvml`` on a library made of Python."""

import errno
import sys
import time
from pathlib import Path

import pytest

from ccpipe.errors import MissingExtra
from ccpipe.node.linux.nvml import RELEASE, Driver
from tests.node.fake_nvml import DRIVER_NOT_LOADED, UNINITIALIZED, Card, Library, install


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Library:
    return install(monkeypatch, tmp_path, Card("00000000:C1:00.0", "GPU-1"))


def test_a_driver_that_was_reset_is_initialised_again(library: Library, tmp_path: Path) -> None:
    driver = Driver(str(tmp_path))
    assert driver.cards()[1] == 1
    library.count = UNINITIALIZED
    with pytest.raises(OSError, match="NVML: Uninitialized") as caught:
        driver.cards()
    assert caught.value.errno == 5
    library.count = 0
    assert driver.cards()[1] == 1
    assert library.begun == 2


def test_a_driver_that_is_not_loaded_is_an_absent_device(library: Library, tmp_path: Path) -> None:
    """NVML says so, and is asked again another time."""
    library.init = DRIVER_NOT_LOADED
    with pytest.raises(OSError, match="NVML: Driver Not Loaded") as caught:
        Driver(str(tmp_path)).cards()
    assert caught.value.errno == 19


def test_without_the_driver_no_library_is_loaded(tmp_path: Path) -> None:
    """A node without cards has no use for it."""
    assert not Driver(str(tmp_path)).is_there()
    with pytest.raises(FileNotFoundError):
        Driver(str(tmp_path)).cards()


@pytest.mark.usefixtures("library")
def test_a_driver_without_the_python_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Driver(str(tmp_path)).is_there()
    with pytest.raises(MissingExtra, match=r"ccpipe\[gpu\]"):
        Driver(str(tmp_path)).cards()


def test_released_driver_is_let_go_until_the_time_is_over(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each user of NVML shuts it down at its next use, and begins again afterwards."""
    now = time.monotonic()
    monkeypatch.setattr("ccpipe.node.linux.nvml.monotonic", lambda: now)
    monkeypatch.setattr(RELEASE, "_until", 0.0)  # and as it was before, afterwards
    drivers = [Driver(str(tmp_path)) for _ in range(2)]
    for driver in drivers:
        assert driver.cards()[1] == 1
    RELEASE.begin(60)
    for driver in drivers:
        for _ in range(2):
            with pytest.raises(OSError, match="NVML is released for another 60 s") as caught:
                driver.cards()
            assert caught.value.errno == errno.ENODEV
    assert (library.begun, library.ended) == (2, 2)
    now += 61
    for driver in drivers:
        assert driver.cards()[1] == 1
    assert (library.begun, library.ended) == (4, 2)


def test_card_that_is_added_later_is_seen(library: Library, tmp_path: Path) -> None:
    """NVML counts its cards when it is initialised, the driver lists them as they are."""
    cards = tmp_path / "proc/driver/nvidia/gpus"
    (cards / "0000:c1:00.0").mkdir(parents=True)
    driver = Driver(str(tmp_path))
    for _ in range(3):
        assert driver.cards()[1] == 1
    assert library.begun == 1
    (cards / "0000:c2:00.0").mkdir()
    library.cards.append(Card("00000000:C2:00.0", "GPU-2"))
    assert driver.cards()[1] == 2
    assert (library.begun, library.ended) == (2, 1)
