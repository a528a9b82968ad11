"""Zones of powercap: which part of which socket each is."""

from pathlib import Path

import pytest

from ccpipe.errors import DataError
from ccpipe.node.linux.powercap import zones
from tests.node.conftest import PACKED, unpack


def test_each_zone_has_its_part_and_socket(tmp_path: Path) -> None:
    """A part has its socket's number; the board has none; the second interface is left alone."""
    unpack((PACKED / "rapl-limits.txt").read_text(), tmp_path)
    found = [(zone.folder.name, zone.part, zone.socket) for zone in zones(str(tmp_path))]
    assert found == [
        ("intel-rapl:0", "package", "0"), ("intel-rapl:0:0", "dram", "0"),
        ("intel-rapl:1", "package", "1"), ("intel-rapl:2", "package", "1"),
        ("intel-rapl:3", "psys", ""),
    ]  # fmt: skip


def test_zones_of_another_kind_are_left_out(tmp_path: Path) -> None:
    """And a part without a socket is wrong."""
    for number, name in enumerate(("package-0", "npu", "dram")):
        folder = tmp_path / f"sys/class/powercap/intel-rapl:{number}"
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
    found = zones(str(tmp_path))
    assert next(found).part == "package"
    with pytest.raises(DataError, match="intel-rapl:2: dram belongs to no socket"):
        next(found)


def test_a_machine_without_any_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        next(zones(str(tmp_path)))
