"""The health of disks as ``smartctl --json`` reports it, replaced by a program that prints it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.config import Duration
from ccpipe.errors import DataError
from ccpipe.node.collectors.storage import smartmon
from ccpipe.node.collectors.storage.smartmon import METRICS, Smartmon
from tests.node.conftest import checked, reported
from tests.paths import TEST_DATA

DATA = TEST_DATA / "smartctl"
SCRIPT = """#!/bin/sh
echo "$@" >> {asked}
case "$*" in
*--scan*) cat {data}/scan.json;;
*/dev/nvme2) cat {data}/nvme.json;;
*/dev/sda) cat {data}/sata.json; exit 64;;
*/dev/sdb) cat {data}/denied.json; exit 2;;
esac
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    program = tmp_path / "smartctl"
    program.write_text(SCRIPT.format(data=DATA, asked=tmp_path / "asked"))
    program.chmod(0o755)
    return [str(program)]


def test_smartmon_reports_all_metrics_of_nvme_disk(command: list[str]) -> None:
    """Names, units and types as declared; hours become seconds."""
    collector = Smartmon(command=command)
    messages = [m for m in collector.collect(1) if m.tags["stype-id"] == "/dev/nvme2"]
    values = {m.name: m.value for m in messages}
    assert {(m.name, type(m.value), m.tags["stype"]) for m in map(checked, messages)} == {
        (row.name, row.kind, row.stype) for row in METRICS
    }
    assert values["smartmon_temp"] == 37
    assert values["smartmon_power_on"] == 12173 * 3600
    assert values["smartmon_data_units_read"] == 15794760
    assert values["smartmon_unsafe_shutdowns"] == 15
    assert len(values) == 14


def test_smartmon_reports_common_metrics_of_other_disk(
    command: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Bits of the exit code for the disk's health are not a failure of the program."""
    values = reported(Smartmon(command=command).collect(1))
    of_sata = {name: value for (name, disk), value in values.items() if disk == "/dev/sda"}
    assert of_sata == {
        "smartmon_temp": 29, "smartmon_power_on": 41000 * 3600, "smartmon_power_cycles": 12,
    }  # fmt: skip


def test_smartmon_omits_only_disk_that_cannot_be_opened(
    command: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    collector = Smartmon(command=command)
    for _ in range(2):
        disks = {disk for _, disk in reported(collector.collect(1))}
        assert disks == {"/dev/sda", "/dev/nvme2"}
    [record] = caplog.records
    assert record.message == (
        "collector smartmon: /dev/sdb: smartctl: "
        "Smartctl open device: /dev/sdb failed: Permission denied"
    )


def test_smartmon_does_not_wake_sleeping_disk(command: list[str], tmp_path: Path) -> None:
    """By its options, with the type from the scan; excluded disks are not opened."""
    list(Smartmon(command=command, exclude=["/dev/sd*"]).collect(1))
    assert (tmp_path / "asked").read_text().splitlines() == [
        "--json=c --scan",
        "--json=c --device=nvme --nocheck=standby --all /dev/nvme2",
    ]


def test_smartmon_raises_enoent_without_smartctl() -> None:
    with pytest.raises(FileNotFoundError):
        list(Smartmon(command=["/nowhere/smartctl"]).collect(1))
    hangs = ["sh", "-c", "sleep 600"]
    with pytest.raises(ChildProcessError, match=r"took more than 0\.2 s"):
        list(Smartmon(command=hangs, timeout=Duration(0.2)).collect(1))


@given(st.one_of(st.binary(max_size=80), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["nvme_smart_health_information_log", "temperature", "current",
                         "power_on_hours", "smartctl", "messages", "power_on_time", "hours"]),
        inner, max_size=4,
    ),
    max_leaves=8,
).map(lambda value: json.dumps(value).encode())))  # fmt: skip
def test_smartmon_gives_numbers_or_dataerror_for_any_report(text: bytes) -> None:
    """No bytes raise anything else, nor give a number that cannot be written."""
    try:
        report = smartmon._decoded(text, smartmon._Report)
        values = list(Smartmon()._values("/dev/sda", report))
    except DataError as error:
        assert str(error).startswith("smartctl: ")  # noqa: PT017 - it need not be raised
    else:
        assert all(-(2**63) <= value < 2**63 for _, value in values)
