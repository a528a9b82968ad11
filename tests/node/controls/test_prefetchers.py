"""Hardware prefetchers: a register in ``/dev/cpu/*/msr``, of which one bit is set."""

import json
from pathlib import Path

import pytest

from ccpipe.errors import DataError, UsageError
from ccpipe.node.controls.control import Control, ControlChange
from ccpipe.node.controls.prefetchers import Prefetchers
from tests.node.controls.conftest import NODE, Put

REGISTER = 0x1A4
THREAD_1 = {"type": "hwthread", "type-id": "1"}
CPUINFO = "processor\t: 0\nvendor_id\t: {}\ncpu family\t: {}\nmodel\t\t: {}\nmodel name\t: x\n"
UNWRITABLE = Path("/proc/self/limits")
"""A read-only file of constant text that extends beyond the register's offset."""


class Machine:
    """The registers of three hardware threads, as files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.set_processor("GenuineIntel", 6, 106)
        for thread in range(3):
            self.path(thread).parent.mkdir(parents=True)
            self.path(thread).write_bytes(b"\xee" * REGISTER + bytes(8) + b"\xee" * 8)
        (root / "dev/cpu/microcode").touch()

    def path(self, thread: int) -> Path:
        return self.root / f"dev/cpu/{thread}/msr"

    def set_processor(self, vendor: str, family: int, model: int) -> None:
        (self.root / "proc").mkdir(exist_ok=True)
        (self.root / "proc/cpuinfo").write_text(CPUINFO.format(vendor, family, model))

    def set(self, thread: int, value: int) -> None:
        content = self.path(thread).read_bytes()
        number = value.to_bytes(8, "little")
        self.path(thread).write_bytes(content[:REGISTER] + number + content[REGISTER + 8 :])

    def values(self) -> list[int]:
        """Return the registers; nothing else may have changed."""
        found = []
        for thread in range(3):
            content = self.path(thread).read_bytes()
            assert content[:REGISTER] + content[REGISTER + 8 :] == b"\xee" * (REGISTER + 8)
            found.append(int.from_bytes(content[REGISTER : REGISTER + 8], "little"))
        return found

    def controls(self) -> dict[str, Control]:
        return Prefetchers(root=str(self.root)).controls()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def controls(machine: Machine) -> dict[str, Control]:
    return machine.controls()


@pytest.mark.parametrize(
    ("name", "bit"), [("l2_hwpf", 0), ("l2_adj_pf", 1), ("l1_dcu", 2), ("l1_dcu_ip", 3)]
)
def test_each_prefetcher_is_one_bit(
    controls: dict[str, Control], put: Put, machine: Machine, name: str, bit: int
) -> None:
    """Names are LIKWID's; 1 is off. The register's other bits stay as they are."""
    control = f"prefetcher.{name}"
    assert controls[control].get(THREAD_1) == "on"
    machine.set(1, 2**63 + 0x70)
    assert put(control, "off", THREAD_1) == ControlChange("on", "off")
    assert machine.values() == [0, 2**63 + 0x70 + (1 << bit), 0]
    assert controls[control].get(THREAD_1) == "off"
    machine.set(1, 2**64 - 1)
    assert put(control, "on", THREAD_1) == ControlChange("off", "on")
    assert machine.values() == [0, 2**64 - 1 - (1 << bit), 0]


def test_node_reports_and_sets_every_hardware_thread(
    controls: dict[str, Control], put: Put, machine: Machine
) -> None:
    """``1`` and ``0`` are LIKWID's values."""
    machine.set(2, 0b1001)
    reported = json.loads(controls["prefetcher.l2_hwpf"].get(NODE))
    assert reported == {"0": "on", "1": "on", "2": "off"}
    assert put("prefetcher.l2_hwpf", "0", NODE) == ControlChange("0: on, 1: on, 2: off", "off")
    assert machine.values() == [1, 1, 0b1001]
    assert put("prefetcher.l2_hwpf", "1", NODE) == ControlChange("off", "on")
    assert machine.values() == [0, 0, 0b1000]


def test_report_omits_unreadable_hardware_thread(
    controls: dict[str, Control], machine: Machine
) -> None:
    machine.set(1, 0b0110)
    machine.path(2).write_bytes(b"short")
    reported = json.loads(controls["prefetcher"].get(NODE))
    on = dict.fromkeys(("l2_hwpf", "l2_adj_pf", "l1_dcu", "l1_dcu_ip"), "on")
    assert reported == {"hwthread:0": on, "hwthread:1": {**on, "l2_adj_pf": "off", "l1_dcu": "off"}}
    assert list(json.loads(controls["prefetcher"].get(THREAD_1))) == ["hwthread:1"]


@pytest.mark.parametrize("value", ["", "ON", "2", "true", "on off", "0x0f"])
def test_other_values_change_nothing(put: Put, machine: Machine, value: str) -> None:
    with pytest.raises(DataError, match="neither on nor off"):
        put("prefetcher.l2_hwpf", value, NODE)
    assert machine.values() == [0, 0, 0]


def test_failed_register_restores_others(
    controls: dict[str, Control], put: Put, machine: Machine
) -> None:
    machine.path(2).unlink()
    machine.path(2).symlink_to(UNWRITABLE)
    state = controls["prefetcher.l1_dcu"].get({"type": "hwthread", "type-id": "2"})
    for thread in range(2):
        machine.set(thread, 0b0100 if state == "off" else 0)
    before = [machine.path(thread).read_bytes() for thread in range(2)]
    with pytest.raises(OSError, match="dev/cpu/2/msr"):
        put("prefetcher.l1_dcu", "on" if state == "off" else "off", NODE)
    assert [machine.path(thread).read_bytes() for thread in range(2)] == before


def test_put_raises_when_value_is_not_kept(put: Put, machine: Machine) -> None:
    """A hypervisor may ignore what is written."""
    machine.path(1).unlink()
    machine.path(1).symlink_to("/dev/zero")
    with pytest.raises(OSError, match=r"keeps the prefetcher on.*dev/cpu/1/msr"):
        put("prefetcher.l2_hwpf", "off", NODE)
    machine.path(1).unlink()
    machine.path(1).write_bytes(b"\xee" * REGISTER + bytes(8) + b"\xee" * 8)
    assert machine.values() == [0, 0, 0]


def test_missing_hardware_thread_is_refused(controls: dict[str, Control]) -> None:
    for name in ("3", "microcode"):
        with pytest.raises(UsageError, match="expected one of 0, 1, 2"):
            controls["prefetcher.l2_hwpf"].get({"type": "hwthread", "type-id": name})
    with pytest.raises(UsageError, match="it must be hwthread"):
        controls["prefetcher"].get({"type": "socket", "type-id": "0"})


@pytest.mark.parametrize(
    ("vendor", "family", "model"),
    [("AuthenticAMD", 6, 106), ("GenuineIntel", 15, 6), ("GenuineIntel", 6, 87),
     ("GenuineIntel", 6, 133)],
)  # fmt: skip
def test_processor_with_other_bits_has_no_controls(
    machine: Machine, vendor: str, family: int, model: int
) -> None:
    machine.set_processor(vendor, family, model)
    assert machine.controls() == {}


def test_machine_without_register_has_no_controls(machine: Machine) -> None:
    """No driver, no rights, or a virtual machine that refuses to read it."""
    machine.path(0).write_bytes(b"")
    assert machine.controls() == {}
    for thread in range(3):
        machine.path(thread).unlink()
    assert machine.controls() == {}
    (machine.root / "proc/cpuinfo").unlink()
    assert machine.controls() == {}
