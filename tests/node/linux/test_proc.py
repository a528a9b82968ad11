"""Reading ``/proc`` and ``/sys``."""

from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.lineprotocol import encode
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.linux.powercap import zones
from ccpipe.node.linux.proc import Mount, mounts
from tests.node.conftest import TREES


@pytest.mark.parametrize(
    ("before", "now", "gains"),
    [
        (None, [1], None),
        ([1, 2], [1, 5], [0, 3]),
        ([5, 5], [4, 9], None),
        ([1], [1, 2], None),
        ([0], [2**64 - 1], None),
        ([2**64 - 10], [2**64 - 1], [9]),
    ],
)
def test_gains_are_never_negative(
    before: list[int] | None, now: list[int], gains: list[int] | None
) -> None:
    """There are none for a first reading, a decreased counter and one that jumped."""
    assert proc.gained(before, now) == gains


@given(st.binary(min_size=1, max_size=20))
def test_tag_can_be_written_for_any_name(name: bytes) -> None:
    """A device, interface or mount point may have any bytes; printable ones stay as they are."""
    text = name.decode(errors="surrogateescape")
    tag = proc.tag(text)
    assert tag == text or "%" in tag
    assert encode([_named(tag)])


def _named(tag: str) -> Message:
    return metric("m", 1, time=1, tags={"stype-id": tag})


def test_names_are_sorted_by_number(tmp_path: Path) -> None:
    """cpu2 is before cpu10; other names are skipped, and no name at all raises OSError."""
    for name in ("cpu10", "cpu2", "cpufreq", "cpu0"):
        (tmp_path / name).touch()
    assert proc.names(tmp_path, "cpu[0-9]*") == ["cpu0", "cpu2", "cpu10"]
    with pytest.raises(FileNotFoundError, match="nothing here is named node"):
        proc.names(tmp_path, "node*")


@pytest.mark.parametrize(
    ("text", "number", "counter"),
    [("-5\n", -5, None), ("7", 7, 7), ("18446744073709551615", None, 2**64 - 1), ("", None, None)],
)
def test_counter_is_read_from_file_of_one_number(
    tmp_path: Path, text: str, number: int | None, counter: int | None
) -> None:
    """A counter has 64 bits and no sign; anything else raises DataError."""
    path = tmp_path / "file"
    path.write_text(text)
    for read, expected in ((proc.number, number), (proc.counter, counter)):
        if expected is None:
            with pytest.raises(DataError, match=str(path)):
                read(path)
        else:
            assert read(path) == expected


def test_word_is_none_if_file_cannot_be_read(tmp_path: Path) -> None:
    """A directory fails to be read, as a sleeping sensor does; so does a missing file."""
    for path in (tmp_path, tmp_path / "absent"):
        assert proc.word(path) is None
        assert proc.number(path) is None
        assert proc.counter(path) is None
        with pytest.raises(OSError, match=str(path)):
            proc.text(path)


def test_text_reads_long_file_whole(tmp_path: Path) -> None:
    """The kernel returns files in chunks."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789" * 50_000 + b"\xff")
    text = proc.text(path)
    assert len(text) == 500_001
    assert text.encode(errors="surrogateescape") == path.read_bytes()


@pytest.mark.parametrize(
    ("text", "numbers"), [("0-2,8\n", [0, 1, 2, 8]), ("5", [5]), ("\n", []), ("7-7,3", [7, 3])]
)
def test_listed_expands_ranges(text: str, numbers: list[int]) -> None:
    """As the kernel writes them: numbers and ranges, or nothing."""
    assert proc.listed("cpulist", text) == numbers


@pytest.mark.parametrize("text", ["x", "1-", "5-3", "1 2", "-1", "0-999999999", "٣"])
def test_listed_rejects_invalid_list(text: str) -> None:
    with pytest.raises(DataError, match="cpulist: .* is not a list of hardware threads"):
        proc.listed("cpulist", text)


def test_mounts_lists_all_file_systems_in_order() -> None:
    found = mounts(str(TREES / "made-mounts/first"))
    assert found[0] == Mount("proc", "/proc", "proc")
    assert Mount("/dev/sdb1", "/scratch disk", "xfs") in found
    assert Mount("/dev/sde1", "/odd\nname", "ext4") in found
    assert [mount.kind for mount in found if mount.point == "/hidden"] == ["ext4", "tmpfs"]


def test_mounts_agrees_with_psutil() -> None:
    found = [mount.point for mount in mounts()]
    assert found == [partition.mountpoint for partition in psutil.disk_partitions(all=True)]
    assert "/" in found


def test_mounts_skips_file_system_without_mount_point(tmp_path: Path) -> None:
    """A tag could not name it."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mounts").write_text("/dev/sda  ext4 rw 0 0\n/dev/sdb / ext4 rw 0 0\n")
    assert mounts(str(tmp_path)) == (Mount("/dev/sdb", "/", "ext4"),)


def test_mounts_raises_oserror_without_list(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="proc/self/mounts"):
        mounts(str(tmp_path))


def test_zones_skips_other_kinds(tmp_path: Path) -> None:
    """A part without a socket is an error."""
    for number, name in enumerate(("package-0", "npu", "dram")):
        directory = tmp_path / f"sys/class/powercap/intel-rapl:{number}"
        directory.mkdir(parents=True)
        (directory / "name").write_text(f"{name}\n")
    found = zones(str(tmp_path))
    assert next(found).part == "package"
    with pytest.raises(DataError, match="intel-rapl:2: dram belongs to no socket"):
        next(found)
