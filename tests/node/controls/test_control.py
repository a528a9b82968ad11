"""Controls: which device is meant, what a value says, and files that are all set or none."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError, UsageError
from ccpipe.node.controls.control import device, joined, quantity, set_files

WATTS = {"": 1.0, "W": 1.0, "mW": 1e-3}
READ_ONLY = Path("/proc/sys/kernel/ostype")
"""A file that the kernel lets nobody write, root neither; it says Linux."""


def test_the_node_is_meant_unless_a_device_is_named() -> None:
    """With or without the recommended type-id=0."""
    assert device({}, "socket", {"0": 1}) is None
    assert device({"type": "node", "type-id": "0"}, "socket", {"0": 1}) is None
    assert device({"type": "socket", "type-id": "1"}, "socket", {"0": 1, "1": 1}) == "1"


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ({"type": "core", "type-id": "0"}, "tag type is core"),
        ({"type": "socket", "type-id": "7"}, "no socket '7' here; there are 0"),
        ({"type": "socket"}, "no socket ''"),
    ],
)
def test_a_device_that_is_not_here_is_refused(tags: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        device(tags, "socket", {"0": 1})


@pytest.mark.parametrize(("text", "value"), [("85", 85), ("85.5 W", 85.5), (" 200mW ", 0.2)])
def test_a_number_may_have_a_unit(text: str, value: float) -> None:
    """Without one it is in the control's own unit."""
    assert quantity(text, WATTS) == pytest.approx(value)


@given(st.text())
def test_any_text_is_a_number_or_an_error(text: str) -> None:
    """Never negative, never infinite, never another exception."""
    with contextlib.suppress(DataError):
        assert 0 <= quantity(text, WATTS) < 1e16


def test_what_is_of_the_node_only_says_so() -> None:
    with pytest.raises(UsageError, match="tag type is socket; it must be node"):
        device({"type": "socket", "type-id": "0"}, "socket", {})


def test_files_are_set_together(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("powersave\n")
    two.write_text("10000\n")
    set_files({one: "user", two: "9"})
    assert (one.read_text(), two.read_text()) == ("user", "9")


def test_where_one_file_cannot_be_set_none_is(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.write_text("powersave\n")
    with pytest.raises(OSError, match="ostype"):
        set_files({one: "performance", READ_ONLY: "Windows"})
    assert one.read_text() == "powersave"


def test_no_file_is_made(tmp_path: Path) -> None:
    """What the kernel has not, it does not get."""
    with pytest.raises(FileNotFoundError):
        set_files({tmp_path / "absent": "1"})
    assert not (tmp_path / "absent").exists()


def test_a_value_that_is_not_kept_is_an_error() -> None:
    """A limit that the firmware has locked takes every write and stays what it was."""
    with pytest.raises(OSError, match="keeps '', not 85"):
        set_files({Path("/dev/null"): "85"})


def test_a_value_that_stands_already_is_not_written() -> None:
    set_files({READ_ONLY: "Linux"})


def test_values_of_several_devices_are_told_shortly() -> None:
    assert joined({"0": "a", "1": "a"}) == "a"
    assert joined({"0": "a", "1": "b"}) == "0: a, 1: b"
