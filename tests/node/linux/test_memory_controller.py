"""What to count for the memory's traffic, from trees that the kernel could show."""

from pathlib import Path

import pytest

from ccpipe.errors import DataError
from ccpipe.node.linux.memory_controller import Traffic, traffic
from ccpipe.node.linux.perf_event import PerfEvent
from tests.node.conftest import Root

DEVICES = "sys/bus/event_source/devices"


def write(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return folder


def test_intel_counts_as_the_kernel_says(root: Root) -> None:
    """Reads and writes of 64 bytes, on each socket; the free-running device counts them again."""
    root.show("perf/first")
    read, write = PerfEvent(24, 0x0304), PerfEvent(24, 0x0C04)
    events = [(read, 64.0), (write, 64.0)]
    found = list(traffic(Path(str(root), DEVICES), zen_3=False))
    assert found == [Traffic(0, events), Traffic(1, events)]


def test_free_running_counters_do_where_there_are_no_others(tmp_path: Path) -> None:
    """As on Intel's desktop processors; a unit that is not known is passed over."""
    write(
        tmp_path / "uncore_imc_free_running_0", type="30", cpumask="0",
        format__event="config:0-7", format__umask="config:8-15",
        events__data_read="event=0xff,umask=0x20", events__data_total="event=0xff,umask=0x10",
        events__data_write="event=0xff,umask=0x30",
    )  # fmt: skip
    folder = tmp_path / "uncore_imc_free_running_0/events"
    for name, unit in (("data_read", "MiB"), ("data_write", "MiB"), ("data_total", "furlong")):
        (folder / f"{name}.unit").write_text(f"{unit}\n")
        (folder / f"{name}.scale").write_text("6.103515625e-5\n")
    events = [(PerfEvent(30, 0x20FF), 64.0), (PerfEvent(30, 0x30FF), 64.0)]
    assert list(traffic(tmp_path, zen_3=False)) == [Traffic(0, events)]


def test_amd_counts_each_controller(tmp_path: Path) -> None:
    """``umc_cas_cmd.all`` of Zen 4; its data fabric is not asked."""
    write(tmp_path / "amd_umc_0", type="40", cpumask="0")
    write(tmp_path / "amd_umc_1", type="41", cpumask="96")
    write(tmp_path / "amd_df", type="11", cpumask="0,96")
    assert list(traffic(tmp_path, zen_3=False)) == [
        Traffic(0, [(PerfEvent(40, 0x0A), 64)]),
        Traffic(96, [(PerfEvent(41, 0x0A), 64)]),
    ]


def test_amd_before_zen_4_counts_in_the_data_fabric(tmp_path: Path) -> None:
    """Eight channels on each socket; bits 8 to 11 of an event's number are bits 32 to 35."""
    write(tmp_path / "amd_df", type="11", cpumask="0,64")
    found = list(traffic(tmp_path, zen_3=True))
    assert [one.cpu for one in found] == [0, 64] * 8
    configs = [event.config for one in found if one.cpu == 0 for event, _ in one.events]
    assert configs == [
        0x3807, 0x3847, 0x3887, 0x38C7, 0x100003807, 0x100003847, 0x100003887, 0x1000038C7,
    ]  # fmt: skip


def test_no_controllers_are_nothing_to_count(tmp_path: Path) -> None:
    assert list(traffic(tmp_path / "nowhere", zen_3=True)) == []


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("cpumask", "all", "'all' is not a list of hardware threads"),
        ("events__cas_count_read", "event=0x04,chmask=1", "'chmask=1' is not understood"),
        ("events__cas_count_read", "event=four", "'event=four' is not understood"),
        ("events__cas_count_read.scale", "much", "'much' is not a number"),
        ("type", "imc", "'imc' is not a number"),
    ],
)
def test_what_the_kernel_would_not_write_is_named(
    tmp_path: Path, name: str, content: str, reason: str
) -> None:
    files = {
        "type": "24", "cpumask": "0", "format__event": "config:0-7",
        "events__cas_count_read": "event=0x04", "events__cas_count_read.unit": "MiB",
        "events__cas_count_read.scale": "1",
    }  # fmt: skip
    write(tmp_path / "uncore_imc_0", **files | {name: content})
    with pytest.raises(DataError, match=reason):
        list(traffic(tmp_path, zen_3=False))
